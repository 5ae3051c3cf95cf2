/* Holds memory and waits until standard input ends, so that a test can look at where it lies.
 * Usage: placement MIB [BYTES]; MiB in blocks of BYTES (64 KiB if nothing is said), all touched. It prints the address of the
 * first and of the last block, then the pool's statistics as JSON. */
#include "poolscope.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static char json[1 << 17];

int main(int argc, char **argv) {
    CHECK(argc > 1);
    size_t total = strtoull(argv[1], NULL, 10) << 20, bytes = argc > 2 ? strtoull(argv[2], NULL, 10) : 64 << 10;
    char *first = NULL, *last = NULL;
    for (size_t sum = 0; sum < total; sum += bytes) {
        last = malloc(bytes);
        CHECK(last);
        memset(last, 1, bytes);
        if (!first) first = last;
    }
    printf("BLOCKS %p %p\n", (void *)first, (void *)last);
    CHECK(poolscope_stats_json(json, sizeof json) < sizeof json);
    printf("STATS %s\n", json);
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) {}
    return 0;
}
