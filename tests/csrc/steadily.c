/* Threads that each allocate and free so many blocks a second, whatever else the machine does, and have used many sizes
 * before. Prints "up" when all of them have begun.
 *
 * usage: steadily THREADS BYTES BLOCKS_A_SECOND */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long bytes, rate;
static pthread_barrier_t all;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void one(size_t size) {
    char *volatile block = malloc(size);
    block[0] = 1;
    free(block);
}

static void *work(void *unused) {
    const struct timespec pause = {0, 20000000};
    for (size_t size = 16; size < 3000; size += 16) one(size);
    pthread_barrier_wait(&all);
    double start = now();
    long made = 0;
    for (;;) {
        for (long due = (now() - start) * rate; made < due; made++) one(bytes);
        nanosleep(&pause, NULL);
    }
    return unused;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    int threads = atoi(argv[1]);
    bytes = atol(argv[2]);
    rate = atol(argv[3]);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 128 << 10);
    pthread_barrier_init(&all, NULL, threads + 1);
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, work, NULL) != 0) return 1;
    }
    pthread_barrier_wait(&all);
    puts("up");
    fflush(stdout);
    for (;;) nanosleep(&(struct timespec){1000, 0}, NULL);
}
