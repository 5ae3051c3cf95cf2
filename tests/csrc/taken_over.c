// With LIBRARY a library that takes over what the C library says of the time, of who the process is and of files, as
// libfaketime, fakeroot and uid_wrapper do: it allocates to answer, under a lock, and what it says is wrong. Without it a program that allocates
// until its standard input ends, and checks that it is told so.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define YEAR_2001 1000000000
#define OTHER 12345

#ifdef LIBRARY
static void allocate(void) {
    // More than threads have at hand.
    for (size_t size = 16; size < 1 << 20; size *= 2) {
        char *volatile block = malloc(size);
        block[0] = 1;
        free(block);
    }
}

long syscall(long number, ...) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static long (*next)(long, ...);
    // Six of them, whatever the call takes.
    long words[6];
    va_list all;
    va_start(all, number);
    for (int i = 0; i < 6; i++) words[i] = va_arg(all, long);
    va_end(all);
    pthread_mutex_lock(&lock);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "syscall");
    allocate();
    pthread_mutex_unlock(&lock);
    return next(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    allocate();
    syscall(SYS_clock_gettime, clock, time);
    time->tv_sec = YEAR_2001;
    return 0;
}

pid_t getpid(void) {
    allocate();
    return OTHER;
}

pid_t getppid(void) {
    allocate();
    return OTHER;
}

uid_t geteuid(void) {
    allocate();
    return OTHER;
}

int lstat(const char *path, struct stat *state) {
    allocate();
    int result = syscall(SYS_newfstatat, -100, path, state, 0x100);
    state->st_uid = OTHER;
    return result;
}

int fstat(int file, struct stat *state) {
    allocate();
    int result = syscall(SYS_newfstatat, file, "", state, 0x1000);
    state->st_size = 0;
    return result;
}
#else
int main(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (now.tv_sec != YEAR_2001 || getpid() != OTHER || getppid() != OTHER || geteuid() != OTHER) return 1;
    printf("%ld\n", syscall(SYS_getpid));
    fflush(stdout);
    void *blocks[1000];
    for (;;) {
        for (int i = 0; i < 1000; i++) blocks[i] = memset(malloc(100 + i), 1, 100 + i);
        for (int i = 0; i < 1000; i++) free(blocks[i]);
        struct timespec nap = {0, 1000000};
        syscall(SYS_nanosleep, &nap, 0);
        struct pollfd input = {.fd = 0, .events = POLLIN};
        if (poll(&input, 1, 0) > 0) return 0;
    }
}
#endif
