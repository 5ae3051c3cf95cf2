/* What poolscope_gpu.h promises to C, on the simulated device (POOLSCOPE_GPU_DEVICE=sim:1073741824). */
#include "poolscope_gpu.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define MIB ((size_t)1 << 20)

static long long counter(const char *name) {
    char text[4096], wanted[64];
    size_t length = poolscope_gpu_stats_json(0, text, sizeof text);
    CHECK(length > 0 && length < sizeof text && text[0] == '{' && text[length - 1] == '}');
    snprintf(wanted, sizeof wanted, "\"%s\":", name);
    const char *at = strstr(text, wanted);
    CHECK(at);
    return atoll(at + strlen(wanted));
}

static void blocks_are_aligned_and_counted(void) {
    void *blocks[100];
    for (size_t at = 0; at < 100; at++) {
        size_t size = (at * at * 977) % (3 * MIB);
        blocks[at] = poolscope_gpu_alloc(0, size, NULL);
        CHECK(blocks[at] && (uintptr_t)blocks[at] % 256 == 0 && poolscope_gpu_size(0, blocks[at]) >= size);
    }
    CHECK(counter("allocation_count") == 100 && counter("free_count") == 0);
    for (size_t at = 0; at < 100; at++) CHECK(poolscope_gpu_free(0, blocks[at], NULL) == 0);
    CHECK(poolscope_gpu_free(0, NULL, NULL) == 0);
    CHECK(counter("free_count") == 100 && counter("current_usage") == 0);
    CHECK(poolscope_gpu_release_all(0) > 0 && counter("held") == 0);
    CHECK(poolscope_gpu_reset_stats(0) == 0 && counter("allocation_count") == 0);
}

static void no_block_is_freed_twice(void) {
    for (size_t size = 1; size <= 4 * MIB; size *= 2) {
        void *block = poolscope_gpu_alloc(0, size, NULL);
        CHECK(block && poolscope_gpu_free(0, block, NULL) == 0);
        CHECK(poolscope_gpu_free(0, block, NULL) == -1 && strstr(poolscope_gpu_error(), "not the address of a block"));
        CHECK(poolscope_gpu_size(0, block) == 0 && poolscope_gpu_record_stream(0, block, NULL) == -1);
        void *one = poolscope_gpu_alloc(0, size, NULL), *other = poolscope_gpu_alloc(0, size, NULL);
        CHECK(one && other && one != other);
        CHECK(poolscope_gpu_free(0, (char *)one + 128, NULL) == -1 && poolscope_gpu_size(0, one) >= size);
        CHECK(poolscope_gpu_free(0, one, NULL) == 0 && poolscope_gpu_free(0, other, NULL) == 0);
    }
    CHECK(counter("current_usage") == 0);
}

static void refusals_have_words(void) {
    CHECK(poolscope_gpu_alloc(0, (size_t)1 << 40, NULL) == NULL && strstr(poolscope_gpu_error(), "1099511627776"));
    CHECK(poolscope_gpu_alloc(1, 1, NULL) == NULL && strstr(poolscope_gpu_error(), "no device 1"));
    CHECK(poolscope_gpu_alloc(-1, 1, NULL) == NULL && strstr(poolscope_gpu_error(), "no device -1"));
    CHECK(poolscope_gpu_free(0, (void *)4096, NULL) == -1 && strstr(poolscope_gpu_error(), "0x1000"));
    CHECK(poolscope_gpu_configure(0, "alignment", "100") == -1 && strstr(poolscope_gpu_error(), "power of two"));
    CHECK(poolscope_gpu_configure(0, "speed", "1") == -1 && strstr(poolscope_gpu_error(), "memory_limit"));
    CHECK(poolscope_gpu_size(0, (void *)4096) == 0);
    CHECK(poolscope_gpu_device_count() == 1);
}

static void settings_change_while_it_runs(void) {
    CHECK(poolscope_gpu_configure(0, "memory_limit", "16777216") == 0);
    CHECK(poolscope_gpu_alloc(0, 32 * MIB, NULL) == NULL);
    CHECK(poolscope_gpu_configure(0, "memory_limit", "0") == 0);
    void *block = poolscope_gpu_alloc(0, 32 * MIB, NULL);
    CHECK(block && poolscope_gpu_free(0, block, NULL) == 0);
    CHECK(poolscope_gpu_preallocate(0, 4096, 1000, NULL) == 0 && counter("current_usage") == 0);
}

static void a_graph_has_memory_of_its_own(void) {
    CHECK(poolscope_gpu_begin_capture(0, NULL, 7) == 0);
    CHECK(poolscope_gpu_begin_capture(0, NULL, 7) == -1 && strstr(poolscope_gpu_error(), "captured already"));
    void *inside = poolscope_gpu_alloc(0, 4 * MIB, NULL);
    CHECK(inside && poolscope_gpu_free(0, inside, NULL) == 0);
    CHECK(poolscope_gpu_end_capture(0, 7) == 0);
    void *outside = poolscope_gpu_alloc(0, 4 * MIB, NULL);
    CHECK(outside && outside != inside && poolscope_gpu_free(0, outside, NULL) == 0);
    CHECK(poolscope_gpu_end_graph(0, 7, NULL) == 0);
}

static void frameworks_get_their_blocks(void) {
    poolscope_torch_init(1);
    void *block = poolscope_torch_alloc(MIB, 0, NULL);
    size_t size = 0;
    CHECK(block && poolscope_torch_base_alloc(block, &size) == block && size >= MIB);
    poolscope_torch_record_stream(block, (void *)1);
    poolscope_torch_free(block, MIB, 0, NULL);
    poolscope_torch_memory_fraction(0.01, 0);
    void *cupy = poolscope_cupy_malloc(NULL, 64 * MIB, 0);
    CHECK(cupy == NULL);
    poolscope_torch_memory_fraction(1.0, 0);
    cupy = poolscope_cupy_malloc(NULL, 64 * MIB, 0);
    CHECK(cupy);
    poolscope_cupy_free(NULL, cupy, 0);
    poolscope_torch_pool_id pool = {1, 0};
    poolscope_torch_begin_pool(0, pool, NULL);
    block = poolscope_torch_alloc(MIB, 0, NULL);
    CHECK(block);
    poolscope_torch_end_pool(0, pool);
    poolscope_torch_free(block, MIB, 0, NULL);
    poolscope_torch_release_pool(0, pool);
    poolscope_torch_reset();
    CHECK(counter("current_usage") == 0);
}

int main(void) {
    blocks_are_aligned_and_counted();
    no_block_is_freed_twice();
    refusals_have_words();
    settings_change_while_it_runs();
    a_graph_has_memory_of_its_own();
    frameworks_get_their_blocks();
    return 0;
}
