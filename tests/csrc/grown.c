/* Buffers that grow in place by small steps.
 *
 * usage: grown one FILE: one grows by 1,200 bytes again and again until the program is killed; FILE has its bytes
 *        grown many COUNT: many grow from 300,000 bytes to their own sizes, every third one shrinking now and then;
 *                          says what they have, and waits for a line
 *        grown threads COUNT: each of 64 threads keeps so many of 300,000 bytes that grow in place once, by 64 KiB; says
 *                             how many did not, then what they have, and waits for a line */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void one(const char *path) {
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof(size_t)) != 0) exit(1);
    volatile size_t *told = mmap(NULL, sizeof(size_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (told == MAP_FAILED) exit(1);
    char *buffer = NULL;
    for (size_t bytes = 1200; bytes < 2000000000; bytes += 1200) {
        buffer = realloc(buffer, bytes);
        memset(buffer + bytes - 1200, 1, 1200);
        *told = bytes;
    }
    pause();
}

static void many(int count) {
    char **buffers = calloc(count, sizeof *buffers);
    size_t *sizes = calloc(count, sizeof *sizes), sum = 0;
    for (int i = 0; i < count; i++) buffers[i] = malloc(sizes[i] = 300000);
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < count; i++) {
            if (i % 3 == 0 && round % 8 == 0) buffers[i] = realloc(buffers[i], sizes[i] - sizes[i] / 4);
            buffers[i] = realloc(buffers[i], sizes[i] += i * 7919L % 16000);
        }
    }
    for (int i = 0; i < count; i++) sum += sizes[i];
    printf("grown %zu\n", sum);
    fflush(stdout);
    getchar();
}

enum { THREADS = 64 };

/* One thread at a time: nobody else takes what is free behind a block. */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t all;
static size_t kept, moved;
static void *volatile used;

static void *keep(void *count) {
    for (long i = 0; i < (long)count; i++) {
        pthread_mutex_lock(&turn);
        char *buffer = malloc(300000);
        used = malloc(1 << 20);
        free(used);
        char *grown = realloc(buffer, 365536);
        moved += (size_t)grown != (size_t)buffer;
        used = grown;
        kept += 365536;
        pthread_mutex_unlock(&turn);
    }
    pthread_barrier_wait(&all);
    pause();
    return NULL;
}

static void threads(long count) {
    pthread_barrier_init(&all, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, keep, (void *)count) != 0) exit(1);
    }
    pthread_barrier_wait(&all);
    printf("moved %zu\ngrown %zu\n", moved, kept);
    fflush(stdout);
    getchar();
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    if (strcmp(argv[1], "one") == 0)
        one(argv[2]);
    else if (strcmp(argv[1], "threads") == 0)
        threads(atol(argv[2]));
    else
        many(atoi(argv[2]));
    return 0;
}
