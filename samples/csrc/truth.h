/* What truth.c and truth_plugin.c share: a site's blocks, and how to tell what they are. */
#ifndef POOLSCOPE_TRUTH_H
#define POOLSCOPE_TRUTH_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define MIB ((size_t)1 << 20)
#define MIX_LEN 7

/* Block sizes and the share of the bytes that each gets, in percent. */
static const size_t mix_size[MIX_LEN] = {48, 200, 1000, 5000, 40000, 200000, 900000};
static const size_t mix_percent[MIX_LEN] = {5, 10, 15, 20, 20, 15, 15};

struct blocks {
    void **at;
    size_t len;
};

static inline size_t mix_count(size_t total, int i) { return total / 100 * mix_percent[i] / mix_size[i]; }

/* Room for the pointers comes from mmap: a site allocates its blocks and nothing else. */
static inline struct blocks blocks_room(size_t total) {
    struct blocks room = {0, 0};
    size_t count = 0;
    for (int i = 0; i < MIX_LEN; i++) count += mix_count(total, i);
    room.at = mmap(0, count * sizeof(void *), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room.at == MAP_FAILED) abort();
    return room;
}

/* Inlined into every site: each calls malloc itself. */
static inline __attribute__((always_inline)) void blocks_fill(struct blocks *blocks, size_t total) {
    for (int i = 0; i < MIX_LEN; i++) {
        size_t count = mix_count(total, i);
        for (size_t n = 0; n < count; n++) {
            char *block = malloc(mix_size[i]);
            if (!block) abort();
            block[0] = 1;
            blocks->at[blocks->len++] = block;
        }
    }
}

static inline void blocks_free(struct blocks *blocks) {
    for (size_t i = 0; i < blocks->len; i++) free(blocks->at[i]);
    blocks->len = 0;
}

static inline void blocks_tell(const char *site, size_t total, int held) {
    for (int i = 0; i < MIX_LEN; i++) {
        size_t count = mix_count(total, i);
        printf("TRUTH %s %zu %zu %zu\n", site, mix_size[i], count, held ? count : 0);
    }
}

#endif
