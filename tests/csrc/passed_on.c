/* Two threads allocate blocks, and two others free them, in the order in which they get them. Prints which part of a thousand
 * blocks, of those that one thread got one after the other, does not lie beside the one before. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 4096, BATCHES = 2000, WAITING_MAX = 8, SIZE = 64 };

struct batch {
    struct batch *next;
    char *blocks[BLOCKS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct batch *first;
static int waiting, makers = 2;
static atomic_long steps, jumps;

static void count(const struct batch *batch) {
    for (int i = 1; i < BLOCKS; i++) {
        long distance = labs(batch->blocks[i] - batch->blocks[i - 1]);
        steps++;
        if (distance > 2 * SIZE) jumps++;
    }
}

static void *make(void *unused) {
    for (int round = 0; round < BATCHES; round++) {
        struct batch *batch = malloc(sizeof *batch);
        for (int i = 0; i < BLOCKS; i++) memset(batch->blocks[i] = malloc(SIZE), i, SIZE);
        if (round > BATCHES / 2 && round % 16 == 0) count(batch);
        pthread_mutex_lock(&lock);
        while (waiting >= WAITING_MAX) pthread_cond_wait(&changed, &lock);
        batch->next = first;
        first = batch;
        waiting++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    pthread_mutex_lock(&lock);
    makers--;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return unused;
}

static void *take(void *unused) {
    for (;;) {
        pthread_mutex_lock(&lock);
        while (first == NULL && makers > 0) pthread_cond_wait(&changed, &lock);
        struct batch *batch = first;
        if (batch != NULL) {
            first = batch->next;
            waiting--;
        }
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
        if (batch == NULL) return unused;
        for (int i = 0; i < BLOCKS; i++) free(batch->blocks[i]);
        free(batch);
    }
}

int main(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, i % 2 ? take : make, NULL);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    printf("%ld\n", 1000 * jumps / steps);
    return 0;
}
