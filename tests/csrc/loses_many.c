// Loses 120 blocks of 1 to 120 bytes, from as many call paths. With an argument it waits then for the end of its input.
#include <stdio.h>
#include <stdlib.h>

enum { PATHS = 120 };

__attribute__((noinline)) static void lose(int depth, size_t bytes) {
    if (depth) lose(depth - 1, bytes);
    else {
        void *volatile lost = malloc(bytes);
        (void)lost;
        lost = NULL;
    }
    __asm__ volatile("" ::: "memory");
}

// What is left of the calls on the stack would hold some.
__attribute__((noinline)) static void wipe(void) {
    volatile char stack[1 << 16];
    for (size_t i = 0; i < sizeof stack; i++) stack[i] = 0;
}

int main(int argc, char **argv) {
    (void)argv;
    setvbuf(stdout, NULL, _IONBF, 0);
    setvbuf(stdin, NULL, _IONBF, 0);
    for (int i = 0; i < PATHS; i++) lose(i, (size_t)i + 1);
    wipe();
    if (argc > 1) {
        puts("ready");
        while (getchar() != EOF) {}
    }
    return 0;
}
