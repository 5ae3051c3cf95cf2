/* Holds a known number of blocks of one size and does what standard input says, a word a line; after each it says how many it
 * holds, and makes no call of the pool by itself.
 *
 * SIZE COUNT       the arguments: allocates them, and writes to each
 * free N           frees of each ten blocks the first N
 * thread N         the same by a thread that then sleeps
 * exchange N       replaces N blocks at random places, while another thread does, which then ends; the first thread frees what
 *                  the other one allocated, and the other way round
 * exchange_on N    the same, and the other thread sleeps
 * mix N            allocates N blocks of up to 12 KiB, writes to each, and keeps one of sixteen; the others it frees soon
 * spin             computes for ever, once it has said so
 * large BYTES      allocates a block and leaves it alone
 * touch BYTES      writes to that many of its bytes */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

enum { MOST = 1 << 20 };

static void *blocks[MOST];
static long count, held, part;
static char *large;
static pthread_barrier_t freed;

static void say(void) {
    char line[32];
    int length = snprintf(line, sizeof line, "held %ld\n", held);
    CHECK(write(1, line, (size_t)length) == length);
}

static void free_part(void) {
    for (long i = 0; i < count; i++) {
        if (i % 10 < part && blocks[i]) {
            free(blocks[i]);
            blocks[i] = NULL;
            held--;
        }
    }
}

static void *free_and_sleep(void *unused) {
    free_part();
    pthread_barrier_wait(&freed);
    for (;;) pause();
    return unused;
}

static size_t size;

static void exchange(long number, unsigned state) {
    for (long i = 0; i < number; i++) {
        state = state * 1103515245 + 12345;
        void *block = memset(malloc(size), 1, size);
        free(__atomic_exchange_n(&blocks[state / 16 % (unsigned long)count], block, __ATOMIC_ACQ_REL));
    }
}

static void *exchange_and_sleep(void *ends) {
    exchange(part, 2);
    pthread_barrier_wait(&freed);
    if (ends) return NULL;
    for (;;) pause();
}

static void exchange_with_another(long number, int ends) {
    pthread_t thread;
    part = number;
    CHECK(pthread_barrier_init(&freed, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, exchange_and_sleep, ends ? &size : NULL) == 0);
    exchange(number, 1);
    pthread_barrier_wait(&freed);
    if (ends) CHECK(pthread_join(thread, NULL) == 0);
}

static void mix(long number) {
    static char *places[4];
    unsigned state = 1;
    for (long i = 0; i < number; i++) {
        state = state * 1103515245 + 12345;
        size_t size = 1 + state / 65536 % (12 << 10);
        char **place = &places[state / 16 % 4];
        if (i % 16) free(*place);
        *place = malloc(size);
        memset(*place, 1, size);
    }
}

static int next_line(char *line, size_t size) {
    size_t length = 0;
    while (length + 1 < size && read(0, line + length, 1) == 1) {
        if (line[length++] == '\n') break;
    }
    line[length] = 0;
    return length > 0;
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    size = (size_t)atol(argv[1]);
    count = held = atol(argv[2]);
    CHECK(count <= MOST);
    for (long i = 0; i < count; i++) memset(blocks[i] = malloc(size), 1, size);
    say();
    char line[64], word[16];
    while (next_line(line, sizeof line)) {
        long number = 0;
        CHECK(sscanf(line, "%15s %ld", word, &number) >= 1);
        part = number;
        if (!strcmp(word, "free")) free_part();
        else if (!strcmp(word, "thread")) {
            pthread_t thread;
            CHECK(pthread_barrier_init(&freed, NULL, 2) == 0);
            CHECK(pthread_create(&thread, NULL, free_and_sleep, NULL) == 0);
            pthread_barrier_wait(&freed);
        } else if (!strcmp(word, "exchange")) exchange_with_another(number, 1);
        else if (!strcmp(word, "exchange_on")) exchange_with_another(number, 0);
        else if (!strcmp(word, "mix")) mix(number);
        else if (!strcmp(word, "large")) CHECK((large = malloc((size_t)number)));
        else if (!strcmp(word, "touch")) memset(large, 1, (size_t)number);
        else CHECK(!strcmp(word, "spin"));
        say();
        if (!strcmp(word, "spin")) {
            for (volatile long i = 0;;) i++;
        }
    }
    return 0;
}
