/* Peers, and background work that the program calls for. With POOLSCOPE_GPU_DEVICE=sim:256M:2 and
 * POOLSCOPE_GPU_BACKGROUND_INTERVAL_MS=0. */
#include "poolscope_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

#define MIB ((size_t)1 << 20)
#define BLOCKS 64

static long long counter(int device, const char *name) {
    char text[4096], wanted[64];
    size_t length = poolscope_gpu_stats_json(device, text, sizeof text);
    CHECK(length > 0 && length < sizeof text);
    snprintf(wanted, sizeof wanted, "\"%s\":", name);
    const char *at = strstr(text, wanted);
    return at ? atoll(at + strlen(wanted)) : -1;
}

static void peers_are_let_in_one_way(void) {
    CHECK(poolscope_gpu_device_count() == 2);
    void *block = poolscope_gpu_alloc(0, 8 * MIB, NULL);
    CHECK(block && poolscope_gpu_alloc(1, 8 * MIB, NULL));
    long long of_first = counter(0, "driver_calls"), of_second = counter(1, "driver_calls");
    CHECK(poolscope_gpu_enable_peer(0, 1) == 0);
    /* What the first device has was mapped for the second one; of that one nothing was asked. */
    CHECK(counter(0, "driver_calls") > of_first && counter(1, "driver_calls") == of_second);
    CHECK(poolscope_gpu_enable_peer(0, 0) == -1 && strstr(poolscope_gpu_error(), "peer"));
    CHECK(poolscope_gpu_enable_peer(0, 2) == -1 && strstr(poolscope_gpu_error(), "no device 2"));
    CHECK(poolscope_gpu_free(0, block, NULL) == 0);
    CHECK(poolscope_gpu_free(1, block, NULL) == -1);
}

static void devices_of_a_framework_let_each_other_in(void) {
    void *of_first = poolscope_torch_alloc(8 * MIB, 0, NULL);
    long long before = counter(0, "driver_calls");
    void *of_second = poolscope_torch_alloc(8 * MIB, 1, NULL);
    /* What the first device has was mapped for the second one, too. */
    CHECK(of_first && of_second && counter(0, "driver_calls") > before);
    before = counter(0, "driver_calls");
    poolscope_torch_free(of_second, 8 * MIB, 1, NULL);
    of_second = poolscope_torch_alloc(8 * MIB, 1, NULL);
    CHECK(of_second && counter(0, "driver_calls") == before); /* Once is enough. */
    poolscope_torch_free(of_first, 8 * MIB, 0, NULL);
    poolscope_torch_free(of_second, 8 * MIB, 1, NULL);
}

static void a_round_gives_back_what_is_idle_and_merges_what_is_in_pieces(void) {
    void *blocks[BLOCKS], *streams[2] = {NULL, (void *)2};
    /* Merging is due where pieces are too small for the largest request of the last second. */
    CHECK(poolscope_gpu_configure(0, "defrag_threshold", "0") == 0 && poolscope_gpu_configure(0, "defrag_interval_ms", "1") == 0);
    void *large = poolscope_gpu_alloc(0, 32 * MIB, NULL);
    CHECK(large && poolscope_gpu_free(0, large, NULL) == 0 && poolscope_gpu_release_all(0) > 0);
    for (int at = 0; at < BLOCKS; at++) blocks[at] = poolscope_gpu_alloc(0, 3 * MIB, streams[at % 2]);
    for (int at = 0; at < BLOCKS; at++) CHECK(poolscope_gpu_free(0, blocks[at], streams[at % 2]) == 0);
    long long before = counter(0, "largest_hole"), all = counter(0, "free");
    CHECK(before < all / 2 && all >= (long long)(BLOCKS * 3 * MIB));
    usleep(50000);
    CHECK(counter(0, "largest_hole") == before); /* Nobody looked meanwhile. */
    for (int round = 0; round < 100 && counter(0, "largest_hole") < all; round++) {
        usleep(2000);
        CHECK(poolscope_gpu_maintain(0) == 0);
    }
    printf("largest hole: %lld, then %lld of %lld\n", before, counter(0, "largest_hole"), all);
    CHECK(counter(0, "largest_hole") == all);
    CHECK(poolscope_gpu_configure(0, "idle_release_ms", "0") == 0);
    for (int round = 0; round < 1000 && counter(0, "held") > 0; round++) {
        usleep(2000);
        CHECK(poolscope_gpu_maintain(0) == 0);
    }
    CHECK(counter(0, "held") == 0);
    CHECK(poolscope_gpu_maintain(7) == -1);
}

int main(void) {
    devices_of_a_framework_let_each_other_in();
    peers_are_let_in_one_way();
    a_round_gives_back_what_is_idle_and_merges_what_is_in_pieces();
    return failed_checks;
}
