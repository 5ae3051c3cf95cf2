/* A buffer lies where an array of pointers was, and the program never writes to it; blocks that it loses lie where these
 * pointers point. */
#include <stdlib.h>

enum { BLOCKS = 40, POINTERS = 1000 };

static char *buffer;

int main(void) {
    char **array = malloc(POINTERS * sizeof *array);
    char *volatile blocks[BLOCKS];
    for (int at = 0; at < BLOCKS; at++) {
        blocks[at] = malloc(3000);
    }
    for (int at = 0; at < POINTERS; at++) {
        array[at] = blocks[at % BLOCKS] + 100;
    }
    for (int at = 0; at < BLOCKS; at++) {
        free(blocks[at]);
        blocks[at] = NULL;
    }
    free(array);
    buffer = malloc(POINTERS * sizeof *array);
    for (int at = 0; at < BLOCKS; at++) {
        char *volatile lost = malloc(3000);
        lost[0] = 1;
        lost = NULL;
    }
    return buffer == NULL;
}
