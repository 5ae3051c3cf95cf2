/* Allocates from many call paths: many_sites COUNT. Keeps a block of each, says "ready COUNT", and then works: it frees a
 * block and allocates the next from the same path, over and over. Each second it says how much processor time a
 * thousand of these took, in nanoseconds: "work 123456". Ends when its input does. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void **kept;

#define KEEP __asm__ volatile("" ::: "memory")

__attribute__((noinline)) static void zero(unsigned long path, unsigned long at, int left);
__attribute__((noinline)) static void one(unsigned long path, unsigned long at, int left);

__attribute__((always_inline)) static inline void go_on(unsigned long path, unsigned long at, int left) {
    if (left == 0) {
        free(kept[at]);
        kept[at] = malloc(48 + at % 64 * 8);
    } else if (path & 1) {
        one(path >> 1, at, left - 1);
    } else {
        zero(path >> 1, at, left - 1);
    }
    KEEP;
}

static void zero(unsigned long path, unsigned long at, int left) {
    go_on(path, at, left);
    KEEP;
}

static void one(unsigned long path, unsigned long at, int left) {
    go_on(path, at, left);
    KEEP;
}

static long long now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(int argc, char **argv) {
    unsigned long count = argc > 1 ? strtoul(argv[1], NULL, 10) : 20000;
    int depth = 0;
    while (1UL << depth < count) depth++;
    kept = calloc(count, sizeof *kept);
    for (unsigned long path = 0; path < count; path++) go_on(path, path, depth);
    printf("ready %lu\n", count);
    fflush(stdout);
    fcntl(0, F_SETFL, fcntl(0, F_GETFL) | O_NONBLOCK);
    unsigned long at = 0, worked = 0;
    long long said = now(CLOCK_MONOTONIC), used = now(CLOCK_PROCESS_CPUTIME_ID);
    for (char end; read(0, &end, 1) != 0;) {
        for (int times = 0; times < 1000; times++, at = (at + 7919) % count) go_on(at, at, depth);
        worked++;
        struct timespec pause = {0, 1000000};
        nanosleep(&pause, NULL);
        if (now(CLOCK_MONOTONIC) - said >= 1000000000LL) {
            long long use = now(CLOCK_PROCESS_CPUTIME_ID);
            printf("work %lld\n", (use - used) / (long long)worked);
            fflush(stdout);
            said = now(CLOCK_MONOTONIC), used = use, worked = 0;
        }
    }
    return 0;
}
