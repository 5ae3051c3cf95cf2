// fork and malloc: from threads, in signal handlers, while streams are flushed.
//
// usage: processes SCENARIO

#include "scenarios.h"

#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_bool stopping;

static void wait_for(pid_t pid) {
    int status;
    CHECK(pid > 0, "errno %d", errno);
    while (waitpid(pid, &status, 0) < 0) CHECK(errno == EINTR);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a child ended with status %#x", status);
}

static void *reads_lines(void *path) {
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    while (!stopping) {
        char *line = NULL;
        size_t room = 0;
        rewind(file);
        CHECK(getline(&line, &room, file) > 0);
        free(line);
    }
    fclose(file);
    return NULL;
}

static void *flushes_all(void *unused) {
    while (!stopping) fflush(NULL);
    return unused;
}

static void *forks(void *unused) {
    while (!stopping) {
        pid_t pid = fork();
        if (pid == 0) _exit(0);
        wait_for(pid);
    }
    return unused;
}

// One waits for a stream, with the list of streams locked; the stream's reader waits for memory; who forks must not hold
// the allocator's locks while it waits for the list.
static void streams_that_are_flushed(void) {
    char path[] = "/tmp/poolscope-processes-XXXXXX";
    int fd = mkstemp(path);
    static char line[50000];
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    CHECK(fd >= 0 && write(fd, line, sizeof line) == sizeof line);
    close(fd);
    pthread_t threads[9];
    for (int i = 0; i < 9; i++) CHECK(pthread_create(&threads[i], NULL, i < 5 ? reads_lines : i < 8 ? forks : flushes_all, path) == 0);
    sleep(2);
    stopping = true;
    for (int i = 0; i < 9; i++) pthread_join(threads[i], NULL);
    unlink(path);
}

static void forks_and_waits(int signal) {
    (void)signal;
    int saved = errno;
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    wait_for(pid);
    errno = saved;
}

// Single-threaded, where fork may be called from a handler. It interrupts the allocator everywhere.
static void signal_handlers_that_fork(void) {
    struct sigaction action = {.sa_handler = forks_and_waits, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    enum { KEPT = 500 };
    static char *kept[KEPT];
    for (int round = 0; round < 300; round++) {
        // The moment moves on from round to round.
        struct itimerval soon = {{0, 0}, {0, 20 + round * 3}};
        CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
        for (int i = 0; i < KEPT; i++) {
            size_t size = (size_t)(i * 7919 + round * 104729) % 70000;
            if (kept[i] != NULL) CHECK(kept[i][0] == (char)i);
            free(kept[i]);
            kept[i] = malloc(size + 1);
            CHECK(kept[i] != NULL);
            kept[i][0] = (char)i;
            if (i % 100 == 0 && round % 10 == 0) {
                pid_t pid = fork();
                if (pid == 0) _exit(0);
                wait_for(pid);
            }
        }
    }
}

static void work(unsigned seed, int rounds) {
    enum { KEPT = 200 };
    struct {
        unsigned char *block;
        size_t size, tag;
    } kept[KEPT] = {0};
    for (int round = 0; round < rounds; round++) {
        int at = rand_r(&seed) % KEPT;
        check_filled(kept[at].block, kept[at].tag, kept[at].size, "of a kept block");
        free(kept[at].block);
        size_t size = rand_r(&seed) % (round % 50 == 0 ? 400000 : 3000);
        kept[at].block = malloc(size + 1), kept[at].size = size, kept[at].tag = round;
        CHECK(kept[at].block != NULL);
        fill(kept[at].block, round, size);
    }
    for (int at = 0; at < KEPT; at++) {
        check_filled(kept[at].block, kept[at].tag, kept[at].size, "at the end");
        free(kept[at].block);
    }
}

static void *works(void *seed) {
    for (unsigned round = 0; !stopping; round++) work((unsigned)(uintptr_t)seed + round, 300);
    return NULL;
}

static void *works_once(void *seed) {
    work((unsigned)(uintptr_t)seed, 2000);
    return NULL;
}

// Threads allocate while others fork; the children use and free what they inherited, and start threads of their own.
static void children_of_threads(void) {
    enum { BLOCKS = 500 };
    static unsigned char *inherited[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) fill(inherited[i] = malloc(i * 40), i, i * 40);
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, works, (void *)(i * 1000)) == 0);
    for (unsigned child = 0; child < 16; child++) {
        pid_t pid = fork();
        if (pid == 0) {
            pthread_t thread;
            CHECK(pthread_create(&thread, NULL, works_once, (void *)(uintptr_t)child) == 0);
            work(child, 1000);
            for (int i = 0; i < BLOCKS; i++) {
                check_filled(inherited[i], i, i * 40, "that a child inherited");
                free(inherited[i]);
            }
            pthread_join(thread, NULL);
            if (child % 8 == 0) {
                pid_t grandchild = fork();
                if (grandchild == 0) {
                    work(child + 1, 500);
                    exit(0);
                }
                wait_for(grandchild);
            }
            exit(0);
        }
        wait_for(pid);
    }
    stopping = true;
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < BLOCKS; i++) free(inherited[i]);
}

static void *at_fork[4];
static void before(void) { at_fork[0] = malloc(100), at_fork[1] = calloc(1, 300000); }
static void after(void) {
    free(at_fork[0]);
    free(at_fork[1]);
    at_fork[2] = malloc(5000);
    free(realloc(at_fork[2], 50000));
}

static void handlers_that_allocate(void) {
    CHECK(pthread_atfork(before, after, after) == 0);
    pthread_t threads[2];
    for (uintptr_t i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, works, (void *)i) == 0);
    for (int child = 0; child < 50; child++) {
        pid_t pid = fork();
        if (pid == 0) {
            work(child, 100);
            _exit(0);
        }
        wait_for(pid);
    }
    stopping = true;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

static void other_ways_to_start_a_process(void) {
    pthread_t threads[2];
    for (uintptr_t i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, works, (void *)i) == 0);
    for (int child = 0; child < 20; child++) {
        char *arguments[] = {"true", NULL};
        pid_t pid;
        CHECK(posix_spawnp(&pid, "true", NULL, NULL, arguments, environ) == 0);
        wait_for(pid);
        pid = vfork();
        if (pid == 0) {
            execvp("true", arguments);
            _exit(1);
        }
        wait_for(pid);
        CHECK(system("exit 0") == 0);
        char answer[10];
        FILE *pipe = popen("echo answer", "r");
        CHECK(pipe != NULL && fgets(answer, sizeof answer, pipe) != NULL && pclose(pipe) == 0);
    }
    stopping = true;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

static const struct scenario SCENARIOS[] = {
    {"streams-that-are-flushed", streams_that_are_flushed},
    {"signal-handlers-that-fork", signal_handlers_that_fork},
    {"children-of-threads", children_of_threads},
    {"handlers-that-allocate", handlers_that_allocate},
    {"other-ways-to-start-a-process", other_ways_to_start_a_process},
};
MAIN(SCENARIOS)
