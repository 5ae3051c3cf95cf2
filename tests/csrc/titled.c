/* A server that forks workers and writes their titles over the arguments and the environment, as postgres, nginx and
 * setproctitle do. With an argument its worker may make short files only. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void *blocks[1024];

/* Writes the title over all that lies between the first argument and the last variable. */
static void set_title(char *first, char *end, const char *title) {
    memset(first, 0, (size_t)(end - first));
    strncpy(first, title, (size_t)(end - first) - 1);
}

int main(int count, char **values) {
    char *end = values[0];
    for (char **at = environ; *at; at++) {
        end = *at + strlen(*at) + 1;
    }
    char **copy = calloc(1024, sizeof *copy);
    for (int at = 0; at < 1023 && environ[at]; at++) {
        copy[at] = strdup(environ[at]);
    }
    environ = copy;
    /* Readers tell the two apart by the tick of 10 ms in which each began. */
    usleep(100000);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit little = {4096, 4096};
        if (count > 1 && setrlimit(RLIMIT_FSIZE, &little) != 0) {
            return 2;
        }
        set_title(values[0], end, "titled: starts");
        for (int at = 0; at < 1024; at++) {
            blocks[at] = malloc(8192);
        }
        set_title(values[0], end, "titled: worker");
        printf("READY %d\n", (int)getpid());
        fflush(stdout);
        getchar();
        _exit(0);
    }
    int status;
    return waitpid(child, &status, 0) == child ? 0 : 1;
}
