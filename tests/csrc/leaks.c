// Where a pointer may be, and where it is none: leaks SCENARIO [LIBRARY]
//
// Each scenario allocates, keeps or loses what it got, and ends by exit. tests/tests/leaks.rs has what is leaked then.
// Most are those of LeakSanitizer's own tests, by the same names.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <emmintrin.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { SIZE = 1337 };

static void *volatile initialized = (void *)1;
static void *volatile uninitialized;
static __thread void *volatile in_static_tls;
static volatile int ready;
static pthread_key_t keys[200];
static void *volatile many[1024];
static ucontext_t main_context, other_context;

// What a function leaves below the stack pointer, and in registers, is not this one's.
__attribute__((noinline)) static void scrub(void) {
    volatile char bytes[4096];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = 0;
    __asm__ volatile("pxor %%xmm0, %%xmm0\n pxor %%xmm1, %%xmm1" ::: "xmm0", "xmm1", "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8",
                     "r9", "r10", "r11", "r12", "r13", "r14", "r15");
}

static pthread_t start(void *(*function)(void *), void *argument) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, function, argument) != 0) abort();
    return thread;
}

static void start_and_wait(void *(*function)(void *)) {
    start(function, NULL);
    while (!ready) sched_yield();
    scrub();
}

static void run_to_end(void *(*function)(void *)) {
    if (pthread_join(start(function, NULL), NULL) != 0) abort();
    scrub();
}

static void sleep_for_ever(void) {
    ready = 1;
    for (;;) pause();
}

static void use_globals_initialized(void) { initialized = malloc(SIZE); }
static void use_globals_uninitialized(void) { uninitialized = malloc(SIZE); }

static void use_stacks(void) {
    void *volatile held = malloc(SIZE);
    scrub();
    exit(held == NULL);
}

static void *hold_on_stack(void *unused) {
    (void)unused;
    void *volatile held = malloc(SIZE);
    sleep_for_ever();
    return held;
}
static void use_stacks_threaded(void) { start_and_wait(hold_on_stack); }

static void *hold_with_signals_blocked(void *unused) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    return hold_on_stack(unused);
}
static void signals_blocked(void) { start_and_wait(hold_with_signals_blocked); }

static void *hold_in_r15(void *unused) {
    (void)unused;
    void *p = malloc(SIZE);
    __asm__ volatile(
        "mov %0, %%r15\n"
        "xor %0, %0\n"
        "xor %%rax, %%rax\n xor %%rcx, %%rcx\n xor %%rdx, %%rdx\n xor %%rsi, %%rsi\n xor %%rdi, %%rdi\n"
        "movl $1, %1\n"
        "1: pause\n jmp 1b"
        : "+b"(p), "=m"(ready)::"r15", "rax", "rcx", "rdx", "rsi", "rdi", "memory");
    __builtin_unreachable();
}
static void use_registers(void) { start_and_wait(hold_in_r15); }

static void *hold_in_xmm0(void *unused) {
    (void)unused;
    void *p = malloc(SIZE);
    __asm__ volatile(
        "movq %0, %%xmm0\n"
        "xor %0, %0\n"
        "xor %%rax, %%rax\n xor %%rcx, %%rcx\n xor %%rdx, %%rdx\n xor %%rsi, %%rsi\n xor %%rdi, %%rdi\n"
        "movl $1, %1\n"
        "1: pause\n jmp 1b"
        : "+b"(p), "=m"(ready)::"xmm0", "rax", "rcx", "rdx", "rsi", "rdi", "memory");
    __builtin_unreachable();
}
static void use_registers_extra(void) { start_and_wait(hold_in_xmm0); }

static void *hold_in_red_zone(void *unused) {
    (void)unused;
    void *p = malloc(SIZE);
    __asm__ volatile(
        "mov %0, -64(%%rsp)\n"
        "xor %0, %0\n"
        "xor %%rax, %%rax\n xor %%rcx, %%rcx\n xor %%rdx, %%rdx\n xor %%rsi, %%rsi\n xor %%rdi, %%rdi\n"
        "movl $1, %1\n"
        "1: pause\n jmp 1b"
        : "+b"(p), "=m"(ready)::"rax", "rcx", "rdx", "rsi", "rdi", "memory");
    __builtin_unreachable();
}
static void red_zone(void) { start_and_wait(hold_in_red_zone); }

static void use_tls_static(void) { in_static_tls = malloc(SIZE); }

static void *hold_in_tls(void *unused) {
    (void)unused;
    in_static_tls = malloc(SIZE);
    scrub();
    sleep_for_ever();
    return NULL;
}
static void use_tls_static_threaded(void) { start_and_wait(hold_in_tls); }

static const char *library;
static void use_tls_dynamic(void) {
    void *handle = dlopen(library, RTLD_NOW);
    if (handle == NULL) abort();
    void **(*place)(void) = (void **(*)(void))dlsym(handle, "place");
    *place() = malloc(SIZE);
}

static void set_key(int which) {
    for (int i = 0; i <= which; i++) {
        if (pthread_key_create(&keys[i], NULL) != 0) abort();
    }
    if (pthread_setspecific(keys[which], malloc(SIZE)) != 0) abort();
}
static void use_tls_pthread_specific_static(void) { set_key(0); }
static void use_tls_pthread_specific_dynamic(void) { set_key(100); }

static void user_pointer(void) {
    for (int i = 0; i < 1024; i++) many[i] = malloc(i + 1);
}

__attribute__((noinline)) static void lose(void) {
    void *volatile p = malloc(SIZE);
    p = NULL;
    (void)p;
}
static void lost(void) { lose(); }

static void pointer_to_self(void) {
    void *volatile *p = malloc(SIZE);
    p[0] = (void *)p;
    p[9] = (void *)(p + 1);
}

static void cycle(void) {
    void *volatile *one = malloc(SIZE), *volatile *two = malloc(SIZE);
    one[0] = (void *)two;
    two[0] = (void *)one;
}

static void list(void) {
    void *volatile *head = NULL;
    for (int i = 0; i < 5; i++) {
        void *volatile *next = malloc(SIZE);
        next[0] = (void *)head;
        head = next;
    }
}

static void interior(void) { uninitialized = (char *)malloc(SIZE) + 8; }

static void unaligned_is_none(void) {
    static char bytes[16];
    void *p = malloc(SIZE);
    memcpy(bytes + 3, &p, sizeof p);
}

__attribute__((noinline)) static void leave_on_stack(void) {
    volatile uintptr_t words[64];
    uintptr_t p = (uintptr_t)malloc(SIZE);
    for (int i = 0; i < 64; i++) words[i] = p;
    (void)words[0];
}
__attribute__((noinline)) static void go_deep(int depth) {
    volatile char bytes[512];
    bytes[0] = 0;
    if (depth > 0) {
        go_deep(depth - 1);
    } else {
        leave_on_stack();
    }
    bytes[1] = 0;
    (void)bytes[1];
}
static void stale_stack(void) { go_deep(200); }

static void *die_with_stack(void *unused) {
    (void)unused;
    leave_on_stack();
    return NULL;
}
static void stale_thread(void) { run_to_end(die_with_stack); }

static void *die_with_tls(void *unused) {
    (void)unused;
    in_static_tls = malloc(SIZE);
    return NULL;
}
static void tls_of_ended_thread(void) { run_to_end(die_with_tls); }

static void *return_block(void *unused) {
    (void)unused;
    void *p = malloc(SIZE);
    ready = 1;
    return p;
}
static void result_not_joined(void) {
    start(return_block, NULL);
    while (!ready) sched_yield();
    usleep(50000);
    scrub();
}

static void in_coroutine(void) {
    void *volatile held = malloc(SIZE);
    scrub();
    if (ready) {
        swapcontext(&other_context, &main_context);
    }
    exit(held == NULL);
}
static void enter_coroutine(void) {
    char *stack = malloc(1 << 16);
    uninitialized = stack;
    getcontext(&other_context);
    other_context.uc_stack.ss_sp = stack;
    other_context.uc_stack.ss_size = 1 << 16;
    makecontext(&other_context, in_coroutine, 0);
    swapcontext(&main_context, &other_context);
}
static void swapcontext_running(void) { enter_coroutine(); }
static void swapcontext_suspended(void) {
    ready = 1;
    enter_coroutine();
}

static void mapped(void) {
    void **page = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page[70000] = malloc(SIZE);
}

static void freed_holder(void) {
    void *volatile *holder = malloc(200);
    holder[12] = malloc(SIZE);
    uninitialized = (void *)holder;
    free((void *)holder);
    uninitialized = NULL;
}

static void large_lost(void) {
    char *volatile p = malloc(3 << 20);
    p[0] = 1;
    p = NULL;
    (void)p;
}
static void large_interior(void) { uninitialized = (char *)malloc(3 << 20) + (2 << 20); }
static void in_large(void) {
    void **block = malloc(3 << 20);
    uninitialized = block;
    block[200000] = malloc(SIZE);
}

static void *exit_here(void *unused) {
    (void)unused;
    exit(0);
    return NULL;
}
static void exit_in_thread(void) {
    void *volatile held = malloc(SIZE);
    start(exit_here, NULL);
    for (;;) pause();
    free(held);
}

static void *exit_later(void *unused) {
    (void)unused;
    usleep(50000);
    exit(0);
    return NULL;
}
static void first_thread_ended(void) {
    uninitialized = malloc(SIZE);
    start(exit_later, NULL);
    pthread_exit(NULL);
}

static void *wait_for_ever(void *unused) {
    (void)unused;
    for (;;) pause();
    return NULL;
}
static void many_threads(void) {
    for (int i = 0; i < 200; i++) start(wait_for_ever, NULL);
    uninitialized = malloc(SIZE);
}

static void closed_pages(void) {
    static char bss[5 * 4096] __attribute__((aligned(4096)));
    bss[4096] = 1;
    char *block = aligned_alloc(4096, 5 * 4096);
    uninitialized = block;
    memset(block, 1, 5 * 4096);
    if (mprotect(block + 4096, 4096, PROT_NONE) != 0 || mprotect(bss + 4096, 4096, PROT_NONE) != 0) abort();
}

static void *churn(void *unused) {
    (void)unused;
    for (;;) {
        void *volatile p = malloc(100 + rand() % 5000);
        free(p);
    }
    return NULL;
}
static void busy_threads(void) {
    for (int i = 0; i < 8; i++) start(churn, NULL);
    usleep(20000);
}

#define SCENARIO(name) {#name, name}
static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    SCENARIO(use_globals_initialized),
    SCENARIO(use_globals_uninitialized),
    SCENARIO(use_stacks),
    SCENARIO(use_stacks_threaded),
    SCENARIO(use_registers),
    SCENARIO(use_registers_extra),
    SCENARIO(red_zone),
    SCENARIO(use_tls_static),
    SCENARIO(use_tls_static_threaded),
    SCENARIO(use_tls_dynamic),
    SCENARIO(use_tls_pthread_specific_static),
    SCENARIO(use_tls_pthread_specific_dynamic),
    SCENARIO(user_pointer),
    SCENARIO(lost),
    SCENARIO(pointer_to_self),
    SCENARIO(cycle),
    SCENARIO(list),
    SCENARIO(interior),
    SCENARIO(unaligned_is_none),
    SCENARIO(stale_stack),
    SCENARIO(stale_thread),
    SCENARIO(tls_of_ended_thread),
    SCENARIO(result_not_joined),
    SCENARIO(swapcontext_running),
    SCENARIO(swapcontext_suspended),
    SCENARIO(mapped),
    SCENARIO(freed_holder),
    SCENARIO(large_lost),
    SCENARIO(large_interior),
    SCENARIO(in_large),
    SCENARIO(exit_in_thread),
    SCENARIO(first_thread_ended),
    SCENARIO(many_threads),
    SCENARIO(closed_pages),
    SCENARIO(busy_threads),
    SCENARIO(signals_blocked),
};

int main(int argc, char **argv) {
    library = argc > 2 ? argv[2] : "";
    for (size_t i = 0; argc > 1 && i < sizeof scenarios / sizeof *scenarios; i++) {
        if (strcmp(scenarios[i].name, argv[1]) == 0) {
            scenarios[i].run();
            scrub();
            return 0;
        }
    }
    return 2;
}
