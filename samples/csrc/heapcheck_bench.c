// What a leak check costs: heapcheck_bench BLOCKS STACKS [wait]
//
// Makes so many blocks that are all in use, and loses one block on each of so many different call stacks. Then it checks
// itself by LeakSanitizer's function, where something in the process has that, and says how long it took, and how long it
// took before to make the blocks, and to walk over them without an allocation. With "wait" it says "ready" instead, and
// waits for the end of its standard input. scripts/bench-heapcheck.sh runs it.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>
#else
#define VALGRIND_DO_LEAK_CHECK ((void)0)
#define RUNNING_ON_VALGRIND 0
#endif

__attribute__((weak)) int __lsan_do_recoverable_leak_check(void);

struct node {
    struct node *left, *right;
};

static struct node *tree;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

// A tree in which each block leads to two others, in the order in which they were made.
static void grow(size_t blocks) {
    struct node **nodes = malloc(blocks * sizeof *nodes);
    uint64_t random = 88172645463325252u;
    for (size_t i = 0; i < blocks; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        nodes[i] = malloc(sizeof(struct node) + random % 240);
        nodes[i]->left = nodes[i]->right = NULL;
        if (i > 0) *(i % 2 ? &nodes[(i - 1) / 2]->left : &nodes[(i - 1) / 2]->right) = nodes[i];
    }
    tree = blocks > 0 ? nodes[0] : NULL;
    free(nodes);
}

static size_t count(const struct node *node) {
    return node == NULL ? 0 : 1 + count(node->left) + count(node->right);
}

// Another stack for each number.
__attribute__((noinline)) static void lose(unsigned number, int depth) {
    if (depth == 0) {
        void *volatile p = malloc(48);
        p = NULL;
        (void)p;
    } else if (number & 1) {
        lose(number >> 1, depth - 1);
        __asm__ volatile("" ::: "memory");
    } else {
        lose(number >> 1, depth - 1);
        __asm__ volatile("nop" ::: "memory");
    }
}

__attribute__((noinline)) static void scrub(void) {
    volatile char bytes[16384];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = 0;
}

int main(int argc, char **argv) {
    size_t blocks = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000000;
    unsigned stacks = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
    double at = now();
    grow(blocks);
    double grow_ms = now() - at;
    for (unsigned i = 0; i < stacks; i++) lose(i, 14);
    scrub();
    if (argc > 3 && strcmp(argv[3], "wait") == 0) {
        puts("ready");
        fflush(stdout);
        char byte;
        while (read(0, &byte, 1) > 0) {}
        return tree == NULL;
    }
    at = now();
    size_t counted = 0;
    for (int round = 0; round < 5; round++) counted += count(tree);
    printf("grow_ms %.1f walk_ms %.1f of %zu\n", grow_ms, now() - at, counted);
    double begun = now();
    int leaked = -1;
    if (RUNNING_ON_VALGRIND) {
        VALGRIND_DO_LEAK_CHECK;
    } else if (__lsan_do_recoverable_leak_check) {
        leaked = __lsan_do_recoverable_leak_check();
    }
    printf("check_ms %.1f leaked %d\n", now() - begun, leaked);
    return tree == NULL;
}
