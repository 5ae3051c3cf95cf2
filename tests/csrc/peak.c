/* Holds 1 MiB for good, 8 MiB for a moment, and 2 MiB from then on. Waits for a line before it ends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KIB = 1024 };

static void *blocks[8 * KIB];
static void *forgotten;

__attribute__((noinline)) static void hold_for_good(void) {
    for (int i = 0; i < KIB; i++) {
        char *block = malloc(KIB);
        memset(block, 1, KIB);
        *(void **)block = forgotten;
        forgotten = block;
    }
}

__attribute__((noinline)) static void hold_for_a_moment(void) {
    for (int i = 0; i < 8 * KIB; i++) {
        blocks[i] = malloc(KIB);
        memset(blocks[i], 2, KIB);
    }
}

__attribute__((noinline)) static void hold_later(void) {
    for (int i = 0; i < 2 * KIB; i++) {
        blocks[i] = malloc(KIB);
        memset(blocks[i], 3, KIB);
    }
}

int main(void) {
    hold_for_good();
    hold_for_a_moment();
    for (int i = 0; i < 8 * KIB; i++) {
        free(blocks[i]);
    }
    hold_later();
    puts("past the peak");
    fflush(stdout);
    char line[16];
    if (fgets(line, sizeof line, stdin) == NULL) {
        return 1;
    }
    for (int i = 0; i < 2 * KIB; i++) {
        free(blocks[i]);
    }
    return 0;
}
