/* Threads that each allocate blocks of a few sizes and sleep then, which is what most threads of a server do. Says how
 * many bytes each of them made the program larger, by the kernel's count: once all have allocated, and again after as
 * many milliseconds of sleep: `bytes THEN NOW`.
 *
 * usage: little_each THREADS SIZES MILLISECONDS
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_barrier_t all;
static int sizes;

static long resident(void) {
    long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    if (!statm || fscanf(statm, "%*d %ld", &pages) != 1) abort();
    fclose(statm);
    return pages * sysconf(_SC_PAGESIZE);
}

static void *work(void *unused) {
    for (int i = 1; i <= sizes; i++) memset(malloc(48 * i), 1, 48 * i);
    pthread_barrier_wait(&all);
    pthread_barrier_wait(&all);
    return unused;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    int threads = atoi(argv[1]);
    sizes = atoi(argv[2]);
    pthread_t *thread = malloc(threads * sizeof *thread);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 128 << 10);
    pthread_barrier_init(&all, NULL, threads + 1);
    long before = resident();
    for (int i = 0; i < threads; i++) {
        if (pthread_create(&thread[i], &attributes, work, NULL) != 0) return 1;
    }
    pthread_barrier_wait(&all);
    long then = resident();
    usleep(1000 * atoi(argv[3]));
    printf("bytes %ld %ld\n", (then - before) / threads, (resident() - before) / threads);
    pthread_barrier_wait(&all);
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    return 0;
}
