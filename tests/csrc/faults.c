// Faults of programs, one for each name. What the pool is to say of each stands in tests/tests/hardened.rs.
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// C23, newer than many C libraries.
__attribute__((weak)) void free_sized(void *, size_t);
__attribute__((weak)) void free_aligned_sized(void *, size_t, size_t);

// By the pool's own name.
__attribute__((weak)) void *poolscope_malloc(size_t);
__attribute__((weak)) void *poolscope_aligned_alloc(size_t, size_t);
__attribute__((weak)) void poolscope_free_sized(void *, size_t);
__attribute__((weak)) void poolscope_free_aligned_sized(void *, size_t, size_t);

// The compiler must not see through what follows: it knows these faults, and what malloc does.
static void *volatile kept;
static void *hidden(void *p) {
    kept = p;
    return kept;
}

__attribute__((noinline)) static char *allocating(size_t size) { return hidden(malloc(size)); }
__attribute__((noinline)) static void freeing(void *p) { free(hidden(p)); }
__attribute__((noinline)) static void writing(volatile char *p) { *p = 'x'; }
__attribute__((noinline)) static char reading(volatile char *p) { return *p; }

// Frees so many bytes that everything freed before leaves the quarantine.
static void flush(void) {
    for (int i = 0; i < 100; i++) free(hidden(malloc(512 * 1024)));
}

static void double_free(void) {
    char *p = allocating(24);
    freeing(p);
    freeing(p);
}

static void double_free_after_others(void) {
    char *p = allocating(24);
    freeing(p);
    for (int i = 0; i < 1000; i++) free(hidden(malloc(24)));
    freeing(p);
}

static void double_free_large(void) {
    char *p = allocating(3000000);
    freeing(p);
    freeing(p);
}

static void *frees(void *p) {
    freeing(p);
    return NULL;
}

static void double_free_by_another_thread(void) {
    char *p = allocating(24);
    freeing(p);
    pthread_t thread;
    if (pthread_create(&thread, NULL, frees, p) == 0) pthread_join(thread, NULL);
}

static void interior_by_another_thread(void) {
    pthread_t thread;
    char *p = allocating(20000);
    if (pthread_create(&thread, NULL, frees, p + 1024) == 0) pthread_join(thread, NULL);
}

static void small_interior_by_another_thread(void) {
    pthread_t thread;
    char *p = allocating(100);
    if (pthread_create(&thread, NULL, frees, p + 16) == 0) pthread_join(thread, NULL);
}

static void double_free_medium(void) {
    char *p = allocating(20000);
    freeing(p);
    freeing(p);
    // More than a thread keeps for itself: the pool looks at what it has.
    char *others[64];
    for (int i = 0; i < 64; i++) others[i] = allocating(20000);
    for (int i = 0; i < 64; i++) freeing(others[i]);
}

static void interior_start_of_large(void) { freeing(allocating(700000) + 16); }
static void interior(void) { freeing(allocating(100) + 16); }
static void interior_unaligned(void) { freeing(allocating(100) + 3); }
static void interior_medium(void) { freeing(allocating(20000) + 4096); }
static void interior_large(void) { freeing(allocating(700000) + 70000); }

static void stack_address(void) {
    char array[64];
    freeing(array);
}

static void mapping(void) {
    freeing(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

static void overflow(void) {
    char *p = allocating(24);
    writing(p + 24);
    freeing(p);
}

static void overflow_of_a_large_block(void) {
    char *p = allocating(300000);
    writing(p + 300000);
    freeing(p);
}

static void overflow_found_by_realloc(void) {
    char *p = allocating(24);
    writing(p + 30);
    kept = realloc(p, 100);
}

static void underflow(void) {
    char *p = allocating(24);
    writing(p - 1);
    freeing(p);
}

static void overflow_of_aligned(void) {
    char *p = hidden(aligned_alloc(256, 512));
    writing(p + 512);
    freeing(p);
}

static void write_after_free(void) {
    char *p = allocating(24);
    freeing(p);
    writing(p + 5);
    flush();
}

// Of an alignment that no guards are for. The memory of such a block goes when it is freed; its last 100 bytes, which are
// no whole page, are filled.
enum { LARGE = (2 << 20) + 100 };

static char *allocating_large(void) { return hidden(memalign(8192, LARGE)); }

static char *freed_large(void) {
    char *p = allocating_large();
    memset(p, 1, LARGE);
    freeing(p);
    return p;
}

static void write_after_free_of_a_large_block(void) { writing(freed_large() + 1000005); }
static void write_after_free_behind_its_pages(void) { writing(freed_large() + LARGE - 5); }

// A page that reads as zero is as it was; the next one is not.
static void zeroes_after_free_of_a_large_block(void) {
    char *p = freed_large();
    memset(p + 999424, 0, 4096);
    memset(p + 1003520, 0xde, 100);
}

static void large_blocks_read_as_zero(void) {
    for (int round = 0; round < 100; round++) {
        char *p = allocating_large();
        for (size_t i = 0; i < LARGE; i++)
            if (p[i] != 0) abort();
        memset(p, 3, LARGE);
        freeing(p);
    }
    puts("ok");
}

static void write_after_free_at_the_end(void) {
    char *p = allocating(24);
    freeing(p);
    writing(p + 5);
}

static void overflow_of_a_block_in_use(void) { writing(allocating(24) + 24); }

static void overflow_by_32(void) {
    char *p = allocating(24);
    writing(p + 24 - 1 + 32);
    freeing(p);
}

static void underflow_by_32(void) {
    char *p = allocating(24);
    writing(p - 32);
    freeing(p);
}

static void write_a_mebibyte_behind(void) { writing(allocating(32) + 32 + (1 << 20)); }
static void write_a_mebibyte_before(void) { writing(allocating(32) - (1 << 20)); }
static void read_of_no_bytes(void) { reading(allocating(0)); }

// After so many calls that the pool looks at none of them.
static void double_free_at_the_end(void) {
    for (int i = 0; i < 2000; i++) free(hidden(malloc(24)));
    double_free();
}

static void realloc_after_free(void) {
    char *p = allocating(24);
    freeing(p);
    kept = realloc(hidden(p), 48);
}

static void size_after_free(void) {
    char *p = allocating(24);
    freeing(p);
    printf("%zu\n", malloc_usable_size(hidden(p)));
}

static void wrong_size(void) { free_sized(allocating(24), 32); }
static void wrong_aligned_size(void) { free_aligned_sized(hidden(aligned_alloc(64, 128)), 64, 64); }
static void wrong_alignment(void) { free_aligned_sized(hidden(aligned_alloc(64, 128)), 32, 128); }
static void own_wrong_size(void) { poolscope_free_sized(hidden(poolscope_malloc(24)), 32); }
static void own_wrong_aligned_size(void) {
    poolscope_free_aligned_sized(hidden(poolscope_aligned_alloc(64, 128)), 64, 64);
}
static void own_wrong_alignment(void) {
    poolscope_free_aligned_sized(hidden(poolscope_aligned_alloc(64, 128)), 32, 128);
}

// With POOLSCOPE_PERIOD=1 every block is sampled, and so has its guard pages.
static void read_after_free(void) {
    char *p = allocating(24);
    freeing(p);
    reading(p + 7);
}

static void read_of_the_start_after_free(void) {
    char *p = allocating(24);
    freeing(p);
    reading(p);
}

static void read_behind(void) {
    char *p = allocating(32);
    reading(p + 32);
}

static void read_far_before(void) {
    char *p = allocating(32);
    reading(p - 4096);
}

static void null_pointer(void) { reading(hidden((void *)8)); }
static void raised(void) { raise(SIGSEGV); }

// No fault: what a program may do.
static void *churn(void *seed) {
    char *blocks[64] = {0};
    unsigned random = (unsigned)(uintptr_t)seed;
    for (int i = 0; i < 20000; i++) {
        random = random * 1103515245 + 12345;
        char **slot = &blocks[random >> 26];
        size_t size = (random >> 8) % (i % 100 == 0 ? 400000 : 600);
        if (random & 128) {
            *slot = realloc(*slot, size + 1);
        } else {
            free(*slot);
            *slot = (random & 64) ? calloc(1, size + 1) : aligned_alloc(1u << (random % 9 + 4), size + 1);
        }
        memset(*slot, 1, malloc_usable_size(*slot));
    }
    for (int i = 0; i < 64; i++) free(blocks[i]);
    return NULL;
}

static void nothing(void) {
    pthread_t threads[4];
    for (intptr_t i = 0; i < 4; i++) pthread_create(&threads[i], NULL, churn, (void *)(i + 1));
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    if (fork() == 0) {
        churn((void *)7);
        _exit(0);
    }
    free_sized(malloc(24), 24);
    free_sized(calloc(3, 8), 24);
    free_sized(realloc(malloc(1), 100), 100);
    free_aligned_sized(aligned_alloc(64, 128), 64, 128);
    poolscope_free_sized(poolscope_malloc(24), 24);
    poolscope_free_aligned_sized(poolscope_aligned_alloc(64, 128), 64, 128);
    flush();
    puts("ok");
}

#define FAULT(name) {#name, name}
static const struct {
    const char *name;
    void (*run)(void);
} faults[] = {
    FAULT(double_free), FAULT(double_free_after_others), FAULT(double_free_large), FAULT(double_free_by_another_thread),
    FAULT(double_free_medium), FAULT(interior_by_another_thread), FAULT(interior_start_of_large),
    FAULT(small_interior_by_another_thread),
    FAULT(interior), FAULT(interior_unaligned), FAULT(interior_medium), FAULT(interior_large), FAULT(stack_address),
    FAULT(mapping), FAULT(overflow), FAULT(overflow_of_a_large_block), FAULT(overflow_found_by_realloc),
    FAULT(underflow), FAULT(overflow_of_aligned), FAULT(write_after_free), FAULT(realloc_after_free),
    FAULT(size_after_free), FAULT(write_after_free_of_a_large_block), FAULT(write_after_free_behind_its_pages),
    FAULT(zeroes_after_free_of_a_large_block), FAULT(large_blocks_read_as_zero), FAULT(write_after_free_at_the_end), FAULT(overflow_of_a_block_in_use),
    FAULT(overflow_by_32), FAULT(underflow_by_32), FAULT(write_a_mebibyte_behind), FAULT(write_a_mebibyte_before),
    FAULT(read_of_no_bytes), FAULT(double_free_at_the_end), FAULT(wrong_size), FAULT(wrong_aligned_size), FAULT(wrong_alignment),
    FAULT(own_wrong_size), FAULT(own_wrong_aligned_size), FAULT(own_wrong_alignment),
    FAULT(read_after_free), FAULT(read_of_the_start_after_free), FAULT(read_behind), FAULT(read_far_before),
    FAULT(null_pointer), FAULT(raised), FAULT(nothing),
};

int main(int argc, char **argv) {
    for (size_t i = 0; argc > 1 && i < sizeof faults / sizeof *faults; i++) {
        if (strcmp(argv[1], faults[i].name) == 0) {
            faults[i].run();
            return 0;
        }
    }
    fprintf(stderr, "usage: faults NAME\n");
    return 2;
}
