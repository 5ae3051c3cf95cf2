/* Many blocks, of which few stay: what was noted of the others has to go with them. Waits for a line after each it prints. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCKS = 400000, AGAIN = 100000, STAYS = 20000 };

static char *blocks[BLOCKS];

static void say(const char *line) {
    printf("%s\n", line);
    fflush(stdout);
    getchar();
}

__attribute__((noinline)) static void hold(int from, int to) {
    for (int i = from; i < to; i++)
        if (blocks[i] == NULL) memset(blocks[i] = malloc(48), 1, 48);
}

int main(void) {
    /* So that the array counts from the start. */
    memset(blocks, 1, sizeof blocks);
    memset(blocks, 0, sizeof blocks);
    free(malloc(48));
    say("BASE");
    hold(0, BLOCKS);
    say("PEAK");
    for (int i = 0; i < BLOCKS; i++) {
        if (i % STAYS == 7) continue;
        free(blocks[i]);
        blocks[i] = NULL;
    }
    say("FREED");
    hold(0, AGAIN);
    say("AGAIN");
    return 0;
}
