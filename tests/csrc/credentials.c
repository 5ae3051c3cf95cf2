// Gives up root while the pool has a thread of its own. Usage: credentials libc|raw; "raw" changes the calling thread alone,
// which the C library never does. Prints a line for each thread: its uids, gids and groups.
#define _GNU_SOURCE
#include <dirent.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "threads.h"

#define NOBODY 65534

// Leaves idle memory behind until there is a second thread.
static void wake_scavenger(void) {
    do {
        leave_idle_memory();
    } while (threads() == 1);
}

static void print(const char *thread) {
    char path[512], line[256], out[1024] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/status", thread);
    FILE *status = fopen(path, "r");
    if (!status) return;  // it has just ended
    while (fgets(line, sizeof line, status))
        if (!strncmp(line, "Uid:", 4) || !strncmp(line, "Gid:", 4) || !strncmp(line, "Groups:", 7))
            strncat(out, strtok(line, "\n"), sizeof out - strlen(out) - 1);
    fclose(status);
    if (out[0]) printf("THREAD %s %s\n", thread, out);
}

static void print_all(const char *title) {
    printf("%s\n", title);
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; (task = readdir(tasks));)
        if (task->d_name[0] != '.') print(task->d_name);
    closedir(tasks);
}

// Whether a thread still has the credentials that the process began with.
static int root_is_left(void) {
    DIR *tasks = opendir("/proc/self/task");
    int left = 0;
    for (struct dirent *task; (task = readdir(tasks));) {
        char path[512];
        struct stat owner;
        snprintf(path, sizeof path, "/proc/self/task/%s", task->d_name);
        left |= task->d_name[0] != '.' && !stat(path, &owner) && owner.st_uid == 0;
    }
    closedir(tasks);
    return left;
}

int main(int argc, char **argv) {
    int raw = argc > 1 && !strcmp(argv[1], "raw");
    wake_scavenger();
    print_all("BEFORE");
    if (raw) {
        if (syscall(SYS_setgroups, 0, NULL) || syscall(SYS_setgid, NOBODY) || syscall(SYS_setuid, NOBODY)) return 1;
        // The thread notices when it next wakes. Another one may take its place at once.
        while (root_is_left()) usleep(1000);
    } else if (setgroups(0, NULL) || setgid(NOBODY) || setuid(NOBODY)) {
        return 1;
    }
    print_all("AFTER");
    wake_scavenger();
    print_all("AGAIN");
    return 0;
}
