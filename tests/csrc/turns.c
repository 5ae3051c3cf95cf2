// turns SIZE: makes and frees a thousand blocks of SIZE bytes in turns. turns of-all-sizes: replaces random ones of a
// thousand blocks of 4 bytes to 32 KiB. turns of-growing-sizes: makes and frees up to 1600 blocks of one size, then of
// twice that size, up to 4 KiB, and again. turns in-waves: frees most of 6000 blocks of up to 16 KiB at random, and makes as
// many again. Says how many page faults each block of the second half took, by the kernel's
// count.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { BLOCKS = 1000, TURNS = 100, MOST = 1600, WAVES = 60, WAVE = 6000 };

static char *volatile blocks[WAVE];

static long faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

static void make(int i, size_t size) {
    blocks[i] = malloc(size);
    blocks[i][0] = 1;
}

static long turns(size_t size) {
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < BLOCKS; i++) make(i, size);
        for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    }
    return BLOCKS * TURNS;
}

static uint64_t below(uint64_t n) {
    static uint64_t state = 0x9E3779B97F4A7C15;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % n;
}

static long of_all_sizes(void) {
    for (long i = 0; i < 1000000; i++) {
        int victim = (int)below(BLOCKS);
        free(blocks[victim]);
        // Each doubling from 4 bytes to 32 KiB as often as the others.
        size_t octave = (size_t)4 << below(13);
        make(victim, octave + below(octave));
    }
    return 1000000;
}

static long of_growing_sizes(void) {
    long made = 0;
    for (int round = 0; round < 40; round++)
        for (size_t size = 8; size <= 4096; size *= 2)
            for (int count = 25; count <= MOST; count *= 4) {
                for (int i = 0; i < count; i++) make(i, size);
                for (int i = 0; i < count; i++) free(blocks[i]);
                made += count;
            }
    return made;
}

static long in_waves(void) {
    long made = 0;
    for (int wave = 0; wave < WAVES; wave++) {
        for (int i = 0; i < WAVE; i++) {
            if (blocks[i] != NULL) continue;
            make(i, 1100 + below(15000));
            made++;
        }
        for (int i = 0; i < WAVE; i++) {
            if (below(100) >= 85) continue;
            free(blocks[i]);
            blocks[i] = NULL;
        }
    }
    return made;
}

static long run(const char *what) {
    if (strcmp(what, "in-waves") == 0) return in_waves();
    if (strcmp(what, "of-all-sizes") == 0) return of_all_sizes();
    if (strcmp(what, "of-growing-sizes") == 0) return of_growing_sizes();
    return turns(strtoul(what, NULL, 10));
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "16384";
    run(what);
    long before = faults(), made = run(what);
    printf("%.4f\n", (double)(faults() - before) / (double)made);
}
