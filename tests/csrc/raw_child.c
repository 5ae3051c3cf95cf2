/* A child that a program makes by the bare system call, after the pool's own thread has begun in the parent: it has none,
 * and what it frees goes back nevertheless.
 *
 * usage: raw_child SIZE...   takes and frees 300 MB in blocks of each size; prints what stays, in KiB */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static long resident(void) {
    long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    CHECK(statm != NULL && fscanf(statm, "%*d %ld", &pages) == 1);
    fclose(statm);
    return pages * 4;
}

static void take_and_free(size_t bytes, size_t size) {
    size_t blocks = bytes / size;
    char **all = malloc(blocks * sizeof *all);
    for (size_t i = 0; i < blocks; i++) {
        CHECK((all[i] = malloc(size)) != NULL);
        memset(all[i], 1, size);
    }
    for (size_t i = 0; i < blocks; i++) free(all[i]);
    free(all);
}

int main(int argc, char **argv) {
    take_and_free(40000000, 100000);
    usleep(20 * 1000);
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        for (int i = 1; i < argc; i++) {
            take_and_free(300000000, strtoul(argv[i], NULL, 10));
            printf("%s: %ld KiB\n", argv[i], resident());
        }
        fflush(stdout);
        _exit(failed_checks);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return failed_checks;
}
