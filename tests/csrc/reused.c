/* What becomes of freed memory beside the thread that allocated it; each prints a figure.
 * reused sizes: frees all blocks of one size before it goes on to the next; kilobytes that are resident beyond those of one size.
 * reused long: the same with one block of each size from 16 to 256 KiB, kilobytes beyond the largest.
 * reused few: keeps one block of each of many sizes, and has a long block now and then; kilobytes beyond the longest.
 * reused heirs: threads one after the other, each of which replaces the blocks that the one before has left; of a thousand
 * frees, those into slabs of the central cache.
 * reused swapped: two threads that replace each other's blocks of some kilobytes; of a thousand frees, those that went back to
 * the other thread. */
#include "poolscope.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZES = 40, LONGEST = 256 << 10, BYTES = 1 << 20, LIVE = 4000, REPLACED = 20000, HEIRS = 30, PLACES = 1000, TURNS = 500, SWAPPED = 100, FEW = 60, FEW_LONG = 200 << 10 };

static char *volatile blocks[BYTES / 16];
static char *volatile inherited[LIVE];
static char *places[PLACES];
static pthread_barrier_t turned;
static char json[1 << 17];

static uint64_t below(uint64_t *state, uint64_t n) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state % n;
}

static char *make(size_t size) {
    char *block = malloc(size);
    block[0] = 1;
    return block;
}

/* The sum of all numbers of this name that stand behind a word. */
static long statistic(const char *name, const char *behind) {
    char key[64];
    long sum = 0;
    snprintf(key, sizeof key, "\"%s\":", name);
    poolscope_stats_json(json, sizeof json);
    for (const char *at = strstr(json, behind); (at = strstr(at, key)) != NULL; at += strlen(key)) sum += atol(at + strlen(key));
    return sum;
}

static long resident(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%*d %ld", &pages) != 1) exit(1);
    fclose(file);
    return pages * 4;
}

static void one_size(size_t size) {
    int count = (int)(BYTES / size);
    for (int i = 0; i < count; i++) {
        blocks[i] = malloc(size);
        memset(blocks[i], 1, size);
    }
    for (int i = 0; i < count; i++) free(blocks[i]);
}

static void one_long(size_t size) {
    char *volatile block = malloc(size);
    memset(block, 1, size);
    free(block);
}

static void *replace(void *seed) {
    uint64_t state = (uintptr_t)seed + 1;
    for (int i = 0; i < REPLACED; i++) {
        uint64_t at = below(&state, LIVE);
        free(inherited[at]);
        inherited[at] = make(8 + below(&state, 993));
    }
    return NULL;
}

static void *swap(void *number) {
    uint64_t state = (uintptr_t)number + 1;
    for (uintptr_t turn = 0; turn < 2 * TURNS; turn++) {
        for (int i = 0; i < SWAPPED && turn % 2 == (uintptr_t)number; i++) {
            char **place = &places[below(&state, PLACES)];
            free(*place);
            *place = make(1100 + below(&state, 15000));
        }
        pthread_barrier_wait(&turned);
    }
    return NULL;
}

static void in_a_thread(void *(*work)(void *), uintptr_t seed) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, (void *)seed) != 0) exit(1);
    pthread_join(thread, NULL);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "sizes") == 0) {
        one_size(16);
        long before = resident();
        for (size_t size = 32; size <= SIZES * 16; size += 16) one_size(size);
        printf("%ld\n", resident() - before);
    } else if (strcmp(what, "long") == 0) {
        one_long(LONGEST);
        long before = resident();
        for (size_t size = 16 << 10; size <= LONGEST; size += size / 8) one_long(size);
        printf("%ld\n", resident() - before);
    } else if (strcmp(what, "few") == 0) {
        one_long(FEW_LONG);
        long before = resident();
        for (int i = 0; i < FEW; i++) {
            places[i] = make(16 + 16 * (size_t)i);
            if (i % 4 == 3) one_long(FEW_LONG - (size_t)i / 4 * 8192);
        }
        printf("%ld\n", resident() - before);
    } else if (strcmp(what, "heirs") == 0) {
        for (int i = 0; i < LIVE; i++) inherited[i] = make(8 + (size_t)i % 993);
        for (int i = 0; i < HEIRS; i++) in_a_thread(replace, (uintptr_t)i);
        /* Each class's frees, less those of threads. */
        long of_classes = statistic("frees", "\"classes\""), of_threads = 0;
        sscanf(strstr(strstr(json, "\"thread_caches\":{"), "\"frees\":") + 8, "%ld", &of_threads);
        printf("%ld\n", (of_classes - of_threads) * 1000 / (HEIRS * REPLACED));
    } else if (strcmp(what, "swapped") == 0) {
        pthread_t threads[2];
        pthread_barrier_init(&turned, NULL, 2);
        for (uintptr_t i = 0; i < 2; i++) pthread_create(&threads[i], NULL, swap, (void *)i);
        for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
        printf("%ld\n", statistic("blocks", "transfer") * 1000 / (2 * TURNS * SWAPPED));
    } else {
        return 2;
    }
    return 0;
}
