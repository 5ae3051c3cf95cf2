/* What a program may do to itself, and allocate then as before. The argument says what. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

/* Takes and frees blocks of all sizes, each with a pattern that is looked at before it is freed. */
static void work(int rounds, unsigned seed) {
    enum { BLOCKS = 256 };
    static const size_t most[4] = {1 << 10, 1 << 16, 1 << 20, 1 << 22};
    unsigned char *blocks[BLOCKS] = {0};
    size_t sizes[BLOCKS] = {0};
    for (int i = 0; i < rounds; i++) {
        seed = seed * 1103515245u + 12345u;
        int at = seed >> 8 & (BLOCKS - 1);
        unsigned char pattern = at + 1;
        if (blocks[at] != NULL) {
            for (size_t j = 0; j < sizes[at]; j += sizes[at] / 7 + 1) CHECK(blocks[at][j] == pattern);
            free(blocks[at]);
            blocks[at] = NULL;
            continue;
        }
        int chance = seed >> 16 & 31;
        sizes[at] = (seed >> 3) % most[chance < 22 ? 0 : chance < 29 ? 1 : chance < 31 ? 2 : 3] + 1;
        CHECK((blocks[at] = malloc(sizes[at])) != NULL);
        for (size_t j = 0; j < sizes[at]; j += sizes[at] / 7 + 1) blocks[at][j] = pattern;
    }
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
}

static void *work_in_thread(void *seed) {
    work(500, (unsigned)(uintptr_t)seed);
    return NULL;
}

static void work_in_threads(void) {
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work_in_thread, (void *)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

/* Descriptors that are not the program's own are closed, and files of its own have their numbers then. */
static void close_all(void) {
    CHECK(close_range(3, ~0u, 0) == 0);
    work(3000, 1);
    int first = open("/dev/zero", O_RDONLY);
    CHECK(first == 3);
    for (int i = 1; i < 16; i++) CHECK(open("/dev/zero", O_RDONLY) == first + i);
    work_in_threads();
    usleep(300 * 1000);
    for (int i = 0; i < 16; i++) {
        char byte = 1;
        CHECK(read(first + i, &byte, 1) == 1 && byte == 0);
    }
}

static void no_more_files(void) {
    struct rlimit none = {0, 0};
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
}

/* Memory that the program takes by moving the end of its data stays the program's. */
static void move_the_break(void) {
    enum { PAGES = 100, PAGE = 4096 };
    char *pages[PAGES];
    for (int i = 0; i < PAGES; i++) {
        CHECK((pages[i] = sbrk(PAGE)) != (void *)-1);
        memset(pages[i], i + 1, PAGE);
        work(50, i);
    }
    for (int i = 0; i < PAGES; i++) {
        int same = 0;
        for (int j = 0; j < PAGE; j++) same += pages[i][j] == i + 1;
        CHECK(same == PAGE);
    }
}

/* Whatever is free beside the heap gets mappings of the program's. */
static void take_addresses(void) {
    uintptr_t heap = (uintptr_t)malloc(100) & ~((UINT64_C(1) << 30) - 1);
    int taken = 0;
    for (long i = -64; i < 192; i++) {
        void *at = (void *)(heap + ((intptr_t)i << 30));
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE;
        unsigned char *page = mmap(at, 4096, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (page == MAP_FAILED) continue;
        taken++;
        *page = 0xff;
    }
    CHECK(taken > 0);
}

static void be_undumpable(void) {
    CHECK(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0);
}

static void fork_a_thousand(void) {
    enum { CHILDREN = 1000 };
    work(1000, 1);
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            work(50, i);
            _exit(0);
        }
    }
    for (int i = 0; i < CHILDREN; i++) {
        int status;
        CHECK(wait(&status) > 0 && status == 0);
    }
}

static volatile sig_atomic_t signals;

static void on_signal(int signal) {
    (void)signal;
    signals++;
}

/* A signal each fifty microseconds, on an alternate stack that is a block. */
static void storm(void) {
    enum { STACK = 1 << 16 };
    stack_t stack = {.ss_sp = malloc(STACK), .ss_size = STACK};
    CHECK(sigaltstack(&stack, NULL) == 0);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK | SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    timer_t timer;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    struct itimerspec often = {{0, 50 * 1000}, {0, 50 * 1000}}, never = {{0, 0}, {0, 0}};
    CHECK(timer_settime(timer, 0, &often, NULL) == 0);
    work(20000, 1);
    work_in_threads();
    CHECK(timer_settime(timer, 0, &never, NULL) == 0);
    CHECK(signals > 10);
}

static const struct {
    const char *name;
    void (*run)(void);
} SURROUNDINGS[] = {
    {"close-all", close_all},
    {"no-more-files", no_more_files},
    {"move-the-break", move_the_break},
    {"take-addresses", take_addresses},
    {"be-undumpable", be_undumpable},
    {"fork-a-thousand", fork_a_thousand},
    {"storm", storm},
};

int main(int argc, char **argv) {
    for (size_t i = 0; i < sizeof SURROUNDINGS / sizeof *SURROUNDINGS; i++) {
        if (argc < 2 || strcmp(argv[1], SURROUNDINGS[i].name) != 0) continue;
        SURROUNDINGS[i].run();
        work(3000, 2);
        work_in_threads();
        if (!failed_checks) puts("done");
        return failed_checks;
    }
    fputs("no such surroundings\n", stderr);
    return 2;
}
