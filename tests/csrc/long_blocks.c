/* Replaces random ones of its blocks of 1 to 64 MiB, each doubling as likely as the others, with pauses, and keeps at most
   200 MiB. Small blocks come and go meanwhile. Prints the most bytes that it had, and the largest resident set, by the
   kernel's count. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "check.h"

#define MOST ((size_t)200 << 20)

static char *volatile blocks[1024];
static size_t sizes[1024];
static void *volatile small[2000];
static uint64_t state = 0x9E3779B97F4A7C15;

static uint64_t below(uint64_t n) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % n;
}

int main(void) {
    size_t in_use = 0, most = 0, count = 0;
    for (int turn = 0; turn < 250; turn++) {
        size_t octave = (size_t)1 << (20 + below(6)), size = octave + below(octave);
        while (count > 0 && (in_use + size > MOST || below(8) == 0)) {
            size_t victim = below(count);
            in_use -= sizes[victim];
            free(blocks[victim]);
            blocks[victim] = blocks[--count], sizes[victim] = sizes[count];
        }
        char *p = malloc(size);
        CHECK(p != NULL);
        for (size_t at = 0; at < size; at += 4096) p[at] = 1;
        blocks[count] = p, sizes[count++] = size;
        in_use += size;
        most = in_use > most ? in_use : most;
        for (int i = 0; i < 50; i++) {
            uint64_t victim = below(2000);
            free(small[victim]);
            small[victim] = malloc(16 + below(500));
        }
        nanosleep(&(struct timespec){.tv_nsec = 15000000}, NULL);
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("%zu %zu\n", most, (size_t)usage.ru_maxrss * 1024);
}
