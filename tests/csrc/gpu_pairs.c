/* Pairs of allocation and free of device memory, one block at a time, for callgrind to count (gpu_api.rs).
 *
 * usage: gpu_pairs PAIRS SIZE
 * A hook comes before, sees a block, and goes. */
#include <stdlib.h>

#include "poolscope_gpu.h"

static void sees(const poolscope_gpu_event *event, void *context) { *(size_t *)context += event->size; }

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    size_t size = (size_t)atol(argv[2]), seen = 0;
    uint64_t hook = poolscope_gpu_add_hook(sees, &seen);
    if (poolscope_gpu_free(0, poolscope_gpu_alloc(0, size, NULL), NULL) != 0) return 1;
    if (poolscope_gpu_remove_hook(hook) != 0 || seen < 4 * size) return 1;
    for (long pair = atol(argv[1]); pair > 0; pair--) {
        if (poolscope_gpu_free(0, poolscope_gpu_alloc(0, size, NULL), NULL) != 0) return 1;
    }
    return 0;
}
