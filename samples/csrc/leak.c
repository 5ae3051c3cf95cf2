/* Leaks on request: `leak KIB` loses KIB blocks of 1 KiB from lose_blocks, in keep_and_lose; `leak 0` is clean.
 * `leak KIB CODE` exits with CODE.
 */
#include <stdlib.h>
#include <string.h>

static void *volatile last;

__attribute__((noinline)) static void lose_blocks(int blocks) {
    for (int i = 0; i < blocks; i++) {
        last = malloc(1024);
        memset(last, i, 1024);
    }
    last = 0;
}

__attribute__((noinline)) static void use_and_free(int blocks) {
    for (int i = 0; i < blocks; i++) {
        void *block = malloc(100 + i);
        memset(block, i, 100 + i);
        last = block;
        free(block);
    }
    last = 0;
}

int main(int argc, char **argv) {
    use_and_free(1000);
    lose_blocks(argc > 1 ? atoi(argv[1]) : 0);
    return argc > 2 ? atoi(argv[2]) : 0;
}
