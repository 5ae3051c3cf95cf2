/* A small program with few samples: allocates ROUNDS times 64 blocks of a few sizes from 16 places, frees them all, prints
 * READY, and waits for its input to end.
 *
 * usage: few_samples ROUNDS */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLACE(n) \
    static __attribute__((noinline)) void *place_##n(size_t size) { \
        char *block = malloc(size + 16 * n); \
        memset(block, n, 16); \
        return block; \
    }
PLACE(0) PLACE(1) PLACE(2) PLACE(3) PLACE(4) PLACE(5) PLACE(6) PLACE(7)
PLACE(8) PLACE(9) PLACE(10) PLACE(11) PLACE(12) PLACE(13) PLACE(14) PLACE(15)

static void *(*const places[16])(size_t) = {place_0, place_1, place_2,  place_3,  place_4,  place_5,  place_6,  place_7,
                                            place_8, place_9, place_10, place_11, place_12, place_13, place_14, place_15};

int main(int argc, char **argv) {
    long rounds = argc > 1 ? strtol(argv[1], NULL, 10) : 100;
    void *blocks[64];
    for (long round = 0; round < rounds; round++) {
        for (int i = 0; i < 64; i++) blocks[i] = places[i % 16](64 << (i / 16));
        for (int i = 0; i < 64; i++) free(blocks[i]);
    }
    puts("READY");
    fflush(stdout);
    return getchar() == 'x';
}
