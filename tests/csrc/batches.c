/* Batches of blocks of one size, freed in the order in which they came. At the end: how many blocks of the last batch
 * do not lie beside the one before, and how many lie above it.
 *
 * usage: batches BYTES BLOCKS BATCHES */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    long bytes = atol(argv[1]), blocks = atol(argv[2]), batches = atol(argv[3]);
    char **batch = malloc(blocks * sizeof *batch);
    for (long i = 0; i < batches; i++) {
        for (long j = 0; j < blocks; j++) *(batch[j] = malloc(bytes)) = 1;
        for (long j = 0; j < blocks; j++) free(batch[j]);
    }
    long jumps = 0, above = 0;
    for (long j = 1; j < blocks; j++) {
        long step = batch[j] - batch[j - 1];
        jumps += labs(step) > 2 * bytes;
        above += step > 0;
    }
    printf("%ld %ld\n", jumps, above);
    return 0;
}
