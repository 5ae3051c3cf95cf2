/* Signal handlers that interrupt malloc or free, and sleep until the pool had time to give back what sleeping threads
 * cache: one thread for each instruction of the fast path. Nobody may have a block of theirs meanwhile.
 *
 * usage: interrupted malloc|free SIZE resethand|default
 * resethand: the handler goes by SA_RESETHAND; default: it sets SIG_DFL itself. Either way none is installed any more.
 * Prints INTERRUPTED and how many threads were, then GOOD or what is wrong. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define STEPS 64
#define OWN 8
#define OTHERS 80000
#define CODE 256
#define LONG_WAY 300
#define TRAP_FLAG 0x100

static size_t size;
static int frees, resets;
static uintptr_t code;
static atomic_int turn, interrupted, released, done;
static char *theirs[STEPS][OWN], *ours[OTHERS];

static _Thread_local int all_steps, steps, wanted, arrived;

static void nap(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static void on_trap(int number, siginfo_t *info, void *context);

/* By the system call, and with a way back of its own: the C library keeps a handler installed that has the library's. */
void come_back(void);
__asm__(".text\ncome_back: mov $15, %eax\nsyscall");

static void install(void) {
    struct {
        void (*handler)(int, siginfo_t *, void *);
        unsigned long flags;
        void (*restorer)(void);
        unsigned long mask;
    } action = {on_trap, SA_SIGINFO | 0x04000000 | (resets ? SA_RESETHAND : 0), come_back, 0};
    syscall(SYS_rt_sigaction, SIGTRAP, &action, NULL, sizeof action.mask);
}

/* Runs before each instruction; at the wanted one it sleeps. */
static void on_trap(int number, siginfo_t *info, void *context) {
    (void)info;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    if ((uintptr_t)registers[REG_RIP] - code < CODE && ++steps == wanted) {
        registers[REG_EFL] &= ~TRAP_FLAG;
        arrived = 1;
        if (!resets) signal(number, SIG_DFL);
        interrupted++;
        turn++;
        while (!released) nap(50);
    } else if (++all_steps == LONG_WAY) {
        /* Its cache was collected, and the call took the slow path, in which a trap may find its signal blocked. */
        registers[REG_EFL] &= ~TRAP_FLAG;
    } else if (resets) {
        install();
    }
}

static void trap(int on) {
    uint64_t flags;
    __asm__ volatile("pushfq; popq %0" : "=r"(flags));
    flags = on ? flags | TRAP_FLAG : flags & ~(uint64_t)TRAP_FLAG;
    __asm__ volatile("pushq %0; popfq" : : "r"(flags) : "cc", "memory");
}

static void *allocate(char with) { return memset(malloc(size), with, size); }

static void *work(void *argument) {
    int number = (int)(intptr_t)argument;
    while (turn != number) nap(1);
    char *warm[100];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 100; i++) warm[i] = allocate('w');
        for (int i = 0; i < 100; i++) free(warm[i]);
    }
    char **own = theirs[number];
    for (int i = 0; i < 3; i++) own[OWN - 1 - i] = allocate(0);
    char *victim = allocate('v');
    wanted = number + 1;
    install();
    trap(1);
    if (frees)
        free(victim);
    else
        own[0] = malloc(size);
    trap(0);
    if (!arrived) {
        signal(SIGTRAP, SIG_DFL);
        turn++;
    }
    while (!released) nap(50);
    if (frees) own[0] = malloc(size);
    for (int i = 1; i < OWN; i++) own[i] = malloc(size);
    for (int i = 0; i < OWN; i++) memset(own[i], number, size);
    done++;
    while (done < STEPS) nap(10);
    return NULL;
}

/* A thread that is collected, which says that the others had their turn. */
static void *witness(void *unused) {
    while (turn < STEPS) nap(10);
    for (int round = 0; round < 3; round++) {
        char *blocks[400];
        for (int i = 0; i < 400; i++) memset(blocks[i] = malloc(8192), 1, 8192);
        for (int i = 0; i < 400; i++) free(blocks[i]);
    }
    turn++;
    while (!released) nap(50);
    return unused;
}

static long resident(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*d %ld", &pages) != 1) exit(3);
    fclose(file);
    return pages * 4;
}

static int compare(const void *a, const void *b) {
    uintptr_t one = *(const uintptr_t *)a, other = *(const uintptr_t *)b;
    return (one > other) - (one < other);
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    frees = !strcmp(argv[1], "free");
    size = (size_t)atol(argv[2]);
    resets = !strcmp(argv[3], "resethand");
    code = frees ? (uintptr_t)free : (uintptr_t)malloc;
    pthread_t threads[STEPS], collected;
    for (intptr_t i = 0; i < STEPS; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    pthread_create(&collected, NULL, witness, NULL);
    while (turn <= STEPS) nap(10);
    printf("INTERRUPTED %d\n", interrupted);
    fflush(stdout);
    long before = resident();
    for (int i = 0; resident() > before - 2000; i++) {
        if (i > 600) return printf("NOT COLLECTED\n"), 1;
        nap(50);
    }
    nap(1500);
    for (int i = 0; i < OTHERS; i++) ours[i] = allocate('o');
    released = 1;
    for (int i = 0; i < STEPS; i++) pthread_join(threads[i], NULL);
    static char *all[STEPS * OWN + OTHERS];
    memcpy(all, theirs, sizeof theirs);
    memcpy(all + STEPS * OWN, ours, sizeof ours);
    size_t count = sizeof all / sizeof *all, wrong = 0;
    qsort(all, count, sizeof *all, compare);
    for (size_t i = 1; i < count; i++)
        if ((uintptr_t)all[i] - (uintptr_t)all[i - 1] < size) wrong++;
    if (wrong) return printf("TWICE %zu blocks have two owners\n", wrong), 1;
    for (int i = 0; i < OTHERS; i++)
        for (size_t at = 0; at < size; at++)
            if (ours[i][at] != 'o') return printf("CHANGED a block that is somebody else's\n"), 1;
    printf("GOOD\n");
    return 0;
}
