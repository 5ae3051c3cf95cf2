// Programs whose every allocation is known: traced WHAT [N]
//
//   calls      each way to allocate, so often; prints what each function did as "NAME allocations bytes frees"
//   handover N [T]  T threads, or two, that free each other's blocks, N each
//   regain N   N blocks of a thread's, freed by a second one, and allocated again by a third one
//   steps      a thousand blocks for each line of standard input; "end" ends it
//   fork       a child that allocates as much as its parent
//   stacks N   N blocks, each from a call path of its own
//   spin       allocates and frees until it is killed
//   reuse N    allocates and frees a block of N bytes every tenth of a millisecond, until it is killed
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))
#define KEEP(block) __asm__ volatile("" : "+r"(block) : : "memory")

enum { COUNT = 1000 };
static void *held[COUNT];

static APART void with_malloc(void) {
    for (int i = 0; i < COUNT; i++) {
        held[i] = malloc(1 + i % 2000);
        KEEP(held[i]);
    }
}

static APART void with_calloc(void) {
    for (int i = 0; i < COUNT; i++) {
        void *block = calloc(3, 40);
        KEEP(block);
        free(block);
    }
}

// Grows each block from 8 bytes to 8 KiB, in place and by moving: each call is an allocation and a free.
static APART void with_realloc(void) {
    for (int i = 0; i < 100; i++) {
        char *block = NULL;
        for (size_t size = 8; size <= 8192; size *= 2) {
            block = realloc(block, size);
            KEEP(block);
        }
        // Smaller, but not by half.
        block = realloc(block, 8000);
        KEEP(block);
        free(block);
    }
}

static APART void with_memalign(void) {
    for (int i = 0; i < COUNT; i++) {
        void *block = NULL;
        if (posix_memalign(&block, 256, 500) != 0) abort();
        KEEP(block);
        free(block);
    }
}

static APART void with_large(void) {
    for (int i = 0; i < 50; i++) {
        char *block = malloc(3 << 20);
        KEEP(block);
        block = realloc(block, 9 << 20);
        KEEP(block);
        free(block);
    }
}

static APART void free_held(void) {
    for (int i = 0; i < COUNT; i++) free(held[i]);
}

static void calls(void) {
    size_t bytes = 0;
    for (int i = 0; i < COUNT; i++) bytes += 1 + i % 2000;
    with_malloc();
    with_calloc();
    with_realloc();
    with_memalign();
    with_large();
    free_held();
    size_t grown = 8000;
    for (size_t size = 8; size <= 8192; size *= 2) grown += size;
    printf("with_malloc %d %zu %d\n", COUNT, bytes, COUNT);
    printf("with_calloc %d %d %d\n", COUNT, COUNT * 120, COUNT);
    printf("with_realloc %d %zu %d\n", 100 * 12, 100 * grown, 100 * 12);
    printf("with_memalign %d %d %d\n", COUNT, COUNT * 500, COUNT);
    printf("with_large %d %d %d\n", 100, 50 * (12 << 20), 100);
}

// Slots through which blocks change threads.
enum { SLOTS = 64 };
static void *volatile slots[2][SLOTS];

static APART void exchange(int me, long count) {
    uint32_t random = 12345 + me;
    for (long i = 0; i < count; i++) {
        random = random * 1664525 + 1013904223;
        void *block = malloc(16 + random % 500);
        KEEP(block);
        free(__atomic_exchange_n(&slots[random >> 20 & 1][random >> 8 & (SLOTS - 1)], block, __ATOMIC_ACQ_REL));
    }
}

static long exchanges;

static void *worker(void *me) {
    exchange((int)(intptr_t)me, exchanges);
    return NULL;
}

enum { MOST_THREADS = 64 };

static void handover(long count, int among) {
    exchanges = count;
    if (among > MOST_THREADS) abort();
    pthread_t threads[MOST_THREADS];
    for (intptr_t me = 0; me < among; me++)
        if (pthread_create(&threads[me], NULL, worker, (void *)me) != 0) abort();
    for (int me = 0; me < among; me++) pthread_join(threads[me], NULL);
    int left = 0;
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < SLOTS; i++) left += slots[side][i] != NULL;
    printf("exchange %ld 0 %ld\n", among * count, among * count - left);
}

// One block at a time goes round: of one worker, to another one that frees it, and its memory to the main thread.
static sem_t wanted, made, freed;
static char *volatile passed;
static long rounds;

static APART void *by_worker(void *unused) {
    for (long i = 0; i < rounds; i++) {
        sem_wait(&wanted);
        passed = malloc(1 << 20);
        sem_post(&made);
    }
    return unused;
}

static APART void *by_other(void *unused) {
    for (long i = 0; i < rounds; i++) {
        sem_wait(&made);
        free(passed);
        sem_post(&freed);
    }
    return unused;
}

static APART int by_main(void) {
    char *block = malloc(1 << 20);
    KEEP(block);
    return block == passed;
}

static void regain(long count) {
    rounds = count;
    sem_init(&wanted, 0, 0);
    sem_init(&made, 0, 0);
    sem_init(&freed, 0, 0);
    pthread_t worker, other;
    if (pthread_create(&worker, NULL, by_worker, NULL) != 0 || pthread_create(&other, NULL, by_other, NULL) != 0) abort();
    long same = 0;
    for (long i = 0; i < count; i++) {
        sem_post(&wanted);
        sem_wait(&freed);
        same += by_main();
    }
    pthread_join(worker, NULL);
    pthread_join(other, NULL);
    if (same == 0) abort();
    printf("by_worker %ld 0 %ld\nby_main %ld 0 0\n", count, count, count);
}

static APART void step(void) {
    with_malloc();
    free_held();
}

static void steps(void) {
    char line[64];
    printf("ready\n");
    fflush(stdout);
    for (int done = 0; fgets(line, sizeof line, stdin) != NULL && strcmp(line, "end\n") != 0;) {
        step();
        printf("step %d\n", ++done);
        fflush(stdout);
    }
}

// Has a frame of its own: the call is not its last act.
static APART void of_the_child(void) {
    with_malloc();
    KEEP(held[0]);
}

static void forks(void) {
    const pid_t child = fork();
    if (child < 0) abort();
    if (child == 0) {
        of_the_child();
        _exit(0);
    }
    step();
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) abort();
    printf("with_malloc %d 0 %d\n", COUNT, COUNT);
}

static APART void *descend(unsigned path, unsigned turns);

static APART void *to_the_left(unsigned path, unsigned turns) {
    void *block = descend(path >> 1, turns - 1);
    KEEP(block);
    return block;
}

static APART void *to_the_right(unsigned path, unsigned turns) {
    void *block = descend(path >> 1, turns - 1);
    KEEP(block);
    return block;
}

static APART void *descend(unsigned path, unsigned turns) {
    void *block = turns == 0 ? malloc(24) : path & 1 ? to_the_right(path, turns) : to_the_left(path, turns);
    KEEP(block);
    return block;
}

static void stacks(long count) {
    for (long path = 0; path < count; path++) free(descend(path, 20));
    printf("descend %ld %ld %ld\n", count, 24 * count, count);
}

static void spin(void) {
    printf("spinning\n");
    fflush(stdout);
    for (;;) step();
}

static APART void reuse(size_t bytes) {
    printf("reusing\n");
    fflush(stdout);
    for (;;) {
        void *block = malloc(bytes);
        KEEP(block);
        free(block);
        usleep(100);
    }
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    const long count = argc > 2 ? atol(argv[2]) : 0;
    if (strcmp(what, "calls") == 0) calls();
    else if (strcmp(what, "handover") == 0) handover(count, argc > 3 ? atoi(argv[3]) : 2);
    else if (strcmp(what, "regain") == 0) regain(count);
    else if (strcmp(what, "steps") == 0) steps();
    else if (strcmp(what, "fork") == 0) forks();
    else if (strcmp(what, "stacks") == 0) stacks(count);
    else if (strcmp(what, "spin") == 0) spin();
    else if (strcmp(what, "reuse") == 0) reuse((size_t)count);
    else return 2;
    return 0;
}
