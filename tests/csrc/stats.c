/* Holds a known number of blocks, says what the pool counts, and waits until standard input ends. The word after its name says
 * where: in one thread, beside "threads" that wait, too, or in a "fork"ed child. It prints its process id, then the
 * statistics as JSON on one line, then as text. */
#include "poolscope.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { BLOCKS = 1000, BLOCK = 1000, LARGE = 10 << 20 };

static void *held[BLOCKS];
static void *volatile large;
static char json[1 << 17], text[1 << 17];
static pthread_barrier_t allocated;

static void wait_for_end(void) {
    char byte;
    while (read(0, &byte, 1) > 0) {}
}

static void *work(void *unused) {
    (void)unused;
    static __thread void *mine[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) mine[i] = malloc(200 + (size_t)i % 7 * 100);
    for (int i = 0; i < BLOCKS; i += 3) free(mine[i]);
    pthread_barrier_wait(&allocated);
    for (;;) pause();
    return NULL;
}

static void mallinfo_adds_up(void) {
    struct mallinfo2 info = mallinfo2();
    CHECK(info.arena == info.uordblks + info.fordblks);
    CHECK(info.hblks == 1 && info.hblkhd >= LARGE && info.hblkhd < LARGE + (1 << 17));
    CHECK(info.uordblks >= BLOCKS / 2 * BLOCK && info.uordblks < 4 << 20);
    CHECK(info.ordblks >= info.smblks && info.smblks > 0 && info.fsmblks <= info.fordblks);
    /* Of 3 MiB that were freed, and whatever else no block is in. */
    CHECK(info.keepcost >= 3 << 20 && info.keepcost <= info.fordblks);
    CHECK(malloc_trim(0) == 1 && mallinfo2().keepcost == 0);
}

static void mallopt_knows_its_parameters(void) {
    static const int known[] = {M_MXFAST, M_NLBLKS, M_GRAIN, M_KEEP, M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD,
                                M_MMAP_MAX, M_CHECK_ACTION, M_PERTURB, M_ARENA_TEST, M_ARENA_MAX};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) CHECK(mallopt(known[i], 100) == 1);
    CHECK(mallopt(M_MXFAST, 100000) == 0 && mallopt(M_MXFAST, -1) == 0);
    CHECK(mallopt(0, 1) == 0 && mallopt(12345, 1) == 0 && mallopt(-12345, 1) == 0);
}

static void malloc_info_writes_xml(void) {
    CHECK(malloc_info(1, stdout) == EINVAL);
    FILE *file = tmpfile();
    CHECK(file && malloc_info(0, file) == 0 && ftell(file) > 100);
    fclose(file);
}

static void say(void) {
    char pid[16];
    size_t length = (size_t)snprintf(pid, sizeof pid, "%d\n", (int)getpid());
    size_t json_length = poolscope_stats_json(json, sizeof json);
    size_t text_length = poolscope_stats_text(text, sizeof text);
    CHECK(json_length < sizeof json && text_length < sizeof text);
    CHECK(strlen(json) == json_length && strlen(text) == text_length);
    CHECK(write(1, pid, length) == (ssize_t)length && write(1, json, json_length) == (ssize_t)json_length);
    CHECK(write(1, text, text_length) == (ssize_t)text_length);
    CHECK(write(1, "end\n", 4) == 4);
}

int main(int argc, char **argv) {
    const char *where = argc > 1 ? argv[1] : "";
    for (int i = 0; i < BLOCKS; i++) held[i] = malloc(BLOCK);
    for (int i = 0; i < BLOCKS; i += 2) free(held[i]);
    large = malloc(LARGE);
    free(memset(malloc(3 << 20), 1, 3 << 20));

    if (strcmp(where, "info") == 0) {
        mallinfo_adds_up();
        mallopt_knows_its_parameters();
        malloc_info_writes_xml();
        malloc_stats();
        malloc_info(0, stdout);
        return failed_checks;
    }
    if (strcmp(where, "threads") == 0) {
        pthread_barrier_init(&allocated, NULL, 4);
        for (int i = 0; i < 3; i++) {
            pthread_t thread;
            CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
        }
        pthread_barrier_wait(&allocated);
    }
    if (strcmp(where, "fork") == 0) {
        int status;
        pid_t child = fork();
        if (child > 0) {
            CHECK(waitpid(child, &status, 0) == child && status == 0);
            return failed_checks;
        }
    }
    say();
    wait_for_end();
    return failed_checks;
}
