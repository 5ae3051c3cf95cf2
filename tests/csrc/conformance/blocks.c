// Blocks that are had: their alignment, their size, their contents.
//
// usage: blocks SCENARIO

#include "scenarios.h"

#define MIB ((size_t)1 << 20)

static void zero_sizes(void) {
    // Every function returns a block of its own, which can be freed.
    void *blocks[10] = {malloc(hidden(0)),
                        malloc(hidden(0)),
                        calloc(0, 8),
                        calloc(8, 0),
                        realloc(NULL, hidden(0)),
                        reallocarray(NULL, 0, 8),
                        aligned_alloc(64, hidden(0)),
                        memalign(64, hidden(0)),
                        valloc(hidden(0)),
                        NULL};
    CHECK(posix_memalign(&blocks[9], 64, hidden(0)) == 0);
    for (int i = 0; i < 10; i++) {
        CHECK(blocks[i] != NULL, "block %d", i);
        CHECK(is_aligned(blocks[i], 16), "block %d", i);
        for (int j = 0; j < i; j++) CHECK(blocks[i] != blocks[j], "blocks %d and %d", i, j);
    }
    for (int i = 0; i < 10; i++) free(blocks[i]);
    void *page = pvalloc(hidden(0));
    CHECK(page != NULL && is_aligned(page, 4096));
    free(page);
    free(NULL);
    CHECK(malloc_usable_size(NULL) == 0);
}

static void alignment_of_every_size(void) {
    for (size_t size = 0; size < 3 * MIB; size = next_size(size)) {
        void *blocks[4] = {malloc(size), calloc(1, size), realloc(NULL, size), realloc(malloc(24), size ? size : 1)};
        for (int i = 0; i < 4; i++) {
            CHECK(blocks[i] != NULL && is_aligned(blocks[i], 16), "block %d of %zu bytes at %p", i, size, blocks[i]);
        }
        for (int i = 0; i < 4; i++) free(blocks[i]);
    }
}

static void usable_sizes(void) {
    // Each block is filled to its last usable byte; none reaches into another.
    enum { KEPT = 64 };
    struct {
        void *block;
        size_t usable, tag;
    } kept[KEPT] = {0};
    size_t tag = 0;
    for (size_t size = 0; size < 2 * MIB; size = next_size(size), tag++) {
        size_t at = tag % KEPT;
        check_filled(kept[at].block, kept[at].tag, kept[at].usable, "of a block that lived on");
        free(kept[at].block);
        void *p = NULL;
        switch (tag % 4) {
        case 0: p = malloc(size); break;
        case 1: p = calloc(size, 1); break;
        case 2: p = realloc(malloc(size / 2), size ? size : 1); break;
        case 3: CHECK(posix_memalign(&p, (size_t)16 << tag / 4 % 10, size) == 0); break;
        }
        CHECK(p != NULL);
        size_t usable = malloc_usable_size(p);
        CHECK(usable >= size, "%zu usable bytes of %zu", usable, size);
        fill(p, tag, usable);
        kept[at].block = p, kept[at].usable = usable, kept[at].tag = tag;
    }
    for (size_t at = 0; at < KEPT; at++) {
        check_filled(kept[at].block, kept[at].tag, kept[at].usable, "at the end");
        free(kept[at].block);
    }
}

static void alignments(void) {
    for (size_t align = 8; align <= (size_t)1 << 30; align *= 2) {
        size_t sizes[] = {0, 1, align / 2 + 1, align, align + 1, 100, 5000, 70000, 300000};
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            void *blocks[4] = {NULL, aligned_alloc(align, sizes[i]), memalign(align, sizes[i]), malloc(sizes[i])};
            CHECK(posix_memalign(&blocks[0], align, sizes[i]) == 0, "alignment %zu, %zu bytes", align, sizes[i]);
            for (int j = 0; j < 3; j++) {
                CHECK(blocks[j] != NULL && is_aligned(blocks[j], align), "alignment %zu, %zu bytes: %p", align, sizes[i], blocks[j]);
            }
            for (int j = 0; j < 4; j++) {
                // The ends are touched: all of a gibibyte would be too much.
                size_t usable = malloc_usable_size(blocks[j]);
                CHECK(usable >= sizes[i], "alignment %zu, %zu bytes: %zu usable", align, sizes[i], usable);
                fill(blocks[j], j, usable < 100 ? usable : 100);
                if (usable > 100) ((char *)blocks[j])[usable - 1] = (char)j;
            }
            for (int j = 0; j < 4; j++) {
                size_t usable = malloc_usable_size(blocks[j]);
                check_filled(blocks[j], j, usable < 100 ? usable : 100, "of an aligned block");
                if (usable > 100) CHECK(((char *)blocks[j])[usable - 1] == j);
                free(blocks[j]);
            }
        }
    }
    for (size_t size = 0; size < 300000; size = next_size(size)) {
        void *v = valloc(size), *p = pvalloc(size);
        CHECK(v != NULL && is_aligned(v, 4096), "valloc(%zu)", size);
        CHECK(p != NULL && is_aligned(p, 4096), "pvalloc(%zu)", size);
        CHECK(malloc_usable_size(p) >= (size + 4095) / 4096 * 4096, "pvalloc(%zu)", size);
        free(v);
        free(p);
    }
    // memalign has always rounded an odd alignment up.
    void *odd = memalign(hidden((size_t)48), 100);
    CHECK(odd != NULL && is_aligned(odd, 64));
    free(odd);
}

static void calloc_after_dirt(void) {
    // What was freed full of ones comes back as zeros, at every size, also from a block that realloc made smaller or larger.
    for (size_t size = 1; size < 24 * MIB; size = size < MIB ? next_size(size) : size * 5 / 3) {
        enum { BLOCKS = 3 };
        void *blocks[BLOCKS];
        for (int i = 0; i < BLOCKS; i++) {
            size_t first = i == 1 ? size * 3 : i == 2 ? size / 3 + 1 : size;
            blocks[i] = malloc(first);
            CHECK(blocks[i] != NULL);
            memset(blocks[i], 0xff, malloc_usable_size(blocks[i]));
            if (i > 0) {
                blocks[i] = realloc(blocks[i], size);
                CHECK(blocks[i] != NULL);
                memset(blocks[i], 0xff, malloc_usable_size(blocks[i]));
            }
        }
        for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
        for (int i = 0; i < BLOCKS; i++) {
            unsigned char *p = i == 0 ? calloc(1, size) : i == 1 ? calloc(size, 1) : calloc((size + 7) / 8, 8);
            CHECK(p != NULL);
            CHECK(p[0] == 0 && memcmp(p, p + 1, size - 1) == 0, "calloc of %zu bytes", size);
            blocks[i] = p;
        }
        for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    }
    malloc_trim(0);
    for (int i = 0; i < 50; i++) {
        unsigned char *p = calloc(1, 3 * MIB);
        CHECK(p != NULL && p[0] == 0 && memcmp(p, p + 1, 3 * MIB - 1) == 0, "round %d after malloc_trim", i);
        memset(p, 0xff, 3 * MIB);
        p = realloc(p, i % 2 ? 2 * MIB : 5 * MIB);
        memset(p, 0xff, 2 * MIB);
        free(p);
    }
}

static void realloc_keeps_contents(void) {
    // Each size to the next, there and back; each to one far away; each of an aligned block.
    unsigned char *p = malloc(1);
    p[0] = byte_of(1, 0);
    size_t had = 1, size;
    for (size = 2; size < 3 * MIB; size = next_size(size)) {
        p = realloc(p, size);
        CHECK(p != NULL && is_aligned(p, 16));
        CHECK(p[had - 1] == byte_of(1, had - 1) && p[had / 2] == byte_of(1, had / 2), "from %zu to %zu bytes", had, size);
        for (size_t at = had; at < size; at++) p[at] = byte_of(1, at);
        had = size;
    }
    check_filled(p, 1, had, "after growing");
    for (size = had; size > 1; size -= size > 3000 ? size / 50 : 7 < size ? 7 : 1) {
        p = realloc(p, size);
        CHECK(p != NULL && p[size - 1] == byte_of(1, size - 1) && p[0] == byte_of(1, 0), "to %zu bytes", size);
    }
    free(p);
    static const size_t far[] = {1, 16, 17, 100, 1000, 1024, 1025, 4096, 30000, 65536, 200000, 262144, 262145, 500000, 1 << 20,
                                 (2 << 20) - 1, 2 << 20, 5 << 20, 20 << 20};
    enum { FAR = sizeof far / sizeof far[0] };
    for (size_t i = 0; i < FAR; i++) {
        for (size_t j = 0; j < FAR; j++) {
            for (size_t align = 16; align <= 1 << 17; align *= 1 << 13) {
                p = align == 16 ? malloc(far[i]) : memalign(align, far[i]);
                CHECK(p != NULL);
                size_t common = far[i] < far[j] ? far[i] : far[j];
                size_t head = common < 5000 ? common : 5000;
                fill(p, i, head);
                p[common - 1] = (unsigned char)j;
                p = realloc(p, far[j]);
                CHECK(p != NULL && is_aligned(p, 16));
                CHECK(p[common - 1] == (unsigned char)j, "from %zu to %zu bytes, alignment %zu", far[i], far[j], align);
                check_filled(p, i, head - 1, "after a realloc");
                free(p);
            }
        }
    }
}

static void calloc_among_dirt(void) {
    // New blocks, blocks that were used, and slabs that were used for other sizes, in any order.
    enum { BLOCKS = 48, ROUNDS = 6000 };
    static unsigned char *blocks[BLOCKS];
    uint64_t state = 7;
    for (int round = 0; round < ROUNDS; round++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        int i = (state >> 33) % BLOCKS;
        free(blocks[i]);
        size_t size = (size_t)1024 << (state >> 40) % 9;
        size += (state >> 48) % size;
        int zeroed = state >> 63;
        unsigned char *p = zeroed ? calloc(1, size) : malloc(size);
        CHECK(p != NULL);
        if (zeroed) CHECK(p[0] == 0 && memcmp(p, p + 1, size - 1) == 0, "round %d, calloc of %zu bytes", round, size);
        memset(p, 0xff, size);
        blocks[i] = p;
    }
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
}

static size_t resident(void) {
    unsigned long all, resident;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%lu %lu", &all, &resident) == 2);
    fclose(file);
    return resident * 4096;
}

static void calloc_of_new_memory(void) {
    // The kernel's memory reads as zero. What is cleared is there, and calloc of a table that is hardly used is not to be.
    enum { BLOCKS = 32, SIZE = 200000 };
    static unsigned char *blocks[BLOCKS];
    size_t before = resident();
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = calloc(1, SIZE);
        CHECK(blocks[i] != NULL);
    }
    size_t more = resident() - before;
    CHECK(more < (size_t)BLOCKS * SIZE / 4, "%zu bytes of %zu", more, (size_t)BLOCKS * SIZE);
    for (int i = 0; i < BLOCKS; i++) {
        for (int at = 0; at < SIZE; at++) CHECK(blocks[i][at] == 0);
        free(blocks[i]);
    }
}

static void calloc_of_used_memory(void) {
    // A block lies where another one was, of which the program used a part here and there.
    size_t size = 64 * MIB, part = MIB / 2, before = resident();
    for (int turn = 0; turn < 4; turn++) {
        unsigned char *p = calloc(1, size);
        CHECK(p != NULL);
        size_t more = resident() - before;
        CHECK(more < 8 * MIB, "turn %d: %zu bytes of %zu", turn, more, size);
        for (size_t at = 0; at < size; at++) CHECK(p[at] == 0, "turn %d, byte %zu", turn, at);
        for (size_t at = turn * MIB + 77; at + part < size; at += 16 * MIB) memset(p + at, 0xa5, part);
        p[size - 1] = 1;
        free(p);
    }
}

static void realloc_of_huge_blocks(void) {
    // Far more than is touched: in place, moved and back.
    size_t gib = (size_t)1 << 30;
    char *p = malloc(gib);
    CHECK(p != NULL);
    p[0] = 1, p[gib - 1] = 2;
    char *wall = malloc(4 * MIB);
    p = realloc(p, 3 * gib);
    CHECK(p != NULL && p[0] == 1 && p[gib - 1] == 2);
    p[3 * gib - 1] = 3;
    p = realloc(p, 5 * gib);
    CHECK(p != NULL && p[0] == 1 && p[gib - 1] == 2 && p[3 * gib - 1] == 3);
    p = realloc(p, gib);
    CHECK(p != NULL && p[0] == 1 && p[gib - 1] == 2);
    p = realloc(p, 10);
    CHECK(p != NULL && p[0] == 1);
    free(p);
    free(wall);
    p = calloc(4, gib);
    CHECK(p != NULL);
    for (size_t at = 0; at < 4 * gib; at += gib / 7) CHECK(p[at] == 0, "byte %zu of a huge block", at);
    free(p);
}

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static void names_of_glibc(void) {
    // Its own names are the same allocator: what one allocates the other frees.
    for (int i = 0; i < 100; i++) {
        char *p = __libc_malloc(100 + (size_t)i);
        free(p);
        p = malloc(100);
        __libc_free(p);
        p = __libc_calloc(10, 10);
        CHECK(p != NULL && p[99] == 0);
        p = realloc(p, 1000);
        p = __libc_realloc(p, 10000);
        free(p);
        p = __libc_memalign(256, 10);
        CHECK(p != NULL && is_aligned(p, 256));
        free(p);
    }
}

// C23; not in Debian 12's glibc.
extern void free_sized(void *, size_t) __attribute__((weak));
extern void free_aligned_sized(void *, size_t, size_t) __attribute__((weak));

static void sized_frees(void) {
    CHECK(!ON_POOL || (free_sized != NULL && free_aligned_sized != NULL));
    for (size_t size = 1; size < MIB && free_sized; size = next_size(size)) {
        free_sized(malloc(size), size);
        free_sized(calloc(2, size), 2 * size);
        free_sized(realloc(malloc(10), size), size);
        free_aligned_sized(aligned_alloc(64, size), 64, size);
        free_aligned_sized(aligned_alloc(1 << 16, size), 1 << 16, size);
    }
    if (free_sized) free_sized(NULL, 0);
    if (free_aligned_sized) free_aligned_sized(NULL, 16, 0);
}

static const struct scenario SCENARIOS[] = {
    {"zero-sizes", zero_sizes},
    {"alignment-of-every-size", alignment_of_every_size},
    {"usable-sizes", usable_sizes},
    {"alignments", alignments},
    {"calloc-after-dirt", calloc_after_dirt},
    {"calloc-among-dirt", calloc_among_dirt},
    {"calloc-of-new-memory", calloc_of_new_memory},
    {"calloc-of-used-memory", calloc_of_used_memory},
    {"realloc-keeps-contents", realloc_keeps_contents},
    {"realloc-of-huge-blocks", realloc_of_huge_blocks},
    {"names-of-glibc", names_of_glibc},
    {"sized-frees", sized_frees},
};
MAIN(SCENARIOS)
