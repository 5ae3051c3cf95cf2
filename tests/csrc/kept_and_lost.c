// Keeps as many blocks as the first argument says, and loses five of 1,000 bytes.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void **kept;

int main(int count, char **arguments) {
    long blocks = count > 1 ? atol(arguments[1]) : 0;
    kept = calloc(blocks, sizeof *kept);
    for (long block = 0; block < blocks; block++) kept[block] = malloc(32);
    for (int block = 0; block < 5; block++) {
        char *volatile lost = malloc(1000);
        memset(lost, 1, 1000);
    }
    puts("done");
    return kept == NULL;
}
