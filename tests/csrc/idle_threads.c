/* Threads that each allocate and free for a while, hold sixteen blocks of 500 bytes then, and sleep. Says `holds BLOCKS`
 * once all of them do, and ends with its input.
 *
 * usage: idle_threads THREADS
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HELD = 16, SIZE = 500 };

static pthread_barrier_t all;

static void *work(void *unused) {
    char *held[HELD] = {0};
    unsigned seed = 1;
    for (int i = 0; i < 3000; i++) {
        seed = seed * 1664525u + 1013904223u;
        int at = i % HELD;
        free(held[at]);
        size_t size = i < 3000 - HELD ? 16 + (seed >> 8) % 2000 : SIZE;
        memset(held[at] = malloc(size), 1, size);
    }
    pthread_barrier_wait(&all);
    for (;;) pause();
    return unused;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 128 << 10);
    pthread_barrier_init(&all, NULL, (unsigned)threads + 1);
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, work, NULL) != 0) return 1;
    }
    pthread_barrier_wait(&all);
    char said[64];
    int length = snprintf(said, sizeof said, "holds %d\n", threads * HELD);
    if (write(1, said, (size_t)length) != length) return 1;
    while (read(0, said, sizeof said) > 0) {}
    _exit(0);
}
