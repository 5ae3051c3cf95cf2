// Programs whose threads are hard to stop: unstoppable vfork SECONDS | queue THREADS | missing CHILDREN
//
// vfork: a thread waits in the kernel for its child, which takes so long. queue: no signal can wait for its thread.
// missing: children of vfork that end by _exit, since there is no such program.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static int count;
static volatile int ready;

static void *sleep_for_ever(void *unused) {
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    for (;;) pause();
    return unused;
}

static void *wait_for_child(void *unused) {
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    if (vfork() == 0) {
        sleep(count);
        _exit(0);
    }
    return sleep_for_ever(unused);
}

static void start(void *(*function)(void *)) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, function, NULL) != 0) abort();
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    count = atoi(argv[2]);
    if (strcmp(argv[1], "vfork") == 0) {
        start(wait_for_child);
        while (ready < 1) usleep(1000);
        usleep(200 * 1000);
    } else if (strcmp(argv[1], "queue") == 0) {
        for (int i = 0; i < count; i++) start(sleep_for_ever);
        while (ready < count) usleep(1000);
        struct rlimit none = {0, 0};
        if (setrlimit(RLIMIT_SIGPENDING, &none) != 0) abort();
    } else {
        for (int i = 0; i < count; i++) {
            if (vfork() == 0) {
                execl("/no/such/program", "program", (char *)NULL);
                _exit(127);
            }
        }
    }
    return 0;
}
