/* What the kernel lets a process do only while it has one thread, done while the pool has one of its own.
 *
 * usage: alone user|vm|sighand|thread|mount|time
 * Prints THREADS and how many there are before, the call's error number, and whether the pool has its thread again after. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "threads.h"

/* Leaves idle memory behind, and waits for the pool's thread for a while, if there is a pool. */
static int threads_with_idle_memory(void) {
    int most = getenv("LD_PRELOAD") ? 200 : 1;
    for (int tries = 0; tries < most && threads() == 1; tries++) {
        leave_idle_memory();
    }
    return threads();
}

static int call(const char *what) {
    static const struct {
        const char *name, *file;
        int flags;
    } calls[] = {
        {"user", NULL, CLONE_NEWUSER},    {"vm", NULL, CLONE_VM},
        {"sighand", NULL, CLONE_SIGHAND}, {"thread", NULL, CLONE_THREAD},
        {"mount", "/proc/self/ns/mnt", CLONE_NEWNS}, {"time", "/proc/self/ns/time", 0x80},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        if (strcmp(what, calls[i].name)) continue;
        if (!calls[i].file) return unshare(calls[i].flags);
        int file = open(calls[i].file, O_RDONLY);
        return file < 0 ? -1 : setns(file, calls[i].flags);
    }
    exit(2);
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    printf("THREADS %d\n", threads_with_idle_memory());
    fflush(stdout);
    errno = 0;
    int failed = call(argv[1]);
    printf("ERROR %d\n", failed ? errno : 0);
    printf("AGAIN %d\n", threads_with_idle_memory());
    return 0;
}
