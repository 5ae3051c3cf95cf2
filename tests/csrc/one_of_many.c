/* A program of twenty threads that wait, and of one that allocates as fast as it can. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void *waits(void *nothing) {
    free(malloc(100));
    pause();
    return nothing;
}

int main(void) {
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, waits, NULL);
    }
    usleep(100000);
    for (int i = 0; i < 2000000; i++) {
        char *volatile block = malloc(4000);
        *block = 1;
        free(block);
    }
    puts("ready");
    fflush(stdout);
    getchar();
    return 0;
}
