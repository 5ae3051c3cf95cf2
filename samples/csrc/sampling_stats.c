/* Four workloads whose expected number of samples is known, for tests/tests/sampling.rs.
 *
 * Reads the number of a workload and a number of MiB per line of standard input, runs it, and answers with `DONE EXPECTED`:
 * the sum, over all blocks that it allocated, of the probability that a block is sampled, p = 1 - exp(-c / T), where
 * c is the size that the pool rounds the block up to (a multiple of 16 up to 1024) and T the mean distance
 * between samples, given in bytes as the program's argument.
 *
 *   0  one block of 64 bytes at a time
 *   1  random sizes from 1 to 1000 bytes, 4096 live
 *   2  one block of 1 to 16 bytes at a time
 *   3  random sizes from 900 to 1000 bytes, 4096 live
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t seed = 88172645463325252u;

static uint64_t draw(uint64_t below) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

/* Blocks of each class, in steps of 16. */
static uint64_t blocks[65];

/* `volatile` keeps the compiler from dropping a malloc whose block is only freed. */
static char *volatile live[4096];

static uint64_t one(size_t slot, size_t size) {
    uint64_t class = (size + 15) / 16;
    free(live[slot]);
    live[slot] = malloc(size);
    live[slot][0] = 1;
    blocks[class]++;
    return class * 16;
}

static void run(int workload, uint64_t bytes) {
    uint64_t done = 0;
    while (done < bytes) {
        switch (workload) {
        case 0: done += one(0, 64); break;
        case 1: done += one(draw(4096), 1 + draw(1000)); break;
        case 2: done += one(0, 1 + draw(16)); break;
        default: done += one(draw(4096), 900 + draw(101)); break;
        }
    }
    for (int i = 0; i < 4096; i++) {
        free(live[i]);
        live[i] = 0;
    }
}

int main(int argc, char **argv) {
    double period = argc > 1 ? atof(argv[1]) : 524288.0;
    /* Buffers of the program's own: stdio allocates nothing between two answers. */
    static char in[4096], out[4096];
    setvbuf(stdin, in, _IOFBF, sizeof in);
    setvbuf(stdout, out, _IOLBF, sizeof out);
    printf("READY\n");
    int workload;
    unsigned long mib;
    while (scanf("%d %lu", &workload, &mib) == 2) {
        for (int i = 0; i < 65; i++) blocks[i] = 0;
        run(workload, (uint64_t)mib << 20);
        double expected = 0;
        for (int i = 0; i < 65; i++) expected += (double)blocks[i] * -expm1(-16.0 * i / period);
        printf("DONE %.3f\n", expected);
    }
    return 0;
}
