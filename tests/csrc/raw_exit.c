/* Threads that end by the bare system call, with a full cache, and whose stack is unmapped then.
 *
 * usage: raw_exit own|other|kept   own: the thread unmaps it; other: the main thread does; kept: nobody does
 * Prints ENDED and its resident KiB, then HOOKED after a hook came and went, then READY and sleeps. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define POOLSCOPE_WEAK
#include "poolscope.h"

#define THREADS 8
#define STACK (256 << 10)

static char *stacks[THREADS];
static volatile pid_t ids[THREADS];
static int unmaps;

static void *run(void *argument) {
    intptr_t number = (intptr_t)argument;
    for (int round = 0; round < 3; round++) {
        char *blocks[400];
        for (int i = 0; i < 400; i++) memset(blocks[i] = malloc(8192), 1, 8192);
        for (int i = 0; i < 400; i++) free(blocks[i]);
    }
    ids[number] = (pid_t)syscall(SYS_gettid);
    if (unmaps)
        __asm__ volatile("syscall\n\tmov %3, %%eax\n\txor %%edi, %%edi\n\tsyscall\n\tud2"
                         :
                         : "a"((long)SYS_munmap), "D"(stacks[number]), "S"((long)STACK), "i"(SYS_exit)
                         : "rcx", "r11", "memory");
    syscall(SYS_exit, 0);
    return NULL;
}

static void sees(const poolscope_event *event, void *context) { *(size_t *)context += event->size; }

static long resident(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*d %ld", &pages) != 1) exit(3);
    fclose(file);
    return pages * 4;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    unmaps = !strcmp(argv[1], "own");
    for (intptr_t i = 0; i < THREADS; i++) {
        pthread_attr_t attributes;
        pthread_t thread;
        stacks[i] = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        pthread_attr_init(&attributes);
        pthread_attr_setstack(&attributes, stacks[i], STACK);
        if (pthread_create(&thread, &attributes, run, (void *)i)) return 3;
        while (!ids[i] || syscall(SYS_tgkill, getpid(), ids[i], 0) == 0) usleep(1000);
        if (!strcmp(argv[1], "other")) munmap(stacks[i], STACK);
    }
    printf("ENDED %ld\n", resident());
    fflush(stdout);
    size_t seen = 0;
    uint64_t hook = poolscope_add_hook(sees, &seen);
    free(malloc(1000));
    if (hook == 0 || poolscope_remove_hook(hook) != 0 || seen < 1000) return 1;
    printf("HOOKED\n");
    /* Idle memory of its own, so that there is a collector. */
    char *block = malloc(1 << 20);
    memset(block, 1, 1 << 20);
    free(block);
    printf("READY\n");
    fflush(stdout);
    for (;;) pause();
}
