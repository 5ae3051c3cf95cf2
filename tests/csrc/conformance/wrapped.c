// Has the malloc family itself, as programs do that count what they allocate, or have it fail: each function calls
// glibc's own name for it.
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EACH(X) X(malloc) X(free) X(calloc) X(realloc) X(reallocarray) X(memalign) X(valloc) X(pvalloc) X(posix_memalign)
#define COUNT(name) COUNT_##name,
enum { EACH(COUNT) COUNTS };

static unsigned counts[COUNTS];
static int depth;

// A wrapper that is called by what it calls would never end. glibc's reallocarray calls realloc.
static void begin(int which) {
    if (depth++ > 1) {
        static const char words[] = "a wrapper is called by what it calls\n";
        fputs(words, stderr);
        abort();
    }
    counts[which]++;
}

#define WRAP(name, type, arguments, values)                                                                            \
    extern type __libc_##name arguments;                                                                               \
    type name arguments {                                                                                              \
        begin(COUNT_##name);                                                                                           \
        type result = __libc_##name values;                                                                            \
        depth--;                                                                                                       \
        return result;                                                                                                 \
    }

WRAP(malloc, void *, (size_t size), (size))
WRAP(calloc, void *, (size_t count, size_t size), (count, size))
WRAP(realloc, void *, (void *block, size_t size), (block, size))
WRAP(memalign, void *, (size_t align, size_t size), (align, size))
WRAP(valloc, void *, (size_t size), (size))
WRAP(pvalloc, void *, (size_t size), (size))

extern void __libc_free(void *block);
void free(void *block) {
    begin(COUNT_free);
    __libc_free(block);
    depth--;
}

// glibc keeps these two to itself, or has them not.
extern void *__libc_reallocarray(void *block, size_t count, size_t size) __attribute__((weak));
void *reallocarray(void *block, size_t count, size_t size) {
    begin(COUNT_reallocarray);
    size_t bytes;
    void *result = NULL;
    if (__libc_reallocarray)
        result = __libc_reallocarray(block, count, size);
    else if (__builtin_mul_overflow(count, size, &bytes))
        errno = ENOMEM;
    else
        result = __libc_realloc(block, bytes);
    depth--;
    return result;
}

extern int __posix_memalign(void **out, size_t align, size_t size) __attribute__((weak));
int posix_memalign(void **out, size_t align, size_t size) {
    begin(COUNT_posix_memalign);
    int result = 0;
    if (__posix_memalign)
        result = __posix_memalign(out, align, size);
    else
        *out = __libc_memalign(align, size);
    depth--;
    return result;
}

// Ends by C's function where it is asked to by POSIX's.
void _exit(int status) {
    if (depth++ > 0) __builtin_trap();
    _Exit(status);
}

int main(void) {
    for (size_t size = 1; size < 4000000; size = size * 3 + 7) {
        char *block = malloc(size), *zeroed = calloc(3, size);
        memset(block, 'x', size);
        block = realloc(block, 2 * size);
        block = reallocarray(block, 3, size);
        if (!block || block[0] != 'x' || block[size - 1] != 'x' || zeroed[3 * size - 1]) return 1;
        void *aligned = memalign(256, size), *page = valloc(size), *pages = pvalloc(size), *posix = NULL;
        if (posix_memalign(&posix, 512, size) || (uintptr_t)aligned % 256 || (uintptr_t)page % 4096) return 1;
        if ((uintptr_t)pages % 4096 || (uintptr_t)posix % 512) return 1;
        void *all[] = {block, zeroed, aligned, page, pages, posix, realloc(NULL, size), reallocarray(NULL, 2, size)};
        for (size_t at = 0; at < sizeof all / sizeof *all; at++) free(all[at]);
    }
    errno = 0;
    volatile size_t much = SIZE_MAX / 2;
    if (reallocarray(NULL, much, 3) || errno != ENOMEM) return 1;
    for (int at = 0; at < COUNTS; at++)
        if (!counts[at]) return 2;
    _exit(0);
}
