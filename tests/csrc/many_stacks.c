/* Allocates once from each of 2^DEPTH call paths, and keeps the blocks: many_stacks DEPTH. Then waits for a line. */
#include <stdio.h>
#include <stdlib.h>

static void **kept;
static size_t count;

#define KEEP __asm__ volatile("" ::: "memory")

__attribute__((noinline)) static void zero(unsigned path, int left);
__attribute__((noinline)) static void one(unsigned path, int left);

__attribute__((always_inline)) static inline void go_on(unsigned path, int left) {
    if (left == 0) {
        kept[count++] = malloc(64);
    } else if (path & 1) {
        one(path >> 1, left - 1);
    } else {
        zero(path >> 1, left - 1);
    }
    KEEP;
}

static void zero(unsigned path, int left) {
    go_on(path, left);
    KEEP;
}

static void one(unsigned path, int left) {
    go_on(path, left);
    KEEP;
}

int main(int argc, char **argv) {
    int depth = argc > 1 ? atoi(argv[1]) : 20;
    kept = calloc((size_t)1 << depth, sizeof *kept);
    for (unsigned path = 0; path < 1u << depth; path++) {
        go_on(path, depth);
    }
    printf("ready %zu\n", count);
    fflush(stdout);
    return getchar() == EOF;
}
