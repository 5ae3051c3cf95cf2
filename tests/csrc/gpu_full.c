/* Fills a device from two functions, and says what the pool says of it. */

#include "poolscope_gpu.h"

#include <stdio.h>

#define NOINLINE __attribute__((noinline))

NOINLINE static void load_weights(void) {
    for (int block = 0; block < 6; block++) {
        poolscope_torch_alloc(100 << 20, 0, NULL);
    }
}

NOINLINE static int keep_activations(void) {
    return poolscope_gpu_alloc(0, 300 << 20, NULL) != NULL;
}

int main(void) {
    load_weights();
    if (!keep_activations() || poolscope_gpu_alloc(0, 500 << 20, NULL)) {
        fprintf(stderr, "the device should have 1 GiB\n");
        return 1;
    }
    puts(poolscope_gpu_error());
    return 0;
}
