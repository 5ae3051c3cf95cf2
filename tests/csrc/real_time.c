/* Two threads on one processor: an ordinary one allocates all the time, and a real-time one does now and then. Says how
 * often that one could while the argument's seconds passed: `allocated N`, or `no real-time thread`.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static volatile int over;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void *ordinary(void *unused) {
    while (!over) {
        for (int size = 100; size < 1100; size++) {
            void *volatile block = malloc(size);
            free(block);
        }
    }
    return unused;
}

static void *real_time(void *seconds) {
    double end = now() + atof(seconds);
    long allocated = 0;
    while (now() < end) {
        usleep(500 + allocated * 7 % 500);
        void *volatile block = malloc(50);
        free(block);
        allocated++;
    }
    printf("allocated %ld\n", allocated);
    over = 1;
    return NULL;
}

int main(int count, char **arguments) {
    cpu_set_t one;
    sched_getaffinity(0, sizeof one, &one);
    int processor = CPU_SETSIZE - 1;
    while (!CPU_ISSET(processor, &one)) processor--;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    sched_setaffinity(0, sizeof one, &one);

    pthread_attr_t attributes;
    struct sched_param priority = {.sched_priority = 10};
    pthread_attr_init(&attributes);
    pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
    pthread_attr_setschedpolicy(&attributes, SCHED_FIFO);
    pthread_attr_setschedparam(&attributes, &priority);
    pthread_t low, high;
    pthread_create(&low, NULL, ordinary, NULL);
    if (count < 2 || pthread_create(&high, &attributes, real_time, arguments[1]) != 0) {
        puts("no real-time thread");
        return 0;
    }
    pthread_join(high, NULL);
    pthread_join(low, NULL);
    return 0;
}
