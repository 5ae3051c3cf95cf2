// Loses a block, and has others where only a search of the whole process finds them. Before it ends it does what each
// argument names, so that it finds nothing more of itself by a path, or may read nothing more.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/landlock.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOST = 1234, GLOBAL = 200, STACK = 300, EVENT = 400, UNKNOWN_HERE = 77 };

void *global;
static int ready[2];

static void *wait_with_a_block(void *unused) {
    (void)unused;
    void *volatile own = malloc(STACK);
    write(ready[1], "", 1);
    for (;;) pause();
    return own;
}

__attribute__((noinline)) static void lose(void) {
    void *volatile lost = malloc(LOST);
    memset(lost, 0, LOST);
    lost = NULL;
}

// Closes the file system to the process.
static void landlock(void) {
    struct landlock_ruleset_attr all = {.handled_access_fs = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR};
    int rules = syscall(SYS_landlock_create_ruleset, &all, sizeof all, 0);
    if (rules < 0) _exit(UNKNOWN_HERE);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (syscall(SYS_landlock_restrict_self, rules, 0)) _exit(UNKNOWN_HERE);
    close(rules);
}

static void must(int result, const char *what) {
    if (result) {
        perror(what);
        _exit(1);
    }
}

int main(int argc, char **argv) {
    global = malloc(GLOBAL);
    must(pipe(ready), "pipe");
    pthread_t thread;
    must(pthread_create(&thread, NULL, wait_with_a_block, NULL), "thread");
    char byte;
    must(read(ready[0], &byte, 1) != 1, "read");
    lose();
    for (char **step = argv + 1; step < argv + argc; step++) {
        if (!strcmp(*step, "chroot")) must(chroot(getenv("ROOT")) || chdir("/"), "chroot");
        if (!strcmp(*step, "setuid")) must(setgid(65534) || setuid(65534), "setuid");
        if (!strcmp(*step, "undumpable")) must(prctl(PR_SET_DUMPABLE, 0), "prctl");
        if (!strcmp(*step, "landlock")) landlock();
        if (!strcmp(*step, "no-files")) must(setrlimit(RLIMIT_NOFILE, &(struct rlimit){0, 0}), "setrlimit");
        if (!strcmp(*step, "close")) must(syscall(SYS_close_range, 3, ~0u, 0), "close_range");
        if (!strcmp(*step, "epoll")) {
            struct epoll_event event = {.events = EPOLLIN, .data.ptr = malloc(EVENT)};
            int epoll = epoll_create1(0);
            must(epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, ready[0], &event), "epoll");
            event.data.ptr = NULL;
        }
        if (!strcmp(*step, "fork")) {
            pid_t child = fork();
            if (child > 0) must(waitpid(child, NULL, 0) != child, "wait");
            else lose();
        }
    }
    return 0;
}
