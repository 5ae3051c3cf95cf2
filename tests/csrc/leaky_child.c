// Processes that lose blocks, and processes that end in ways that nobody sees: leaky_child HOW [N]
//
//   fork N     a forked child loses N blocks of 1,000 bytes, from lose_blocks, and exits
//   grandchild N  a child of that child does, after the child has lost one block itself
//   quick      ends by quick_exit
//   raw        ends by the system call
//   killed     kills itself
//   fork-killed  a child kills itself, and the parent exits with 0
//   prints     writes a line to standard output, and exits with 0
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void *volatile last;

__attribute__((noinline)) static void lose_blocks(int blocks) {
    for (int i = 0; i < blocks; i++) last = malloc(1000);
    last = NULL;
}

// In the child, returns 0. In the parent, waits for the child, and returns 1 if it exited with 0 or was killed.
static int fork_and_wait(void) {
    const pid_t child = fork();
    if (child < 0) abort();
    if (child == 0) return 0;
    int status = 0;
    if (waitpid(child, &status, 0) != child || (WIFEXITED(status) && WEXITSTATUS(status) != 0)) abort();
    return 1;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    const int blocks = argc > 2 ? atoi(argv[2]) : 0;
    if (strcmp(how, "fork") == 0) {
        if (!fork_and_wait()) lose_blocks(blocks);
    } else if (strcmp(how, "grandchild") == 0) {
        if (!fork_and_wait()) {
            lose_blocks(1);
            if (!fork_and_wait()) lose_blocks(blocks);
        }
    } else if (strcmp(how, "quick") == 0) {
        quick_exit(0);
    } else if (strcmp(how, "raw") == 0) {
        syscall(SYS_exit_group, 0);
    } else if (strcmp(how, "killed") == 0) {
        raise(SIGKILL);
    } else if (strcmp(how, "fork-killed") == 0) {
        if (!fork_and_wait()) {
            free(malloc(1000));
            raise(SIGKILL);
        }
    } else if (strcmp(how, "prints") == 0) {
        printf("a line that is no JSON\n");
    } else {
        return 2;
    }
    return 0;
}
