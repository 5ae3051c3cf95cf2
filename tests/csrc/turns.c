// turns SIZE: makes and frees a thousand blocks of SIZE bytes in turns, and says how many page faults each block of the
// second half took, by the kernel's count.
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { BLOCKS = 1000, TURNS = 100 };

static long faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

static void turns(size_t size) {
    static char *volatile blocks[BLOCKS];
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < BLOCKS; i++) {
            blocks[i] = malloc(size);
            blocks[i][0] = 1;
        }
        for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    }
}

int main(int argc, char **argv) {
    size_t size = argc > 1 ? strtoul(argv[1], NULL, 10) : 16384;
    turns(size);
    long before = faults();
    turns(size);
    printf("%.4f\n", (double)(faults() - before) / (BLOCKS * TURNS));
}
