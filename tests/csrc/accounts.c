/* Has a known amount of memory that is not the pool's: maps BYTES of its own and writes to each page, holds as many bytes
 * in blocks, and frees COUNT more blocks of 2000 bytes again. Says where its mapping is, and waits.
 *
 * BYTES COUNT      the arguments */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

enum { MOST = 1 << 20, BLOCK = 4000 };

static void *blocks[MOST], *freed[MOST];

int main(int argc, char **argv) {
    CHECK(argc == 3);
    size_t bytes = (size_t)atol(argv[1]);
    long count = (long)(bytes / BLOCK), more = atol(argv[2]);
    CHECK(count <= MOST && more <= MOST);
    char *own = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(own != MAP_FAILED);
    memset(own, 1, bytes);
    for (long i = 0; i < count; i++) memset(blocks[i] = malloc(BLOCK), 1, BLOCK);
    for (long i = 0; i < more; i++) memset(freed[i] = malloc(2000), 1, 2000);
    sleep(1);
    for (long i = 0; i < more; i++) free(freed[i]);
    char line[32];
    int length = snprintf(line, sizeof line, "own %p\n", (void *)own);
    CHECK(write(1, line, (size_t)length) == length);
    CHECK(read(0, line, 1) == 0);
    return 0;
}
