// What the conformance programs share. Each is called with the name of one of its scenarios, says on standard error what
// does not hold, and ends with 1 then. The same programs run without the pool: what they expect holds for glibc, too.
#ifndef SCENARIOS_H
#define SCENARIOS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
#define CHECK_WEAK extern "C" __attribute__((weak))
#else
#define CHECK_WEAK extern __attribute__((weak))
#endif

// Present only where the pool is.
CHECK_WEAK size_t poolscope_usable_size(const void *p);
#define ON_POOL (poolscope_usable_size != NULL)

#define CHECK(condition, ...)                                                                          \
    do {                                                                                               \
        if (!(condition)) {                                                                            \
            fprintf(stderr, "%s:%d: not true: %s: ", __FILE__, __LINE__, #condition);                  \
            fprintf(stderr, "" __VA_ARGS__);                                                           \
            fprintf(stderr, "\n");                                                                     \
            _Exit(1);                                                                                  \
        }                                                                                              \
    } while (0)

// A size that the compiler knows nothing of, so that it neither warns of what a call does nor leaves it out.
static inline size_t hidden(size_t size) {
    __asm__ volatile("" : "+r"(size) : : "memory");
    return size;
}

struct scenario {
    const char *name;
    void (*run)(void);
};

static inline int run_scenario(int argc, char **argv, const struct scenario *scenarios, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (argc > 1 && strcmp(argv[1], scenarios[i].name) == 0) {
            scenarios[i].run();
            return 0;
        }
    }
    fprintf(stderr, "usage: %s SCENARIO\n", argv[0]);
    return 2;
}

#define MAIN(scenarios)                                                                                \
    int main(int argc, char **argv) {                                                                  \
        return run_scenario(argc, argv, scenarios, sizeof(scenarios) / sizeof((scenarios)[0]));        \
    }

// Bytes that tell a block and a place in it.
static inline unsigned char byte_of(size_t tag, size_t at) { return (unsigned char)(tag * 31 + at * 7 + at / 251); }

static inline void fill(void *p, size_t tag, size_t size) {
    for (size_t at = 0; at < size; at++) ((unsigned char *)p)[at] = byte_of(tag, at);
}

static inline void check_filled(const void *p, size_t tag, size_t size, const char *when) {
    for (size_t at = 0; at < size; at++)
        CHECK(((const unsigned char *)p)[at] == byte_of(tag, at), "byte %zu of %zu %s", at, size, when);
}

static inline int is_aligned(const void *p, size_t align) { return ((uintptr_t)p & (align - 1)) == 0; }

// Sizes on both sides of every boundary that an allocator may have: powers of two, their eighths, pages.
static inline size_t next_size(size_t size) {
    if (size < 1100) return size + 1;
    size_t eighth = (size_t)1 << (63 - __builtin_clzll(size) - 3);
    switch (size % eighth) {
    case 0: return size + 1;
    case 1: return size + eighth / 2;
    default: return size / eighth * eighth + (size % eighth == eighth - 1 ? eighth : eighth - 1);
    }
}

#endif
