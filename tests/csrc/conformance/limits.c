// Limits of memory: what does not fit is refused with ENOMEM, and everything goes on.
//
// usage: limits SCENARIO

#include "scenarios.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define MIB ((size_t)1 << 20)

static void set_limit(int resource, size_t bytes) {
    struct rlimit limit = {bytes, RLIM_INFINITY};
    CHECK(getrlimit(resource, &limit) == 0);
    limit.rlim_cur = bytes;
    CHECK(setrlimit(resource, &limit) == 0);
}

struct link {
    struct link *next;
    size_t size;
};

// Blocks of one size in a list, until one is refused or there are `most` bytes. Returns the list. Both ends of each block
// are written to: all of it would take the time that the kernel needs for its pages.
static struct link *take(size_t size, size_t most, size_t *bytes) {
    struct link *list = NULL;
    for (*bytes = 0; *bytes < most; *bytes += size) {
        errno = 0;
        struct link *block = malloc(size);
        if (block == NULL) {
            CHECK(errno == ENOMEM, "a refusal left errno %d", errno);
            break;
        }
        block->next = list, block->size = size;
        ((unsigned char *)block)[size - 1] = 0xa5;
        list = block;
    }
    return list;
}

static void give_back(struct link *list) {
    while (list != NULL) {
        struct link *next = list->next;
        CHECK(((unsigned char *)list)[list->size - 1] == 0xa5, "a block of %zu bytes", list->size);
        free(list);
        list = next;
    }
}

static void *nothing(void *argument) {
    free(malloc(100));
    return argument;
}

// A limit leaves room for most of what it allows, and for what is not the allocator's.
static void under_a_limit(size_t limit) {
    static const size_t sizes[] = {1000, 10000, 100000, MIB, 7 * MIB};
    void *mapping = mmap(NULL, limit / 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapping != MAP_FAILED, "a mapping of the program's own: errno %d", errno);
    munmap(mapping, limit / 4);
    pthread_t threads[4];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 << 10);
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], &small, nothing, NULL) == 0, "thread %d", i);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t bytes, again;
        struct link *list = take(sizes[i], 2 * limit, &bytes);
        CHECK(bytes > limit / 2 && bytes < limit, "%zu of %zu MiB in blocks of %zu bytes", bytes / MIB, limit / MIB, sizes[i]);
        void *untouched = &errno;
        size_t large = hidden(limit / 2);
        CHECK(calloc(1, large) == NULL && realloc(NULL, large) == NULL && memalign(4096, large) == NULL && valloc(large) == NULL);
        CHECK(posix_memalign(&untouched, 64, large) == ENOMEM && untouched == &errno);
        errno = 0;
        CHECK(realloc(list, large) == NULL && errno == ENOMEM);
        give_back(list);
        list = take(sizes[i], 2 * limit, &again);
        CHECK(again > bytes / 10 * 9, "%zu MiB at first, %zu MiB then, of %zu bytes", bytes / MIB, again / MIB, sizes[i]);
        give_back(list);
        malloc_trim(0);
    }
}

static void address_space(void) {
    set_limit(RLIMIT_AS, 600 * MIB);
    under_a_limit(600 * MIB);
}

static void inherited_address_space(void) {
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY, "the test sets the limit");
    under_a_limit(limit.rlim_cur);
}

static void data(void) {
    set_limit(RLIMIT_DATA, 300 * MIB);
    under_a_limit(300 * MIB);
}

static void limit_that_is_lifted(void) {
    set_limit(RLIMIT_AS, 300 * MIB);
    size_t bytes;
    struct link *few = take(5000, 500 * MIB, &bytes);
    CHECK(bytes < 300 * MIB);
    set_limit(RLIMIT_AS, RLIM_INFINITY);
    struct link *more = take(5000, 500 * MIB, &bytes);
    CHECK(bytes >= 500 * MIB, "%zu MiB", bytes / MIB);
    give_back(few);
    give_back(more);
}

// Where everything is taken and a megabyte comes back, blocks that fit into it are had, of whatever size.
static void last_megabyte(void) {
    set_limit(RLIMIT_AS, 300 * MIB);
    size_t bytes;
    for (size_t size = 40000; size < MIB; size += size / 3) {
        struct link *list = take(MIB, 300 * MIB, &bytes), *rest = take(5000, 300 * MIB, &bytes);
        struct link *next = list->next;
        free(list);
        char *block = malloc(size);
        CHECK(block != NULL, "%zu bytes", size);
        memset(block, 1, size);
        block = realloc(block, size - size / 8);
        CHECK(block != NULL && malloc_usable_size(block) >= size - size / 8 && block[size / 2] == 1, "%zu bytes", size);
        free(block);
        give_back(next);
        give_back(rest);
    }
}

enum { THREADS = 8 };
static pthread_barrier_t barrier;

static void *fill_up(void *argument) {
    size_t bytes;
    for (int round = 0; round < 3; round++) {
        pthread_barrier_wait(&barrier);
        struct link *list = take(50 + (size_t)argument * 700, (size_t)1 << 30, &bytes);
        pthread_barrier_wait(&barrier);
        give_back(list);
    }
    return NULL;
}

static void threads_that_fill_it(void) {
    pthread_t threads[THREADS];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 << 10);
    set_limit(RLIMIT_AS, 300 * MIB);
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (size_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], &small, fill_up, (void *)i) == 0, "thread %zu", i);
    for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    size_t bytes;
    give_back(take(5000, 100 * MIB, &bytes));
    CHECK(bytes >= 100 * MIB, "%zu MiB after all threads ended", bytes / MIB);
}

static const struct scenario SCENARIOS[] = {
    {"address-space", address_space},
    {"inherited-address-space", inherited_address_space},
    {"data", data},
    {"limit-that-is-lifted", limit_that_is_lifted},
    {"last-megabyte", last_megabyte},
    {"threads-that-fill-it", threads_that_fill_it},
};
MAIN(SCENARIOS)
