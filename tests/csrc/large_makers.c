/* Two threads: one allocates and frees blocks of a mebibyte, one allocates small blocks. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LARGE = 500, SMALL = 20000, MIB = 1 << 20 };

static pthread_barrier_t done;

static void *large(void *tid) {
    *(long *)tid = syscall(SYS_gettid);
    for (int i = 0; i < LARGE; i++) {
        char *volatile block = malloc(MIB);
        *block = 1;
        free(block);
    }
    pthread_barrier_wait(&done);
    pause();
    return NULL;
}

static void *small(void *tid) {
    *(long *)tid = syscall(SYS_gettid);
    for (int i = 0; i < SMALL; i++) {
        char *volatile block = malloc(1000);
        *block = 1;
        free(block);
    }
    pthread_barrier_wait(&done);
    pause();
    return NULL;
}

int main(void) {
    long tids[2];
    pthread_t threads[2];
    pthread_barrier_init(&done, NULL, 3);
    pthread_create(&threads[0], NULL, large, &tids[0]);
    pthread_create(&threads[1], NULL, small, &tids[1]);
    pthread_barrier_wait(&done);
    printf("large %ld small %ld\n", tids[0], tids[1]);
    fflush(stdout);
    getchar();
    return 0;
}
