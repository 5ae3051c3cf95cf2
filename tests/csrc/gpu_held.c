/* A program that holds so much device memory, and says who has it: "NAME bytes" for each function, then "ready". Sizes are
 * those of the pool's blocks, so that nothing is rounded but the first block of 600 KiB. It ends when its standard input
 * does. */
#include <stdio.h>
#include <stdlib.h>

#include "poolscope_gpu.h"

#define APART __attribute__((noinline, noclone))

static void hold(const char *name, int blocks, size_t size) {
    for (int i = 0; i < blocks; i++) {
        if (poolscope_gpu_alloc(0, size, NULL) == NULL) abort();
    }
    printf("%s %zu\n", name, blocks * size);
    __asm__ volatile("" : : : "memory");
}

static APART void hold_weights(void) { hold("hold_weights", 40, 8 << 20); __asm__ volatile(""); }
static APART void hold_buffers(void) { hold("hold_buffers", 3000, 64 << 10); __asm__ volatile(""); }
static APART void hold_medium(void) { hold("hold_medium", 200, 600 << 10); __asm__ volatile(""); }
static APART void hold_small(void) { hold("hold_small", 20000, 4 << 10); __asm__ volatile(""); }
static APART void hold_little(void) { hold("hold_little", 20, 256 << 10); __asm__ volatile(""); }

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 1 << 16);
    hold_little();
    hold_weights();
    hold_buffers();
    hold_medium();
    hold_small();
    puts("ready");
    while (getchar() != EOF) {}
    return 0;
}
