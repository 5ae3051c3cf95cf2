/* A program that has device memory, says what the pool counts, and goes on until its standard input ends. */
#include <stdio.h>
#include <stdlib.h>

#include "poolscope_gpu.h"

int main(void) {
    static char text[1 << 14];
    for (int i = 0; i < 100; i++) {
        void *block = poolscope_gpu_alloc(0, 3 << 20, NULL);
        if (!block || (i >= 10 && poolscope_gpu_free(0, block, NULL) != 0)) abort();
    }
    if (poolscope_gpu_stats_json(0, text, sizeof text) >= sizeof text) abort();
    puts(text);
    fflush(stdout);
    while (getchar() != EOF) {}
    return 0;
}
