/* Threads that pass blocks on: half of them fill batches of 4096 blocks, the others free the batch that was filled
 * last. At the end: how many of 1000 blocks, in the second half of all batches, do not lie behind the one before.
 *
 * usage: passed_on PAIRS BYTES BATCHES */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCKS = 4096 };

struct batch {
    struct batch *next;
    char *blocks[BLOCKS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct batch *full, *empty;
static long bytes, batches;
static atomic_long filled, freed, looked_at, jumps;

static struct batch *take(struct batch **list) {
    while (atomic_load(&freed) < batches) {
        pthread_mutex_lock(&lock);
        struct batch *first = *list;
        if (first) *list = first->next;
        pthread_mutex_unlock(&lock);
        if (first) return first;
        sched_yield();
    }
    return NULL;
}

static void put(struct batch **list, struct batch *batch) {
    pthread_mutex_lock(&lock);
    batch->next = *list;
    *list = batch;
    pthread_mutex_unlock(&lock);
}

static void *fill(void *unused) {
    struct batch *batch;
    while ((batch = take(&empty))) {
        for (int i = 0; i < BLOCKS; i++) *(batch->blocks[i] = malloc(bytes)) = 1;
        if (atomic_fetch_add(&filled, 1) >= batches / 2) {
            long here = 0;
            for (int i = 1; i < BLOCKS; i++) here += batch->blocks[i] - batch->blocks[i - 1] != bytes;
            atomic_fetch_add(&jumps, here);
            atomic_fetch_add(&looked_at, BLOCKS);
        }
        put(&full, batch);
    }
    return unused;
}

static void *drain(void *unused) {
    struct batch *batch;
    while ((batch = take(&full))) {
        for (int i = 0; i < BLOCKS; i++) free(batch->blocks[i]);
        atomic_fetch_add(&freed, 1);
        put(&empty, batch);
    }
    return unused;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    long pairs = atol(argv[1]);
    bytes = atol(argv[2]), batches = atol(argv[3]);
    for (long i = 0; i < 2 * pairs; i++) put(&empty, malloc(sizeof(struct batch)));
    pthread_t *threads = malloc(2 * pairs * sizeof *threads);
    for (long i = 0; i < 2 * pairs; i++) pthread_create(&threads[i], NULL, i % 2 ? drain : fill, NULL);
    for (long i = 0; i < 2 * pairs; i++) pthread_join(threads[i], NULL);
    printf("%ld\n", 1000 * jumps / looked_at);
    return 0;
}
