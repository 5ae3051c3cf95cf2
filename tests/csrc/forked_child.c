/* A child that loses as many blocks as it is told to: in main's own frame, or in a function that has returned. What its
 * last pointer still lies in depends on how it was compiled. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void lose(int blocks) {
    for (int at = 0; at < blocks; at++) {
        char *volatile block = malloc(1000 + (size_t)at);
        block[0] = 1;
    }
}

int main(int count, char **values) {
    if (count != 3) {
        return 2;
    }
    int blocks = atoi(values[2]);
    pid_t child = fork();
    if (child == 0) {
        if (strcmp(values[1], "function") == 0) {
            lose(blocks);
        } else {
            for (int at = 0; at < blocks; at++) {
                char *volatile block = malloc(1000 + (size_t)at);
                block[0] = 1;
            }
        }
        exit(0);
    }
    int status;
    return waitpid(child, &status, 0) == child ? 0 : 1;
}
