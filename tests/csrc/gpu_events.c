/* Programs whose every block of device memory is known: gpu_events WHAT
 *
 *   calls   prints what each function did as "NAME allocations bytes frees"
 *   trace   the same calls; prints each as "+ ID SIZE STREAM" or "- ID"
 *   pairs   one block after the other, of 4096 bytes, until its standard input ends; prints how many
 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "poolscope_gpu.h"

#define APART __attribute__((noinline, noclone))

enum { BLOCKS = 10, SMALL = 100, HANDED = 20, MIB = 1 << 20 };
static void *const LEGACY = NULL, *const PER_THREAD = (void *)2;

static int printing;
static int last;
typedef struct {
    void *address;
    int id;
} Block;
static Block weights[BLOCKS], handed[HANDED];

static APART Block get(size_t size, void *stream) {
    Block block = {poolscope_gpu_alloc(0, size, stream), ++last};
    if (block.address == NULL) abort();
    if (printing) printf("+ %d %zu %zu\n", block.id, size, (size_t)stream);
    return block;
}

static APART void put(Block block, void *stream) {
    if (poolscope_gpu_free(0, block.address, stream) != 0) abort();
    if (printing) printf("- %d\n", block.id);
}

/* Kept until the program ends. */
static APART void load_weights(void) {
    for (int i = 0; i < BLOCKS; i++) weights[i] = get((size_t)(i + 1) * MIB, LEGACY);
}

/* Freed at once: each comes from the thread's own list. */
static APART void make_small(void) {
    for (int i = 0; i < SMALL; i++) put(get(4096, LEGACY), LEGACY);
}

static APART void make_large(void) {
    Block blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) blocks[i] = get(3 * MIB + 1, PER_THREAD);
    for (int i = 0; i < BLOCKS; i++) put(blocks[i], PER_THREAD);
}

static APART void hand_over(void) {
    for (int i = 0; i < HANDED; i++) handed[i] = get(1000 + i, LEGACY);
}

/* By another thread, and on another stream. */
static void *take_over(void *unused) {
    for (int i = 0; i < HANDED; i++) put(handed[i], PER_THREAD);
    return unused;
}

static APART long pairs(void) {
    struct pollfd input = {.fd = 0, .events = POLLIN};
    long done = 0;
    do {
        for (int i = 0; i < 100; i++, done++) {
            void *block = poolscope_gpu_alloc(0, 4096, LEGACY);
            if (block == NULL || poolscope_gpu_free(0, block, LEGACY) != 0) abort();
        }
    } while (poll(&input, 1, 0) == 0);
    return done;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    setvbuf(stdout, NULL, _IOLBF, 1 << 16);
    if (strcmp(what, "pairs") == 0) {
        /* The pool is there, and its lists have blocks. */
        put(get(4096, LEGACY), LEGACY);
        puts("ready");
        printf("pairs %ld\n", pairs());
        return 0;
    }
    printing = strcmp(what, "trace") == 0;
    load_weights();
    make_small();
    make_large();
    hand_over();
    pthread_t thread;
    if (pthread_create(&thread, NULL, take_over, NULL) != 0) return 1;
    pthread_join(thread, NULL);
    if (!printing) {
        printf("load_weights %d %d 0\n", BLOCKS, BLOCKS * (BLOCKS + 1) / 2 * MIB);
        printf("make_small %d %d %d\n", SMALL, SMALL * 4096, SMALL);
        printf("make_large %d %d %d\n", BLOCKS, BLOCKS * (3 * MIB + 1), BLOCKS);
        printf("hand_over %d %d %d\n", HANDED, HANDED * 1000 + HANDED * (HANDED - 1) / 2, HANDED);
    }
    return 0;
}
