/* Ends by the bare system call: in its first thread, or with an argument in another one, after the first has ended so. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BLOCKS = 2000, BYTES = 10000 };

static void *other(void *unused) {
    usleep(300000);
    syscall(SYS_exit, 3);
    return unused;
}

int main(int argc, char **argv) {
    char *blocks[BLOCKS];
    (void)argv;
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(BYTES);
        memset(blocks[i], 1, BYTES);
    }
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    /* The pool has a thread by now. */
    usleep(20000);
    pthread_t thread;
    if (argc > 1 && pthread_create(&thread, NULL, other, NULL) != 0) return 1;
    syscall(SYS_exit, 3);
}
