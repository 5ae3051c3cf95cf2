// A program that checks itself by poolscope_heapcheck.h. Each line says what a call returned.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "poolscope_heapcheck.h"

// What it points to was there before the scopes.
static void *volatile *held;
static int at;
static char *volatile cache;
static __thread char *volatile local;
// A structure of places, not all of which are in use.
static void *volatile places[64];
enum { TRIES = 1000 };

static void hold(size_t size) { held[at++] = malloc(size); }

static void *elsewhere(void *unused) {
    hold(5000);
    return unused;
}

static void say(const char *what, int returned, const struct poolscope_heapcheck_result *result) {
    printf("%s %d %llu %llu\n", what, returned, (unsigned long long)result->blocks, (unsigned long long)result->bytes);
}

__attribute__((noinline)) static void lose(void) {
    void *volatile p = malloc(77);
    p = NULL;
    (void)p;
}

__attribute__((noinline)) static void scrub(void) {
    volatile char bytes[16384];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = 0;
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 512);
    struct poolscope_heapcheck_result result;
    held = calloc(16, sizeof *held);
    // What the C library keeps for a thread's stack it keeps for the next one.
    pthread_t thread;
    if (pthread_create(&thread, NULL, elsewhere, NULL) != 0 || pthread_join(thread, NULL) != 0) abort();

    uint64_t scope = poolscope_heapcheck_begin();
    free(malloc(100));
    say("clean", poolscope_heapcheck_end(scope, NULL, &result), &result);

    // An inner scope's blocks are its own, and those of other threads nobody's here.
    uint64_t outer = poolscope_heapcheck_begin();
    hold(10);
    uint64_t inner = poolscope_heapcheck_begin();
    hold(20);
    hold(30);
    if (pthread_create(&thread, NULL, elsewhere, NULL) != 0 || pthread_join(thread, NULL) != 0) abort();
    say("inner", poolscope_heapcheck_end(inner, NULL, &result), &result);
    hold(40);
    say("outer", poolscope_heapcheck_end(outer, NULL, &result), &result);
    hold(50);

    struct poolscope_heapcheck_limits limits = {2, 100};
    scope = poolscope_heapcheck_begin();
    hold(60);
    hold(40);
    say("within", poolscope_heapcheck_end(scope, &limits, &result), &result);
    scope = poolscope_heapcheck_begin();
    hold(101);
    say("over", poolscope_heapcheck_end(scope, &limits, &result), &result);
    // What is made when it is first needed, and what it points to, is no leak; what has grown is one.
    scope = poolscope_heapcheck_begin();
    cache = malloc(70);
    *(void **)cache = malloc(30);
    local = malloc(20);
    say("lazy", poolscope_heapcheck_end(scope, NULL, &result), &result);
    scope = poolscope_heapcheck_begin();
    cache = realloc(cache, 5000);
    say("grown", poolscope_heapcheck_end(scope, NULL, &result), &result);
    // An address of old, which moves with a structure's unused places, is none of a block that has it by chance.
    void *others[TRIES];
    places[0] = malloc(7777);
    free(places[0]);
    scope = poolscope_heapcheck_begin();
    places[9] = places[0];
    places[0] = NULL;
    int tries = 0;
    while (tries < TRIES && (others[tries] = malloc(7777)) != places[9]) tries++;
    while (tries-- > 0) free(others[tries]);
    say("moved", poolscope_heapcheck_end(scope, NULL, &result), &result);
    printf("none %d\n", poolscope_heapcheck_end(0, NULL, NULL));

    scrub();
    say("reachable", poolscope_heapcheck_check(&result), &result);
    printf("threads %u of %u\n", result.stopped, result.threads);
    // What is ignored may be lost, and so may what is allocated while leaks don't count.
    int ignored = poolscope_heapcheck_ignore((char *)held[1] + 1);
    int no_block = poolscope_heapcheck_ignore(&result);
    held[1] = NULL;
    poolscope_heapcheck_disable();
    lose();
    poolscope_heapcheck_enable();
    scrub();
    say("ignored", poolscope_heapcheck_check(&result), &result);
    printf("ignore %d %d\n", ignored, no_block != 0);
    lose();
    scrub();
    say("lost", poolscope_heapcheck_check(&result), &result);

    int file = memfd_create("shared", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, 4096) != 0) abort();
    void **shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared == MAP_FAILED) abort();
    shared[3] = held[2];
    held[2] = NULL;
    int added = poolscope_heapcheck_add_root(shared, 4096);
    scrub();
    say("root", poolscope_heapcheck_check(&result), &result);
    int removed = poolscope_heapcheck_remove_root(shared, 4096), again = poolscope_heapcheck_remove_root(shared, 4096);
    scrub();
    say("no_root", poolscope_heapcheck_check(&result), &result);
    printf("roots %d %d %d\n", added, removed, again != 0);
    return 0;
}
