/* Holds device memory by every way that there is, from a function for each, and waits until its standard input ends. */

#include "poolscope_gpu.h"

#include <stdio.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static void *held[3];

NOINLINE static void hold_by_torch(void) {
    held[0] = poolscope_torch_alloc(3000000, 0, NULL);
}

NOINLINE static void hold_by_cupy(void) {
    held[1] = poolscope_cupy_malloc(NULL, 400000, 0);
}

NOINLINE static void hold_by_c(void) {
    held[2] = poolscope_gpu_alloc(0, 50000, NULL);
}

int main(void) {
    hold_by_torch();
    hold_by_cupy();
    hold_by_c();
    if (!held[0] || !held[1] || !held[2]) {
        fprintf(stderr, "%s\n", poolscope_gpu_error());
        return 1;
    }
    pid_t child = fork();
    if (child == 0) {
        /* A child has no device memory, and ends without a word. */
        poolscope_gpu_free(0, held[2], NULL);
        return 0;
    }
    printf("gpu_holders: pid %d, child %d\n", (int)getpid(), (int)child);
    fflush(stdout);
    while (getchar() != EOF) {
    }
    poolscope_torch_free(held[0], 3000000, 0, NULL);
    return 0;
}
