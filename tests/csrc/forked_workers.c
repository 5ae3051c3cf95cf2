/* Forks four children that each do the same: allocate 200 blocks of 100,000 bytes and keep them. Prints their ids once all
 * have done so, and ends them when its standard input ends. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { WORKERS = 4, BLOCKS = 200, SIZE = 100000 };

static void *kept[BLOCKS];

static void keep(void) {
    for (int at = 0; at < BLOCKS; at++) memset(kept[at] = malloc(SIZE), 1, SIZE);
}

int main(void) {
    pid_t workers[WORKERS];
    int done[2];
    char byte = 0;
    CHECK(pipe(done) == 0);
    free(malloc(SIZE));
    for (int at = 0; at < WORKERS; at++) {
        workers[at] = fork();
        CHECK(workers[at] >= 0);
        if (workers[at] == 0) {
            keep();
            CHECK(write(done[1], "", 1) == 1);
            for (;;) pause();
        }
    }
    for (int at = 0; at < WORKERS; at++) CHECK(read(done[0], &byte, 1) == 1);
    printf("workers %d %d %d %d\n", workers[0], workers[1], workers[2], workers[3]);
    fflush(stdout);
    while (read(0, &byte, 1) > 0) continue;
    for (int at = 0; at < WORKERS; at++) {
        kill(workers[at], SIGKILL);
        waitpid(workers[at], NULL, 0);
    }
    return 0;
}
