/* Pairs of malloc and free, one block at a time, for callgrind to count (fast_path.rs).
 *
 * usage: fast_path PAIRS SIZE [hooked|returned|own|inherited]
 * hooked: after a hook has come, has seen blocks, and has gone
 * returned: after another thread has freed all blocks of this one but the last
 * own: a thread replaces blocks of up to SIZE bytes of a table of its own at random
 * inherited: a table that the main thread has made */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define POOLSCOPE_WEAK
#include "poolscope.h"

/* The compiler is told to take malloc for a function like any other, and leaves every pair in. */
static void pairs(long count, size_t size) {
    for (long pair = 0; pair < count; pair++) free(malloc(size));
}

static void sees(const poolscope_event *event, void *context) { *(size_t *)context += event->size; }

enum { BLOCKS = 256 };
static void *blocks[BLOCKS];

static void *free_all_but_one(void *nothing) {
    for (int block = 0; block < BLOCKS - 1; block++) free(blocks[block]);
    return nothing;
}

static int have_blocks_returned(size_t size) {
    pthread_t other;
    for (int block = 0; block < BLOCKS; block++) blocks[block] = malloc(size);
    if (pthread_create(&other, NULL, free_all_but_one, NULL) != 0 || pthread_join(other, NULL) != 0) return 1;
    free(blocks[BLOCKS - 1]);
    return 0;
}

enum { TABLE = 5000 };
static void *table[TABLE];
static long replacements;
static size_t most;

static unsigned long below(unsigned long n) {
    static unsigned long state = 0x9E3779B97F4A7C15;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % n;
}

static void fill(void) {
    for (int block = 0; block < TABLE; block++) table[block] = malloc(1 + below(most));
}

static void *replace(void *own) {
    if (own != NULL) fill();
    for (long pair = 0; pair < replacements; pair++) {
        unsigned long victim = below(TABLE);
        free(table[victim]);
        table[victim] = malloc(1 + below(most));
    }
    return own;
}

static int replace_in_a_thread(int is_own) {
    pthread_t other;
    if (!is_own) fill();
    return pthread_create(&other, NULL, replace, is_own ? table : NULL) != 0 || pthread_join(other, NULL) != 0;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    long count = atol(argv[1]);
    size_t size = (size_t)atol(argv[2]), seen = 0;
    if (argc > 3 && strcmp(argv[3], "hooked") == 0) {
        uint64_t hook = poolscope_add_hook(sees, &seen);
        pairs(10, size);
        if (hook == 0 || poolscope_remove_hook(hook) != 0 || seen < 20 * size) return 1;
    }
    if (argc > 3 && strcmp(argv[3], "returned") == 0 && have_blocks_returned(size) != 0) return 1;
    if (argc > 3 && (strcmp(argv[3], "own") == 0 || strcmp(argv[3], "inherited") == 0)) {
        replacements = count, most = size;
        return replace_in_a_thread(strcmp(argv[3], "own") == 0);
    }
    pairs(count, size);
    return 0;
}
