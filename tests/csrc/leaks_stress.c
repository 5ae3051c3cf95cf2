// Threads that allocate, free, hand blocks to each other, end and start others, while the program checks itself in a loop:
// leaks_stress THREADS SECONDS
//
// Nothing is ever lost here: each block is in a stack, in another block, in thread-local storage or in a global slot.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "poolscope_heapcheck.h"

enum { KEPT = 48, SLOTS = 256 };

// A block that may lead to another one.
struct node {
    struct node *next;
    uint64_t payload;
};

static _Atomic(struct node *) slots[SLOTS];
static __thread struct node *in_storage;
static atomic_int stop, running;
static atomic_long started;

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static struct node *make(uint64_t *random) {
    uint64_t value = next_random(random);
    size_t size = sizeof(struct node) + (value % 100 == 0 ? value % 300000 : value % 2000);
    struct node *node = malloc(size);
    if (node == NULL) abort();
    node->next = NULL;
    node->payload = value;
    return node;
}

static void drop(struct node *node) {
    while (node != NULL) {
        struct node *next = node->next;
        free(node);
        node = next;
    }
}

static void *work(void *argument);

static void start(uint64_t seed) {
    uint64_t *block = malloc(sizeof *block);
    *block = seed | 1;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 128 << 10);
    pthread_t thread;
    atomic_fetch_add(&running, 1);
    while (pthread_create(&thread, &attributes, work, block) != 0) sched_yield();
    pthread_attr_destroy(&attributes);
    atomic_fetch_add(&started, 1);
}

static void *work(void *argument) {
    uint64_t random = *(uint64_t *)argument;
    struct node *volatile kept[KEPT] = {NULL};
    uint64_t steps = 200 + next_random(&random) % 3000;
    while (steps-- > 0 && !atomic_load(&stop)) {
        uint64_t at = next_random(&random) % KEPT;
        switch (next_random(&random) % 6) {
        case 0:
        case 1: {
            drop(kept[at]);
            kept[at] = make(&random);
            break;
        }
        case 2: {
            struct node *node = make(&random);
            node->next = kept[at];
            kept[at] = node;
            if (node->payload % 8 == 0) {
                drop(node->next);
                node->next = NULL;
            }
            break;
        }
        case 3: {
            kept[at] = atomic_exchange(&slots[next_random(&random) % SLOTS], kept[at]);
            break;
        }
        case 4: {
            struct node *before = in_storage;
            in_storage = kept[at];
            kept[at] = before;
            break;
        }
        default: {
            if (kept[at] != NULL && kept[at]->next == NULL) kept[at] = realloc(kept[at], sizeof(struct node) + next_random(&random) % 4000);
        }
        }
    }
    for (int i = 0; i < KEPT; i++) drop(kept[i]);
    drop(in_storage);
    free(argument);
    if (!atomic_load(&stop)) start(next_random(&random));
    atomic_fetch_sub(&running, 1);
    return NULL;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 32;
    double seconds = argc > 2 ? atof(argv[2]) : 5;
    for (int i = 0; i < threads; i++) start((uint64_t)i * 0x9e3779b97f4a7c15ull);
    long checks = 0, failed = 0, leaked = 0, unstopped = 0;
    uint32_t most = 0;
    double end = now() + seconds, longest = 0;
    while (now() < end) {
        struct poolscope_heapcheck_result result;
        memset(&result, 0, sizeof result);
        double begun = now();
        int outcome = poolscope_heapcheck_check(&result);
        double took = now() - begun;
        if (took > longest) longest = took;
        checks++;
        failed += outcome < 0;
        leaked += (long)result.blocks;
        unstopped += (long)(result.threads - result.stopped);
        if (result.stopped > most) most = result.stopped;
        usleep(500);
    }
    atomic_store(&stop, 1);
    for (int tries = 0; atomic_load(&running) > 0 && tries < 10000; tries++) usleep(1000);
    printf("checks %ld failed %ld leaked %ld unstopped %ld most %u started %ld left %d longest_ms %.1f\n", checks, failed, leaked, unstopped,
           most, atomic_load(&started), atomic_load(&running), longest * 1e3);
    return 0;
}
