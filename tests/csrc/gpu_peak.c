/* A training run whose truth is known: what each function has of device memory when most is in use (gpu_peak.rs).
 *
 * usage: gpu_peak STEPS PAUSE_US
 * It prints a line "FUNCTION BYTES" for each, as they were at the highest sum of all blocks. Bytes are those that the
 * pool gives out, lengths here being multiples of its alignment. After each layer it pauses, as a device's work makes a
 * program wait. Each step is a little larger than the one before up to the middle, as batches of other lengths are. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "poolscope_gpu.h"

enum { WEIGHTS, STATE, ATTENTION, FEED_FORWARD, NORM, MASK, GRADIENT, WORKSPACE, SITES };
enum { LAYERS = 24, PARTS = 6 };

static const char *const names[SITES] = {"weights", "optimizer_state", "attention", "feed_forward",
                                         "norm",    "mask",            "gradient",  "workspace"};
static size_t in_use[SITES], at_peak[SITES], total, peak;

static void *take(int site, size_t size) {
    void *block = poolscope_gpu_alloc(0, size, NULL);
    if (!block) exit(1);
    in_use[site] += size;
    total += size;
    if (total > peak) {
        peak = total;
        for (int other = 0; other < SITES; other++) at_peak[other] = in_use[other];
    }
    return block;
}

static void give(int site, void *block, size_t size) {
    if (poolscope_gpu_free(0, block, NULL) != 0) exit(1);
    in_use[site] -= size;
    total -= size;
}

#define SITE(function, site)                                          \
    __attribute__((noinline)) static void *function(size_t size) {    \
        void *block = take(site, size);                               \
        __asm__ volatile("" : "+r"(block));                           \
        return block;                                                 \
    }
SITE(weights, WEIGHTS)
SITE(optimizer_state, STATE)
SITE(attention, ATTENTION)
SITE(feed_forward, FEED_FORWARD)
SITE(norm, NORM)
SITE(mask, MASK)
SITE(gradient, GRADIENT)
SITE(workspace, WORKSPACE)

#define KIB ((size_t)1024)

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    int steps = atoi(argv[1]), pause = atoi(argv[2]);
    void *blocks[LAYERS][SITES][PARTS];
    size_t sizes[LAYERS][SITES];
    for (int layer = 0; layer < LAYERS; layer++) {
        weights(7168 * KIB);
        optimizer_state(14336 * KIB);
    }
    for (int step = 0; step < steps; step++) {
        size_t batch = 8 + (size_t)(step <= steps / 2 ? step % 8 : step % 5);
        for (int layer = 0; layer < LAYERS; layer++) {
            size_t *size = sizes[layer];
            size[ATTENTION] = batch * 192 * KIB;
            size[FEED_FORWARD] = batch * 768 * KIB;
            size[NORM] = batch * 40 * KIB;
            size[MASK] = batch * 3 * KIB;
            for (int part = 0; part < PARTS; part++) {
                blocks[layer][ATTENTION][part] = attention(size[ATTENTION]);
                void *scratch = workspace(batch * 320 * KIB);
                blocks[layer][NORM][part] = norm(size[NORM]);
                blocks[layer][MASK][part] = mask(size[MASK]);
                give(WORKSPACE, scratch, batch * 320 * KIB);
            }
            blocks[layer][FEED_FORWARD][0] = feed_forward(size[FEED_FORWARD]);
            usleep(pause);
        }
        for (int layer = LAYERS - 1; layer >= 0; layer--) {
            void *of_weights = gradient(7168 * KIB);
            for (int part = 0; part < PARTS; part++) {
                give(ATTENTION, blocks[layer][ATTENTION][part], sizes[layer][ATTENTION]);
                give(NORM, blocks[layer][NORM][part], sizes[layer][NORM]);
                give(MASK, blocks[layer][MASK][part], sizes[layer][MASK]);
            }
            give(FEED_FORWARD, blocks[layer][FEED_FORWARD][0], sizes[layer][FEED_FORWARD]);
            usleep(pause);
            give(GRADIENT, of_weights, 7168 * KIB);
        }
    }
    for (int site = 0; site < SITES; site++) printf("%s %zu\n", names[site], at_peak[site]);
    fflush(stdout);
    return 0;
}
