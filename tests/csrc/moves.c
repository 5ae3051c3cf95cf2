/* Large blocks that grow in each other's way, so that realloc moves them. Prints how many mappings the process has, while the
   blocks live, after they are freed, and when free memory was given back, and the most memory that it had. Arguments: blocks, rounds of growing each, and whether a fourth of the blocks is made
   of several mappings by what the program says of a part of it. */
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "check.h"

#define MIB ((size_t)1 << 20)

static unsigned mappings(void) {
    static char buffer[1 << 16];
    unsigned lines = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    size_t n;
    CHECK(maps != NULL);
    while ((n = fread(buffer, 1, sizeof buffer, maps)) > 0)
        for (size_t i = 0; i < n; i++) lines += buffer[i] == '\n';
    fclose(maps);
    return lines;
}

struct block {
    uint64_t *words;
    size_t bytes;
};

/* A word at the start of each 256 KiB, and the last one. */
static void write_marks(struct block *b, uint64_t salt, size_t from) {
    for (size_t at = from / (256 * 1024) * (256 * 1024); at < b->bytes; at += 256 * 1024) b->words[at / 8] = salt ^ at;
    b->words[b->bytes / 8 - 1] = salt;
}

static void check_marks(const struct block *b, uint64_t salt, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 256 * 1024) CHECK(b->words[at / 8] == (salt ^ at));
    CHECK(b->words[bytes / 8 - 1] == salt);
}

int main(int argc, char **argv) {
    size_t blocks = argc > 1 ? strtoul(argv[1], NULL, 10) : 100;
    size_t rounds = argc > 2 ? strtoul(argv[2], NULL, 10) : 10;
    int in_parts = argc > 3;
    /* Of each block a few pages are touched, and no more memory is there for. */
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    struct block *all = calloc(blocks, sizeof *all);
    unsigned before = mappings(), most = before;
    for (size_t i = 0; i < blocks; i++) {
        all[i].bytes = 2 * MIB;
        all[i].words = malloc(all[i].bytes);
        CHECK(all[i].words != NULL);
        write_marks(&all[i], i + 1, 0);
    }
    for (size_t round = 0; round < rounds; round++) {
        for (size_t i = 0; i < blocks; i++) {
            struct block *b = &all[i];
            if (in_parts && i % 4 == 0) {
                char *part = (char *)(((uintptr_t)b->words + MIB) & ~(uintptr_t)4095);
                CHECK(madvise(part, 256 * 1024, MADV_DONTDUMP) == 0);
            }
            size_t more = b->bytes + (1 + (i * 7 + round) % 5) * 512 * 1024;
            uint64_t *words = realloc(b->words, more);
            CHECK(words != NULL);
            b->words = words;
            check_marks(b, i + 1, b->bytes);
            size_t from = b->bytes;
            b->bytes = more;
            write_marks(b, i + 1, from);
            if ((i + round) % 11 == 0) {
                free(b->words);
                b->bytes = 2 * MIB;
                b->words = malloc(b->bytes);
                write_marks(b, i + 1, 0);
            }
            if ((i + round) % 7 == 0 && b->bytes > 3 * MIB) {
                check_marks(b, i + 1, b->bytes);
                b->bytes = 3 * MIB;
                b->words = realloc(b->words, b->bytes);
                b->words[b->bytes / 8 - 1] = i + 1;
            }
        }
        unsigned now = mappings();
        if (now > most) most = now;
    }
    for (size_t i = 0; i < blocks; i++) {
        check_marks(&all[i], i + 1, all[i].bytes);
        free(all[i].words);
    }
    free(all);
    unsigned after = mappings();
    malloc_trim(0);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("before %u, most %u, after %u, trimmed %u, peak %ld KiB\n", before, most, after, mappings(), usage.ru_maxrss);
    return failed_checks;
}
