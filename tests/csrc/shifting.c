/* A program that goes from one size of blocks to others: blocks of `small` bytes of which one in `part` stays, then as many
   bytes of 400 bytes and more, of which random ones are replaced. Each block is filled, and looked at when it is freed.
   Prints the bytes in use and the resident bytes above those at the start. Arguments: small, part. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define BYTES ((size_t)48 << 20)
#define BLOCKS (BYTES / 32)

static unsigned char *blocks[2 * BLOCKS];
static uint32_t sizes[2 * BLOCKS];
static size_t count, in_use;
static uint64_t state = 0x9E3779B97F4A7C15;

static uint64_t below(uint64_t n) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % n;
}

static void add(size_t size) {
    unsigned char *p = malloc(size);
    CHECK(p != NULL);
    memset(p, (int)(size + (uintptr_t)p / 16), size);
    blocks[count] = p, sizes[count++] = (uint32_t)size;
    in_use += size;
}

static void end(size_t at) {
    unsigned char *p = blocks[at], byte = (unsigned char)(sizes[at] + (uintptr_t)p / 16);
    for (size_t i = 0; i < sizes[at]; i++) CHECK(p[i] == byte);
    free(p);
    in_use -= sizes[at];
    blocks[at] = blocks[--count], sizes[at] = sizes[count];
}

static size_t resident(void) {
    char line[128];
    size_t kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status != NULL);
    while (fgets(line, sizeof line, status)) sscanf(line, "RssAnon: %zu", &kib);
    fclose(status);
    return kib * 1024;
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    size_t small = (size_t)atol(argv[1]), part = (size_t)atol(argv[2]);
    memset(blocks, 1, sizeof blocks), memset(sizes, 1, sizeof sizes);
    size_t before = resident();
    while (in_use < BYTES) add(small);
    for (size_t left = count / part; count > left;) end(below(count));
    size_t larger = 0;
    while (in_use < BYTES) add(400 + below(1000)), larger++;
    for (size_t i = 0; i < larger; i++) {
        end(count - 1 - below(larger));
        add(400 + below(1000));
    }
    printf("%zu %zu\n", in_use, resident() - before);
    while (count > 0) end(below(count));
    return 0;
}
