/* How deep the pool writes into a stack, and whether small stacks are enough for it (small_stacks.rs).
 *
 * usage: small_stacks thread | coroutine | handler
 * A thread has the least stack that POSIX promises, a coroutine 8 KiB, and a signal handler 4 KiB more than what the kernel needs.
 * Each line says how many bytes below the caller's frame one kind of call has changed. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#define KINDS 7
#define ROUNDS 400
#define PATTERN 0x5aa55aa5c33cc33cUL

static const char *const kind_names[KINDS] = {"small", "medium", "large", "calloc", "realloc", "aligned", "free"};
static size_t deepest[KINDS];
/* The lowest word of the stack that may be looked at. */
static uint64_t *lowest;

static void *volatile blocks[ROUNDS];
static char *caller;

__attribute__((noinline)) static void one(int kind, int round) {
    caller = __builtin_frame_address(0);
    size_t size = (size_t)round % 40 * 24 + 1;
    void *volatile *block = &blocks[round];
    switch (kind) {
    case 0: *block = malloc(size); break;
    case 1: *block = malloc(2000 + size * 40); break;
    case 2: *block = malloc(300000 + size * 1000); break;
    case 3: *block = calloc(1, size); break;
    case 4: *block = realloc(*block, size * 3); break;
    case 5: *block = aligned_alloc(64, (size + 63) / 64 * 64); break;
    default: free(*block); *block = NULL; break;
    }
}

/* Fills the stack below with a pattern, calls, and looks how far it was changed. No function of libc's between. */
__attribute__((noinline)) static void measure(int kind, int round) {
    uint64_t *sp = __builtin_frame_address(0);
    /* Above that is the frame of this function. */
    volatile uint64_t *top = sp - 24;
    for (volatile uint64_t *word = lowest; word < top; word++) *word = PATTERN;
    one(kind, round);
    volatile uint64_t *word = lowest;
    while (word < top && *word == PATTERN) word++;
    size_t depth = word < top ? (size_t)(caller - (char *)word) : 0;
    if (depth > deepest[kind]) deepest[kind] = depth;
}

static void all(void) {
    for (int kind = 0; kind < 6; kind++) {
        for (int round = 0; round < ROUNDS; round++) {
            if (kind != 4) blocks[round] = NULL;
            else blocks[round] = malloc(100);
            /* Some at a time, so that slabs are begun. */
            measure(kind, round);
        }
        for (int round = 0; round < ROUNDS; round++) measure(6, round);
    }
}

static ucontext_t outside, inside;

static size_t stack_bytes;
static char *stack;

static void coroutine(void) {
    lowest = (uint64_t *)(stack + 64);
    all();
}

static void handler(int signal) {
    (void)signal;
    lowest = (uint64_t *)(stack + 64);
    all();
}

static void *thread(void *argument) {
    pthread_attr_t attributes;
    void *start;
    size_t size;
    /* The first call of the thread is measured, too; asking for the bounds allocates. */
    void *volatile first = malloc(40);
    free(first);
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return argument;
    pthread_attr_getstack(&attributes, &start, &size);
    pthread_attr_destroy(&attributes);
    lowest = (uint64_t *)((char *)start + 64);
    all();
    return NULL;
}

static int in_thread(void) {
    pthread_attr_t attributes;
    pthread_t id;
    void *result = NULL;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, (size_t)PTHREAD_STACK_MIN) != 0) return 1;
    errno = pthread_create(&id, &attributes, thread, &result);
    if (errno != 0) return perror("pthread_create"), 1;
    pthread_join(id, &result);
    return result != NULL;
}

static int in_coroutine(void) {
    getcontext(&inside);
    inside.uc_stack = (stack_t){.ss_sp = stack, .ss_size = stack_bytes};
    inside.uc_link = &outside;
    makecontext(&inside, coroutine, 0);
    return swapcontext(&outside, &inside);
}

static int in_handler(void) {
    stack_t alternative = {.ss_sp = stack, .ss_size = stack_bytes};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    if (sigaltstack(&alternative, NULL) != 0 || sigaction(SIGUSR1, &action, NULL) != 0) return perror("sigaltstack"), 1;
    return raise(SIGUSR1);
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    if (strcmp(argv[1], "thread") != 0) {
        /* A guard of a page's length on both sides: who writes beyond the stack changes it. */
        stack_bytes = strcmp(argv[1], "coroutine") == 0 ? 8192 : (size_t)sysconf(_SC_MINSIGSTKSZ) + 4096;
        char *room = malloc(stack_bytes + 8192);
        memset(room, 0x77, stack_bytes + 8192);
        stack = room + 4096;
    }
    int failed = strcmp(argv[1], "thread") == 0      ? in_thread()
                 : strcmp(argv[1], "coroutine") == 0 ? in_coroutine()
                                                     : in_handler();
    if (failed) return 1;
    for (size_t at = 0; stack != NULL && at < 4096; at++) {
        if (stack[-1 - (long)at] != 0x77) {
            printf("the stack overflowed by at least %zu bytes\n", at + 1);
            return 1;
        }
    }
    for (int kind = 0; kind < KINDS; kind++) printf("%s %zu\n", kind_names[kind], deepest[kind]);
    return 0;
}
