/* Pairs of allocation and free of device memory, for callgrind to count (gpu_api.rs).
 *
 * usage: gpu_pairs PAIRS SIZE
 * One block at a time, after a hook has come, seen a block and gone; where SIZE is 0, 64 blocks of random lengths of 64
 * KiB to 1 MiB, of which the oldest makes room for the next. */
#include <stdlib.h>

#include "poolscope_gpu.h"

static void sees(const poolscope_gpu_event *event, void *context) { *(size_t *)context += event->size; }

static int random_lengths(long pairs) {
    static void *live[64];
    uint64_t random = 0x9e3779b97f4a7c15;
    for (long pair = 0; pair < pairs; pair++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        void **place = &live[pair % 64];
        if (*place && poolscope_gpu_free(0, *place, NULL) != 0) return 1;
        *place = poolscope_gpu_alloc(0, (65 << 10) + (random >> 11) % (959 << 10), NULL);
        if (!*place) return 1;
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    size_t size = (size_t)atol(argv[2]), seen = 0;
    if (size == 0) return random_lengths(atol(argv[1]));
    uint64_t hook = poolscope_gpu_add_hook(sees, &seen);
    if (poolscope_gpu_free(0, poolscope_gpu_alloc(0, size, NULL), NULL) != 0) return 1;
    if (poolscope_gpu_remove_hook(hook) != 0 || seen < 4 * size) return 1;
    for (long pair = atol(argv[1]); pair > 0; pair--) {
        if (poolscope_gpu_free(0, poolscope_gpu_alloc(0, size, NULL), NULL) != 0) return 1;
    }
    return 0;
}
