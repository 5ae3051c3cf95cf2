/* What a hardened device pool refuses (POOLSCOPE_GPU_HARDENED=1), on the simulated device. */
#include "poolscope_gpu.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "check.h"

#define ROUNDS 2000
#define MIB ((size_t)1 << 20)

static pthread_barrier_t barrier;
static void *block;
static int freed[2];

static int says(const char *words) {
    const char *error = poolscope_gpu_error();
    return error && strstr(error, words) != NULL;
}

static void *frees(void *counter) {
    for (int round = 0; round < ROUNDS; round++) {
        if (counter == freed) block = poolscope_gpu_alloc(0, 4096, NULL);
        pthread_barrier_wait(&barrier);
        *(int *)counter += poolscope_gpu_free(0, block, NULL) == 0;
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(void) {
    char value[16];
    CHECK(poolscope_gpu_get(0, "hardened", value, sizeof value) == 1 && strcmp(value, "1") == 0);
    CHECK(poolscope_gpu_configure(0, "hardened", "0") == -1 && says("hardened is decided when the pool is made"));
    for (size_t size = 1; size <= 2 * MIB; size *= 2) {
        void *one = poolscope_gpu_alloc(0, size, NULL);
        CHECK(one && poolscope_gpu_free(0, one, (void *)(uintptr_t)0x12345678) == -1 && says("is gone or never was"));
        CHECK(poolscope_gpu_size(0, one) >= size && poolscope_gpu_free(0, one, NULL) == 0);
        CHECK(poolscope_gpu_free(0, one, NULL) == -1 && says("double free of") && says("waits in quarantine"));
        void *next = poolscope_gpu_alloc(0, size, NULL);
        CHECK(next && next != one && poolscope_gpu_free(0, next, NULL) == 0);
    }
    pthread_t thread;
    pthread_barrier_init(&barrier, NULL, 2);
    CHECK(pthread_create(&thread, NULL, frees, &freed[1]) == 0);
    frees(&freed[0]);
    pthread_join(thread, NULL);
    CHECK(freed[0] + freed[1] == ROUNDS);
    CHECK(poolscope_gpu_release_all(0) > 0);
    char stats[4096];
    CHECK(poolscope_gpu_stats_json(0, stats, sizeof stats) > 0);
    CHECK(strstr(stats, "\"current_usage\":0,") && strstr(stats, "\"held\":0,"));
    return failed_checks;
}
