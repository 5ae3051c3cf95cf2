/* Holds pinned memory of two devices, by name and because one device is full, and waits until its standard input ends.
 *
 * With POOLSCOPE_GPU_DEVICE=sim:64M:2. */
#include "poolscope_gpu.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

#define NOINLINE __attribute__((noinline))
#define MIB ((size_t)1 << 20)

NOINLINE static void *stage_batches(void) {
    return poolscope_gpu_pinned_alloc(0, 3 * MIB, NULL);
}

NOINLINE static void *spill_activations(void) {
    return poolscope_gpu_alloc(1, 24 * MIB, NULL);
}

int main(void) {
    unsigned char *staged = stage_batches();
    CHECK(staged && (uintptr_t)staged % 256 == 0);
    if (staged) {
        memset(staged, 7, 3 * MIB);
        CHECK(staged[0] == 7 && staged[3 * MIB - 1] == 7);
    }
    /* Small blocks come and go as the device's do, and belong to this pool alone. */
    void *small = poolscope_gpu_pinned_alloc(0, 1000, NULL);
    CHECK(small && poolscope_gpu_pinned_free(0, small, NULL) == 0);
    CHECK(poolscope_gpu_pinned_free(0, small, NULL) == -1 && poolscope_gpu_pinned_free(0, NULL, NULL) == 0);
    void *of_device = poolscope_gpu_alloc(0, 1000, NULL);
    CHECK(poolscope_gpu_pinned_free(0, of_device, NULL) == -1 && poolscope_gpu_free(0, of_device, NULL) == 0);
    CHECK(poolscope_gpu_pinned_alloc(2, 1000, NULL) == NULL && strstr(poolscope_gpu_error(), "2 devices are simulated"));

    CHECK(spill_activations());
    CHECK(spill_activations());
    CHECK(spill_activations() == NULL && strstr(poolscope_gpu_error(), "pinned_fallback"));
    CHECK(poolscope_gpu_configure(1, "pinned_fallback", "true") == 0);
    void *spilled = spill_activations();
    CHECK(spilled && poolscope_gpu_size(1, spilled) == 24 * MIB);
    CHECK(poolscope_gpu_configure(1, "pinned_fallback", "0") == 0 && spill_activations() == NULL);

    printf("gpu_pinned: pid %d\n", (int)getpid());
    fflush(stdout);
    while (getchar() != EOF) {
    }
    CHECK(poolscope_gpu_free(1, spilled, NULL) == 0 && poolscope_gpu_free(1, spilled, NULL) == -1);
    CHECK(poolscope_gpu_pinned_free(0, staged, NULL) == 0);
    return failed_checks;
}
