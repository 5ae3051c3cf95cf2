/* One thread that allocates and frees a large buffer again and again, and keeps large blocks of its own meanwhile.
 *
 * usage: hot_beside HOT KEPT: bytes of each; says how many bytes it keeps, and waits for a line */
#include <stdio.h>
#include <stdlib.h>

enum { KEPT = 41, LOOPS = 100000 };

static char *kept[KEPT];
static char *volatile used;

__attribute__((noinline)) static void use(size_t bytes) {
    for (int i = 0; i < LOOPS; i++) {
        char *buffer = malloc(bytes);
        used = buffer;
        free(buffer);
    }
}

__attribute__((noinline)) void keep(int i, size_t bytes) {
    kept[i] = malloc(bytes);
    used = kept[i];
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    size_t hot = strtoul(arguments[1], NULL, 10), bytes = strtoul(arguments[2], NULL, 10);
    for (int i = 0; i < KEPT; i++) {
        use(hot);
        keep(i, bytes);
    }
    printf("kept %zu\n", KEPT * bytes);
    fflush(stdout);
    getchar();
    return 0;
}
