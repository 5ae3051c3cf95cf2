/* Hooks of device memory: what they are told, from inside of them, and with other threads. With POOLSCOPE_GPU_DEVICE=sim:1G:2. */
#include "poolscope_gpu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define MIB ((size_t)1 << 20)

static poolscope_gpu_event seen[64];
static size_t count;

static void remember(const poolscope_gpu_event *event, void *context) {
    if (context == seen && count < 64) seen[count++] = *event;
}

static void expect(size_t at, uint32_t moment, int device, int is_pinned, void *block, size_t size, void *stream) {
    const poolscope_gpu_event *event = &seen[at];
    CHECK(at < count && event->moment == moment && event->device == device && event->is_pinned == is_pinned);
    CHECK(event->block == block && event->size == size && event->stream == stream);
}

static void every_size_is_seen_before_and_after(void) {
    uint64_t hook = poolscope_gpu_add_hook(remember, seen);
    CHECK(hook != 0);
    for (size_t size = 1000; size < 20 * MIB; size *= 100) {
        for (int device = 0; device < 2; device++) {
            count = 0;
            void *block = poolscope_gpu_alloc(device, size, (void *)1);
            size_t has = poolscope_gpu_size(device, block);
            CHECK(block && poolscope_gpu_free(device, block, (void *)2) == 0 && count == 4);
            expect(0, POOLSCOPE_GPU_BEFORE_ALLOC, device, 0, NULL, size, (void *)1);
            expect(1, POOLSCOPE_GPU_AFTER_ALLOC, device, 0, block, size, (void *)1);
            expect(2, POOLSCOPE_GPU_BEFORE_FREE, device, 0, block, has, (void *)2);
            expect(3, POOLSCOPE_GPU_AFTER_FREE, device, 0, block, has, (void *)2);
            /* What is refused is no free, and what finds no memory is no block. */
            CHECK(poolscope_gpu_free(device, block, NULL) == -1 && count == 4);
            CHECK(poolscope_gpu_alloc(device, (size_t)1 << 40, NULL) == NULL && count == 6);
            expect(5, POOLSCOPE_GPU_AFTER_ALLOC, device, 0, NULL, (size_t)1 << 40, NULL);
        }
    }
    count = 0;
    void *pinned = poolscope_gpu_pinned_alloc(1, 5000, NULL);
    CHECK(pinned && poolscope_gpu_pinned_free(1, pinned, NULL) == 0 && count == 4);
    expect(1, POOLSCOPE_GPU_AFTER_ALLOC, 1, 1, pinned, 5000, NULL);
    count = 0;
    CHECK(poolscope_gpu_preallocate(0, 4096, 100, NULL) == 0 && count == 0);
    CHECK(poolscope_gpu_remove_hook(hook) == 0 && poolscope_gpu_remove_hook(hook) == -1);
    void *block = poolscope_gpu_alloc(0, 1000, NULL);
    CHECK(block && poolscope_gpu_free(0, block, NULL) == 0 && count == 0);
}

static atomic_long calls, others;
static atomic_uint_fast64_t own;

/* Allocates and frees itself, adds and removes another hook, and at last goes itself. */
static void busy(const poolscope_gpu_event *event, void *context) {
    (void)context;
    void *inner = poolscope_gpu_alloc(0, 256 + event->size % 10000, NULL);
    CHECK(inner && poolscope_gpu_free(0, inner, NULL) == 0);
    uint64_t other = poolscope_gpu_add_hook(remember, NULL);
    CHECK(other != 0 && poolscope_gpu_remove_hook(other) == 0);
    if (atomic_fetch_add(&calls, 1) == 99) CHECK(poolscope_gpu_remove_hook(atomic_load(&own)) == 0);
}

static void a_hook_may_use_the_pool_and_go(void) {
    atomic_store(&own, poolscope_gpu_add_hook(busy, NULL));
    for (int pair = 0; pair < 100; pair++) {
        void *block = poolscope_gpu_alloc(0, 1000, NULL);
        CHECK(block && poolscope_gpu_free(0, block, NULL) == 0);
    }
    CHECK(atomic_load(&calls) == 100);
}

static void add(const poolscope_gpu_event *event, void *context) {
    (void)event;
    /* The context is not there after the removal. */
    atomic_fetch_add((atomic_long *)context, 1);
}

static void *pairs(void *stop) {
    while (!atomic_load((atomic_int *)stop)) {
        void *block = poolscope_gpu_alloc(0, 1000, NULL);
        CHECK(block && poolscope_gpu_free(0, block, NULL) == 0);
        atomic_fetch_add(&others, 1);
    }
    return NULL;
}

static void hooks_come_and_go_under_threads(void) {
    atomic_int stop = 0;
    pthread_t threads[3];
    for (int at = 0; at < 3; at++) CHECK(pthread_create(&threads[at], NULL, pairs, &stop) == 0);
    for (int round = 0; round < 300; round++) {
        atomic_long *context = calloc(1, sizeof *context);
        uint64_t hooks[3];
        for (int at = 0; at < 3; at++) hooks[at] = poolscope_gpu_add_hook(add, context);
        long before = atomic_load(&others);
        while (atomic_load(&others) < before + 3) {
        }
        for (int at = 0; at < 3; at++) CHECK(poolscope_gpu_remove_hook(hooks[at]) == 0);
        CHECK(atomic_load(context) > 0);
        memset(context, 0xee, sizeof *context);
        free(context);
    }
    atomic_store(&stop, 1);
    for (int at = 0; at < 3; at++) CHECK(pthread_join(threads[at], NULL) == 0);
}

static void what_is_no_hook_is_refused(void) {
    CHECK(poolscope_gpu_add_hook(NULL, NULL) == 0 && strstr(poolscope_gpu_error(), "hook"));
    CHECK(poolscope_gpu_remove_hook(0) == -1 && poolscope_gpu_remove_hook(UINT64_MAX) == -1);
}

int main(void) {
    every_size_is_seen_before_and_after();
    a_hook_may_use_the_pool_and_go();
    hooks_come_and_go_under_threads();
    what_is_no_hook_is_refused();
    return failed_checks;
}
