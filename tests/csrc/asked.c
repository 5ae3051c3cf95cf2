// A program that others ask for its leaks while it runs: asked KIND
//
// It says "ready" and then does what lines of its standard input say: "lose N" loses N blocks of 1,337 bytes, "hold N"
// keeps N, "drop" lets go of those; "chain" keeps one by another one; "tag" keeps one by a pointer with a tag in its upper
// bits. It answers each with "done".
#define _GNU_SOURCE
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SIZE = 1337, MOST = 4096 };

static void *volatile held[MOST];
static volatile int ready;

__attribute__((noinline)) static void scrub(void) {
    volatile char bytes[8192];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = 0;
}

__attribute__((noinline)) static void lose(int count) {
    for (int i = 0; i < count; i++) {
        void *volatile p = malloc(SIZE);
        p = NULL;
        (void)p;
    }
}

struct node {
    uint64_t payload[3];
    void *volatile next;
};
static struct node *volatile chain;
static volatile uintptr_t tagged;

__attribute__((noinline)) static void *make_node(void) { return malloc(sizeof(struct node)); }
__attribute__((noinline)) static void *make_value(void) { return malloc(SIZE); }

static void start(void *(*function)(void *), size_t stack) {
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (stack != 0) pthread_attr_setstacksize(&attributes, stack);
    if (pthread_create(&thread, &attributes, function, NULL) != 0) abort();
}

static void *sleep_for_ever(void *unused) {
    (void)unused;
    void *volatile kept = malloc(SIZE);
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    for (;;) pause();
    free(kept);
    return NULL;
}

// The C library lets nobody block its own signals: this asks the kernel.
static void *block_all(void *unused) {
    uint64_t all = ~0ull;
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, NULL, sizeof all);
    return sleep_for_ever(unused);
}

static void *on_a_tiny_stack(void *unused) {
    static char tiny[2048] __attribute__((aligned(64)));
    stack_t stack = {.ss_sp = tiny, .ss_size = sizeof tiny};
    if (sigaltstack(&stack, NULL) != 0) abort();
    return sleep_for_ever(unused);
}

static void *on_a_stack_of_its_own(void *unused) {
    stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    if (sigaltstack(&stack, NULL) != 0) abort();
    return sleep_for_ever(unused);
}

static void nothing(int signal) { (void)signal; }

static void take_all_signals(void) {
    for (int signal = 32; signal <= 64; signal++) {
        struct {
            void (*handler)(int);
            unsigned long flags;
            void *restorer;
            uint64_t mask;
        } action = {nothing, 0, NULL, 0};
        if (syscall(SYS_rt_sigaction, signal, &action, NULL, sizeof action.mask) != 0) abort();
    }
}

// From here on a signal's return ends the process.
static void confine(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) abort();
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) abort();
}

int main(int argc, char **argv) {
    const char *kind = argc > 1 ? argv[1] : "";
    int threads = argc > 2 ? atoi(argv[2]) : 1;
    // Standard streams have their buffers from now on.
    setvbuf(stdout, NULL, _IOLBF, 256);
    if (strcmp(kind, "threads") == 0) {
        for (int i = 0; i < threads; i++) start(sleep_for_ever, 1 << 16);
    } else if (strcmp(kind, "blocked") == 0) {
        start(block_all, 0);
    } else if (strcmp(kind, "tiny_stack") == 0) {
        start(on_a_tiny_stack, 0);
    } else if (strcmp(kind, "alternate_stack") == 0) {
        start(on_a_stack_of_its_own, 0);
    } else {
        threads = 0;
        if (strcmp(kind, "handlers") == 0) take_all_signals();
    }
    while (ready < threads) usleep(1000);
    puts("ready");
    char line[64];
    int count;
    if (strcmp(kind, "confined") == 0) confine();
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (sscanf(line, "lose %d", &count) == 1) {
            lose(count);
        } else if (sscanf(line, "hold %d", &count) == 1) {
            for (int i = 0; i < count && i < MOST; i++) held[i] = malloc(SIZE);
        } else if (strcmp(line, "chain\n") == 0) {
            chain = make_node();
            chain->next = make_value();
        } else if (strcmp(line, "tag\n") == 0) {
            tagged = (uintptr_t)make_value() | (uintptr_t)0xab << 56;
        } else if (strcmp(line, "drop\n") == 0) {
            for (int i = 0; i < MOST; i++) held[i] = NULL;
        }
        scrub();
        puts("done");
    }
    return 0;
}
