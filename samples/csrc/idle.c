// Programs that have gone idle, for tests of the scavenger. Usage: idle MODE; prints READY when it sleeps.
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t state = 88172645463325252u;

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

// 16 B to 64 KiB, each power of two as often as any other.
static size_t size(void) {
    uint64_t low = 16u << (next() >> 32) % 12;
    return low + (next() >> 16) % low;
}

static void fill_and_free(size_t total) {
    size_t capacity = 1 << 18, count = 0;
    char **blocks = malloc(capacity * sizeof *blocks);
    for (size_t sum = 0; sum < total && count < capacity; count++) {
        size_t bytes = size();
        blocks[count] = malloc(bytes);
        memset(blocks[count], 1, bytes);
        sum += bytes;
    }
    printf("PEAK\n");
    fflush(stdout);
    getchar();
    for (size_t i = 0; i < count; i++) free(blocks[i]);
    free(blocks);
}

static pthread_barrier_t barrier;

// Leaves a full cache behind after so many rounds, and sleeps with it.
static void *hoard(void *rounds) {
    free(malloc(8192));
    for (intptr_t round = 0; round < (intptr_t)rounds; round++) {
        char *blocks[400];
        for (int i = 0; i < 400; i++) memset(blocks[i] = malloc(8192), 1, 8192);
        for (int i = 0; i < 400; i++) free(blocks[i]);
    }
    pthread_barrier_wait(&barrier);
    pause();
    return NULL;
}

static void *work(void *unused) {
    for (int i = 0; i < 50; i++) {
        char *block = malloc(100 + i * 300);
        memset(block, 1, 100 + i * 300);
        free(block);
    }
    return unused;
}

static void ready(void) {
    printf("READY\n");
    fflush(stdout);
}

static void on_signal(int number) {
    (void)number;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "freed")) {
        fill_and_free((size_t)512 << 20);
        ready();
        pause();
    } else if (!strcmp(mode, "freed-small")) {
        static char *blocks[16000];
        for (int i = 0; i < 16000; i++) memset(blocks[i] = malloc(4096), 1, 4096);
        printf("PEAK\n");
        fflush(stdout);
        getchar();
        for (int i = 0; i < 16000; i++) free(blocks[i]);
        ready();
        pause();
    } else if (!strcmp(mode, "freed-then-fork")) {
        fill_and_free((size_t)64 << 20);
        if (fork() == 0) {
            fill_and_free((size_t)512 << 20);
            ready();
        }
        pause();
    } else if (!strcmp(mode, "threads") || !strcmp(mode, "empty-threads")) {
        intptr_t rounds = !strcmp(mode, "threads") ? 3 : 0;
        signal(SIGUSR1, on_signal);
        pthread_barrier_init(&barrier, NULL, 33);
        pthread_t thread;
        for (int i = 0; i < 32; i++) pthread_create(&thread, NULL, hoard, (void *)rounds);
        pthread_barrier_wait(&barrier);
        ready();
        pause();
    } else if (!strcmp(mode, "short-threads")) {
        for (int round = 0; round < 2; round++) {
            for (int i = 0; i < 1000; i++) {
                pthread_t threads[10];
                for (int t = 0; t < 10; t++) pthread_create(&threads[t], NULL, work, NULL);
                for (int t = 0; t < 10; t++) pthread_join(threads[t], NULL);
            }
            malloc_trim(0);
            printf("ROUND\n");
            fflush(stdout);
            getchar();
        }
        ready();
    } else {
        return 2;
    }
    return 0;
}
