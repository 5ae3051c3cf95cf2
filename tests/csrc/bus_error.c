/* What a program sees of SIGBUS: its own actions, and nothing of the pool's. The argument says how it ends. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static sigjmp_buf back;
static siginfo_t seen;
static volatile int calls;
static sigset_t mask_in_handler;

static void on_bus(int signal, siginfo_t *info, void *context) {
    (void)context;
    seen = *info;
    calls++;
    pthread_sigmask(SIG_BLOCK, NULL, &mask_in_handler);
    if (signal == SIGBUS && info->si_code > 0) siglongjmp(back, 1);
}

static void on_plain(int signal) {
    if (signal == SIGBUS) calls++;
}

/* A page of a file that is not there. */
static volatile char *missing_page(void) {
    int fd = memfd_create("cut", 0);
    CHECK(fd >= 0 && ftruncate(fd, 4096) == 0);
    volatile char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(page != MAP_FAILED);
    page[0] = 1;
    CHECK(ftruncate(fd, 0) == 0);
    close(fd);
    return page;
}

static void handlers(void) {
    struct sigaction old, new;
    memset(&new, 0, sizeof new);
    calls = 0;
    CHECK(sigaction(SIGBUS, NULL, &old) == 0 && old.sa_handler == SIG_DFL);

    new.sa_sigaction = on_bus;
    new.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigemptyset(&new.sa_mask);
    sigaddset(&new.sa_mask, SIGUSR1);
    CHECK(sigaction(SIGBUS, &new, &old) == 0 && old.sa_handler == SIG_DFL);
    CHECK(sigaction(SIGBUS, NULL, &old) == 0 && old.sa_sigaction == on_bus);
    CHECK((old.sa_flags & (SA_SIGINFO | SA_NODEFER)) == (SA_SIGINFO | SA_NODEFER));
    CHECK(sigismember(&old.sa_mask, SIGUSR1) && !sigismember(&old.sa_mask, SIGUSR2));

    volatile char *page = missing_page();
    if (sigsetjmp(back, 1) == 0) {
        page[8] = 1;
        CHECK(!"the page is there");
    }
    CHECK(calls == 1 && seen.si_code == BUS_ADRERR && seen.si_addr == (void *)(page + 8));
    CHECK(sigismember(&mask_in_handler, SIGUSR1) && !sigismember(&mask_in_handler, SIGBUS));

    union sigval value = {.sival_int = 77};
    CHECK(sigqueue(getpid(), SIGBUS, value) == 0);
    CHECK(calls == 2 && seen.si_code == SI_QUEUE && seen.si_value.sival_int == 77 && seen.si_pid == getpid());

    /* Back to the default after one. */
    new.sa_flags = SA_SIGINFO | SA_RESETHAND;
    CHECK(sigaction(SIGBUS, &new, NULL) == 0);
    raise(SIGBUS);
    CHECK(calls == 3);
    CHECK(sigaction(SIGBUS, NULL, &old) == 0 && old.sa_handler == SIG_DFL);

    CHECK(signal(SIGBUS, on_plain) == SIG_DFL);
    raise(SIGBUS);
    CHECK(calls == 4);
    CHECK(signal(SIGBUS, SIG_IGN) == on_plain);
    raise(SIGBUS);
    CHECK(calls == 4);

    /* What a child of vfork does is its own affair. */
    CHECK(signal(SIGBUS, on_plain) == SIG_IGN);
    pid_t child = vfork();
    if (child == 0) {
        new.sa_handler = SIG_DFL;
        new.sa_flags = 0;
        sigaction(SIGBUS, &new, NULL);
        execl("/bin/true", "true", (char *)NULL);
        _exit(127);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    raise(SIGBUS);
    CHECK(calls == 5);
    CHECK(signal(SIGBUS, SIG_DFL) == on_plain);

    /* Other signals, and errors. */
    CHECK(signal(SIGUSR1, on_plain) == SIG_DFL && signal(SIGUSR1, SIG_DFL) == on_plain);
    errno = 0;
    CHECK(sigaction(SIGKILL, &new, NULL) == -1 && errno == EINVAL);
    errno = 0;
    CHECK(signal(SIGKILL, on_plain) == SIG_ERR && errno == EINVAL);
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    handlers();
    if (strcmp(how, "touch") == 0) missing_page()[0] = 1;
    if (strcmp(how, "raise") == 0) raise(SIGBUS);
    if (strcmp(how, "forked") == 0) {
        pid_t child = fork();
        if (child == 0) {
            handlers();
            missing_page()[0] = 1;
            _exit(0);
        }
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    }
    return failed_checks;
}
