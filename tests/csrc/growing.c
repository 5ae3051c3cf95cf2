/* A buffer that grows by 4 KiB ten thousand times, shrinks and is freed; it waits for a line before each.
 *
 * usage: growing BYTES: what it has at first */
#include <stdio.h>
#include <stdlib.h>

static void told(const char *what, size_t bytes) {
    printf("%s %zu\n", what, bytes);
    fflush(stdout);
    if (getchar() == EOF) exit(1);
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    /* So many calls that they are no longer counted one by one. */
    for (int i = 0; i < 4000; i++) free(malloc(100 + i % 400));
    size_t bytes = atol(argv[1]);
    char *buffer = malloc(bytes);
    told("begun", bytes);
    for (int step = 0; step < 10000; step++) {
        bytes += 4096;
        buffer = realloc(buffer, bytes);
    }
    told("grown", bytes);
    buffer = realloc(buffer, bytes -= bytes / 4);
    told("shrunk", bytes);
    free(buffer);
    told("freed", 0);
    return 0;
}
