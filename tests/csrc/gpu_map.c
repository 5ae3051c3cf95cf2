/* Holds two large blocks of device memory, from a function for each, says where they lie, "hold_weights 0x7f0000000000",
 * and waits until its standard input ends. */

#include "poolscope_gpu.h"

#include <stdio.h>

#define NOINLINE __attribute__((noinline))

NOINLINE static void *hold_weights(void) {
    return poolscope_gpu_alloc(0, 64 << 20, NULL);
}

NOINLINE static void *hold_activations(void) {
    return poolscope_gpu_alloc(0, 32 << 20, NULL);
}

int main(void) {
    void *weights = hold_weights(), *activations = hold_activations();
    if (!weights || !activations) {
        fprintf(stderr, "%s\n", poolscope_gpu_error());
        return 1;
    }
    printf("hold_weights %p\nhold_activations %p\n", weights, activations);
    fflush(stdout);
    /* The pool shows itself when it is used. */
    while (getchar() != EOF) poolscope_gpu_free(0, poolscope_gpu_alloc(0, 1 << 20, NULL), NULL);
    return 0;
}
