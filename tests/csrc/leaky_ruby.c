/* A function that Ruby calls, which takes memory by malloc and loses it. */
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) static void lose_a_block(size_t bytes)
{
    void *volatile block = malloc(bytes);
    memset(block, 1, bytes);
}

void lose(int bytes) { lose_a_block((size_t)bytes); }
