/* The threads of this process, the pool's own among them. */
#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

static int threads(void) {
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    while (readdir(tasks)) count++;
    closedir(tasks);
    return count - 2;
}

/* Leaves idle memory behind, which wakes the pool's thread, and gives it time to start. */
static void leave_idle_memory(void) {
    volatile char *block = malloc(32 << 20);
    for (int at = 0; at < 32 << 20; at += 4096) block[at] = 1;
    free((void *)block);
    usleep(1000);
}
