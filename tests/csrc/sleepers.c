/* Threads that fill their caches and go to sleep in all sorts of ways: one of each, and the main thread.
 * With "empty" they allocate once, for comparison. Prints READY when all of them are about to sleep. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STACK (256 << 10)

static int empty;

static void hoard(void) {
    free(malloc(8192));
    if (empty) return;
    for (int round = 0; round < 3; round++) {
        char *blocks[400];
        for (int i = 0; i < 400; i++) memset(blocks[i] = malloc(8192), 1, 8192);
        for (int i = 0; i < 400; i++) free(blocks[i]);
    }
}

static pthread_barrier_t barrier;

static void sleep_for_good(void) {
    pthread_barrier_wait(&barrier);
    for (;;) pause();
}

static void *plainly(void *unused) {
    hoard();
    sleep_for_good();
    return unused;
}

static int descend(int depth) {
    volatile char frame[4096];
    frame[0] = (char)depth;
    if (depth == 0) sleep_for_good();
    return depth == 0 ? 0 : descend(depth - 1) + frame[0];
}

static void *deep_down(void *unused) {
    hoard();
    descend(200);
    return unused;
}

/* As the kernel has it and as the C library has it, with where handlers return to. */
static void *with_a_copy_of_an_action(void *unused) {
    volatile unsigned long raw[4];
    struct sigaction action;
    hoard();
    syscall(SYS_rt_sigaction, SIGUSR1, NULL, raw, 8);
    sigaction(SIGUSR1, NULL, &action);
    memset(malloc(4096), (int)(raw[2] + (unsigned long)action.sa_flags), 1);
    sleep_for_good();
    return unused;
}

static void on_signal(int number) {
    if (number == SIGUSR2) sleep_for_good();
}

static void *in_a_handler(void *unused) {
    hoard();
    raise(SIGUSR2);
    return unused;
}

static void start(void *(*run)(void *), void *stack) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    if (stack) pthread_attr_setstack(&attributes, stack, STACK);
    pthread_attr_setstacksize(&attributes, stack ? STACK : 8 << 20);
    if (pthread_create(&thread, &attributes, run, NULL)) exit(3);
}

int main(int argc, char **argv) {
    empty = argc > 1 && !strcmp(argv[1], "empty");
    signal(SIGUSR1, on_signal);
    signal(SIGUSR2, on_signal);
    pthread_barrier_init(&barrier, NULL, 6);
    start(plainly, NULL);
    start(deep_down, NULL);
    start(with_a_copy_of_an_action, NULL);
    start(in_a_handler, NULL);
    /* A stack with other memory right above it. */
    char *stack = mmap(NULL, STACK + (1 << 20), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    start(plainly, stack);
    hoard();
    pthread_barrier_wait(&barrier);
    printf("READY\n");
    fflush(stdout);
    for (;;) pause();
}
