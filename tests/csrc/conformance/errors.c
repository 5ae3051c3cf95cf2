// What is refused, and errno.
//
// usage: errors SCENARIO

#include "scenarios.h"

#include <gnu/libc-version.h>
#include <sys/resource.h>

// Each call with errno at a value of no meaning.
enum { UNTOUCHED = 4242 };

#define REFUSED(call, error)                                                                           \
    do {                                                                                               \
        errno = UNTOUCHED;                                                                             \
        void *got_ = (call);                                                                           \
        CHECK(got_ == NULL, "%s", #call);                                                              \
        CHECK(errno == (error), "%s left errno %d", #call, errno);                                     \
    } while (0)

static const size_t TOO_LARGE[] = {SIZE_MAX,         SIZE_MAX - 1,       SIZE_MAX - 15,         SIZE_MAX - 16, SIZE_MAX - 4095,
                                   SIZE_MAX - 65535, SIZE_MAX - 65536,   SIZE_MAX / 2 + 2,      (size_t)PTRDIFF_MAX + 1,
                                   PTRDIFF_MAX,      PTRDIFF_MAX - 4096, PTRDIFF_MAX - (64 << 10), (size_t)1 << 62};
enum { TOO_LARGE_COUNT = sizeof TOO_LARGE / sizeof TOO_LARGE[0] };

static void sizes_beyond_ptrdiff_max(void) {
    char *kept = malloc(1000), *large = malloc(3 << 20);
    fill(kept, 1, 1000);
    fill(large, 2, 3 << 20);
    for (int i = 0; i < TOO_LARGE_COUNT; i++) {
        size_t size = hidden(TOO_LARGE[i]);
        REFUSED(malloc(size), ENOMEM);
        REFUSED(calloc(1, size), ENOMEM);
        REFUSED(calloc(size, 1), ENOMEM);
        REFUSED(realloc(NULL, size), ENOMEM);
        REFUSED(realloc(kept, size), ENOMEM);
        REFUSED(realloc(large, size), ENOMEM);
        REFUSED(reallocarray(kept, size, 1), ENOMEM);
        REFUSED(memalign(64, size), ENOMEM);
        REFUSED(memalign(1 << 20, size), ENOMEM);
        REFUSED(aligned_alloc(64, size), ENOMEM);
        REFUSED(valloc(size), ENOMEM);
        REFUSED(pvalloc(size), ENOMEM);
        void *untouched = &errno;
        errno = UNTOUCHED;
        CHECK(posix_memalign(&untouched, 64, size) == ENOMEM && untouched == &errno, "%zu bytes", size);
        // Its result is the error. glibc puts it into errno, too, and programs look there.
        CHECK(errno == ENOMEM, "posix_memalign left errno %d", errno);
        errno = UNTOUCHED;
        CHECK(posix_memalign(&untouched, (size_t)1 << 40, size) == ENOMEM && untouched == &errno, "%zu bytes", size);
        CHECK(errno == ENOMEM, "posix_memalign left errno %d", errno);
    }
    for (size_t below = 0; below < 70000; below += 7) {
        REFUSED(malloc(hidden(SIZE_MAX - below)), ENOMEM);
        REFUSED(memalign(4096, hidden(SIZE_MAX - below)), ENOMEM);
    }
    check_filled(kept, 1, 1000, "after a refused realloc");
    check_filled(large, 2, 3 << 20, "after a refused realloc");
    free(kept);
    free(large);
}

static void products_that_overflow(void) {
    size_t half = hidden((size_t)1 << 32), third = hidden(SIZE_MAX / 3);
    char *kept = malloc(100);
    fill(kept, 1, 100);
    const size_t pairs[][2] = {{half, half},         {half + 1, half},  {third, 4},        {4, third},
                               {SIZE_MAX, SIZE_MAX}, {SIZE_MAX, 2},     {2, SIZE_MAX},     {SIZE_MAX / 2 + 1, 2},
                               {third + 1, 3},       {half * 16, half / 8}, {PTRDIFF_MAX, 2}, {PTRDIFF_MAX, 3}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        size_t a = hidden(pairs[i][0]), b = hidden(pairs[i][1]);
        REFUSED(calloc(a, b), ENOMEM);
        REFUSED(reallocarray(NULL, a, b), ENOMEM);
        REFUSED(reallocarray(kept, a, b), ENOMEM);
    }
    check_filled(kept, 1, 100, "after a refused reallocarray");
    free(kept);
}

static void alignments_that_are_none(void) {
    void *untouched = &errno;
    const size_t odd[] = {0, 1, 2, 3, 4, 7, 9, 12, 24, 48, 100, 4095, SIZE_MAX, SIZE_MAX / 2, ((size_t)1 << 63) + 8};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        size_t align = hidden(odd[i]);
        errno = UNTOUCHED;
        CHECK(posix_memalign(&untouched, align, 100) == EINVAL && untouched == &errno, "alignment %zu", align);
        CHECK(errno == UNTOUCHED, "alignment %zu", align);
        int power_of_two = align != 0 && (align & (align - 1)) == 0;
        // C17 (7.22.3.1) has aligned_alloc fail; glibc does since 2.38 and rounded up before.
        if (!power_of_two && (ON_POOL || strverscmp(gnu_get_libc_version(), "2.38") >= 0)) REFUSED(aligned_alloc(align, 100), EINVAL);
    }
    REFUSED(memalign(hidden(((size_t)1 << 63) + 1), 100), EINVAL);
    REFUSED(memalign(hidden((size_t)1 << 63), 100), ENOMEM);
    REFUSED(memalign(hidden((size_t)1 << 60), 100), ENOMEM);
    // C23: every power of two is an alignment, and the size need not be a multiple of it.
    for (size_t align = 1; align <= 4096; align *= 2) {
        void *p = aligned_alloc(align, hidden(align * 3 + 1));
        CHECK(p != NULL && is_aligned(p, align < 16 ? 16 : align), "alignment %zu: %p", align, p);
        free(p);
    }
}

static void frees_keep_errno(void) {
    // Of all sizes, many at once, so that memory goes all the way back to the system.
    enum { BLOCKS = 400 };
    static void *blocks[BLOCKS];
    for (size_t size = 1; size < 40 << 20; size *= 7) {
        int count = size < 1 << 20 ? BLOCKS : 4;
        for (int i = 0; i < count; i++) blocks[i] = calloc(1, size);
        for (int i = 0; i < count; i++) {
            errno = UNTOUCHED;
            free(blocks[i]);
            CHECK(errno == UNTOUCHED, "a free of %zu bytes left errno %d", size, errno);
        }
        errno = UNTOUCHED;
        free(realloc(malloc(size), size * 3));
        CHECK(errno == UNTOUCHED, "%zu bytes", size);
    }
    errno = UNTOUCHED;
    free(NULL);
    CHECK(errno == UNTOUCHED);
}

static void successes_keep_errno(void) {
    if (!ON_POOL) return; // no standard asks for it; programs that set errno before a longer piece of work like it
    enum { BLOCKS = 3000 };
    static void *blocks[BLOCKS];
    errno = UNTOUCHED;
    for (int i = 0; i < BLOCKS; i++) {
        size_t size = (size_t)i * i % 5000 + (i % 100 == 0 ? 1 << 20 : 0);
        blocks[i] = i % 2 ? malloc(size) : realloc(memalign(128, 10), size + 1);
        CHECK(blocks[i] != NULL && errno == UNTOUCHED, "block %d left errno %d", i, errno);
    }
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    malloc_usable_size(NULL);
    CHECK(errno == UNTOUCHED);
}

static void realloc_to_nothing(void) {
    // glibc's realloc frees the block and returns null, without an error.
    for (size_t size = 1; size < 5 << 20; size *= 3) {
        errno = UNTOUCHED;
        CHECK(realloc(malloc(size), hidden(0)) == NULL && errno == UNTOUCHED, "%zu bytes", size);
        CHECK(reallocarray(malloc(size), hidden(0), 5) == NULL && errno == UNTOUCHED, "%zu bytes", size);
        CHECK(reallocarray(malloc(size), 5, hidden(0)) == NULL && errno == UNTOUCHED, "%zu bytes", size);
    }
    // If it kept the blocks, these 8 GiB would not fit.
    struct rlimit limit = {(rlim_t)2 << 30, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    for (int i = 0; i < 8192; i++) CHECK(realloc(malloc(1 << 20), hidden(0)) == NULL);
}

static long kib_of_addresses(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    long pages = 0;
    CHECK(file != NULL && fscanf(file, "%ld", &pages) == 1);
    fclose(file);
    return pages * 4;
}

static void refusals_cost_nothing(void) {
    free(malloc(100000));
    long before = kib_of_addresses();
    for (int i = 0; i < 500; i++) {
        // The kernel refuses what all memory could not hold, unless someone has set vm.overcommit_memory to 1.
        void *p = malloc(hidden((size_t)1 << 43)), *q = memalign((size_t)1 << 42, hidden((size_t)1 << 41));
        free(p);
        free(q);
    }
    CHECK(kib_of_addresses() < before + 4096, "from %ld to %ld KiB", before, kib_of_addresses());
    char *p = malloc(100);
    CHECK(p != NULL);
    free(p);
}

static const struct scenario SCENARIOS[] = {
    {"sizes-beyond-ptrdiff-max", sizes_beyond_ptrdiff_max},
    {"products-that-overflow", products_that_overflow},
    {"alignments-that-are-none", alignments_that_are_none},
    {"frees-keep-errno", frees_keep_errno},
    {"successes-keep-errno", successes_keep_errno},
    {"realloc-to-nothing", realloc_to_nothing},
    {"refusals-cost-nothing", refusals_cost_nothing},
};
MAIN(SCENARIOS)
