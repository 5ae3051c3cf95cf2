/* Allocates so many blocks a second, and keeps them, whatever else the machine does. Prints "up" when it has begun.
 *
 * usage: slowly BYTES BLOCKS_A_SECOND */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    long bytes = atol(argv[1]), rate = atol(argv[2]), made = 0;
    const struct timespec pause = {0, 1000000000 / rate};
    double start = now();
    puts("up");
    fflush(stdout);
    for (;;) {
        for (long due = (now() - start) * rate; made < due; made++) {
            static void *volatile last;
            void **block = malloc(bytes);
            *block = last;
            last = block;
        }
        nanosleep(&pause, NULL);
    }
}
