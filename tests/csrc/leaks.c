// Where a pointer may be, and where it is none: leaks SCENARIO [LIBRARY]
//
// Each scenario allocates, keeps or loses what it got, and ends by exit. tests/tests/leaks.rs has what is leaked then.
// Most are those of LeakSanitizer's own tests, by the same names.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <emmintrin.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
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

// Threads: what they get, what they return, and what they do at their ends.

static void *take_argument(void *argument) {
    void *volatile kept = argument;
    sleep_for_ever();
    return kept;
}
static void argument_of_thread(void) {
    start(take_argument, malloc(SIZE));
    while (!ready) sched_yield();
    scrub();
}

static void *return_another(void *argument) {
    free(argument);
    return malloc(234);
}
static void create_thread_leak(void) {
    // What a joined thread returned and nobody took is lost; what a detached one returned is lost as well.
    for (int i = 0; i < 10; i++) run_to_end(return_another);
    pthread_t thread = start(return_another, malloc(123));
    pthread_detach(thread);
    usleep(50000);
    scrub();
}

static void *exit_at_once(void *argument) {
    (void)argument;
    return NULL;
}
static void *start_and_exit(void *unused) {
    (void)unused;
    for (int i = 0; i < 200; i++) {
        // Whoever takes the argument may not have run yet when the process ends.
        if (i % 10 == 0 && ready) break;
        pthread_detach(start(exit_at_once, uninitialized));
    }
    return NULL;
}
static void before_thread_started(void) {
    uninitialized = malloc(SIZE);
    start(start_and_exit, NULL);
    usleep(2000);
    ready = 1;
}

static void free_value(void *value) { free(value); }
static void *die_with_key(void *unused) {
    (void)unused;
    pthread_key_create(&keys[0], free_value);
    pthread_setspecific(keys[0], malloc(SIZE));
    return NULL;
}
static void cleanup_in_tsd_destructor(void) { run_to_end(die_with_key); }

static void exit_in_destructor(void *value) {
    void *volatile held = value;
    exit(held == NULL);
}
static void *exit_by_key(void *unused) {
    (void)unused;
    pthread_key_create(&keys[0], exit_in_destructor);
    pthread_setspecific(keys[0], malloc(SIZE));
    return NULL;
}
static void exit_in_tsd_destructor(void) {
    start(exit_by_key, NULL);
    for (;;) pause();
}

static void many_tls_keys_pthread(void) {
    for (int i = 0; i < 200; i++) {
        if (pthread_key_create(&keys[i], NULL) != 0) abort();
        pthread_setspecific(keys[i], malloc(SIZE));
    }
}

static void *hold_in_many_keys(void *unused) {
    (void)unused;
    for (int i = 0; i < 200; i++) pthread_setspecific(keys[i], malloc(SIZE));
    scrub();
    sleep_for_ever();
    return NULL;
}
static void many_tls_keys_thread(void) {
    for (int i = 0; i < 200; i++) {
        if (pthread_key_create(&keys[i], NULL) != 0) abort();
    }
    start_and_wait(hold_in_many_keys);
}

static void *look_for_nothing(void *unused) {
    (void)unused;
    // The C library keeps the message in a block of the thread's.
    dlsym(RTLD_DEFAULT, "there is no such name");
    ready = 1;
    return NULL;
}
static void detached_thread_dlsym(void) {
    for (int i = 0; i < 20; i++) {
        ready = 0;
        pthread_detach(start(look_for_nothing, NULL));
        while (!ready) sched_yield();
    }
}

static void *dynamic_in_thread(void *unused) {
    (void)unused;
    void *handle = dlopen(library, RTLD_NOW);
    void **(*place)(void) = (void **(*)(void))dlsym(handle, "place");
    *place() = malloc(SIZE);
    scrub();
    sleep_for_ever();
    return NULL;
}
static void use_tls_dynamic_threaded(void) { start_and_wait(dynamic_in_thread); }

// Stacks.

static void at_exit(void) { scrub(); }
__attribute__((noinline)) static void exit_with_pointer(void) {
    void *volatile held = malloc(SIZE);
    held = NULL;
    (void)held;
    exit(0);
}
static void exit_atexit_stale_stack(void) {
    atexit(at_exit);
    exit_with_pointer();
}

static void *stack_of_signals;
static void stay_in_handler(int signal) {
    (void)signal;
    void *volatile held = malloc(SIZE);
    sleep_for_ever();
    free(held);
}
static void set_alternate_stack(void (*handler)(int), void *stack, size_t size) {
    stack_t alternate = {.ss_sp = stack, .ss_size = size};
    if (sigaltstack(&alternate, NULL) != 0) abort();
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
}
static void *raise_on_heap_stack(void *unused) {
    (void)unused;
    stack_of_signals = malloc(1 << 16);
    set_alternate_stack(stay_in_handler, stack_of_signals, 1 << 16);
    raise(SIGUSR1);
    return NULL;
}
// The handler's pointer lies on an alternate stack that is a block.
static void alternate_stack(void) { start_and_wait(raise_on_heap_stack); }

static void *raise_on_mapped_stack(void *unused) {
    (void)unused;
    void *stack = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *volatile held = malloc(SIZE);
    set_alternate_stack(stay_in_handler, stack, 1 << 16);
    raise(SIGUSR1);
    return held;
}
// And the one that was interrupted lies on the thread's own stack, where its stack pointer is not.
static void interrupted_stack(void) { start_and_wait(raise_on_mapped_stack); }

// Two stacks of coroutines that lie in blocks, one suspended in the other.
static ucontext_t inner_context;
static void in_inner_coroutine(void) {
    void *volatile held = malloc(SIZE);
    scrub();
    swapcontext(&inner_context, &main_context);
    free(held);
}
static void in_outer_coroutine(void) {
    void *volatile held = malloc(SIZE);
    char *stack = malloc(1 << 16);
    many[0] = stack;
    getcontext(&inner_context);
    inner_context.uc_stack.ss_sp = stack;
    inner_context.uc_stack.ss_size = 1 << 16;
    makecontext(&inner_context, in_inner_coroutine, 0);
    swapcontext(&other_context, &inner_context);
    free(held);
}
static void nested_coroutines(void) {
    char *stack = malloc(1 << 16);
    uninitialized = stack;
    getcontext(&other_context);
    other_context.uc_stack.ss_sp = stack;
    other_context.uc_stack.ss_size = 1 << 16;
    makecontext(&other_context, in_outer_coroutine, 0);
    swapcontext(&main_context, &other_context);
    scrub();
}

// Modules.

// A library that is gone can't have leaked what it still points to from elsewhere; what it alone held is lost.
static void dlclosed_library(void) {
    void *handle = dlopen(library, RTLD_NOW);
    if (handle == NULL) abort();
    void *(*make)(void) = (void *(*)(void))dlsym(handle, "make");
    void *volatile lost = make();
    initialized = make();
    lost = NULL;
    (void)lost;
    dlclose(handle);
    scrub();
}

static int in_walk(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)info;
    (void)size;
    (void)unused;
    initialized = malloc(SIZE);
    // The loader's lock is held while the process ends.
    exit(0);
    return 0;
}
static void *walk_modules(void *unused) {
    (void)unused;
    for (;;) dl_iterate_phdr((int (*)(struct dl_phdr_info *, size_t, void *))unused, NULL);
    return NULL;
}
static int allocate_in_walk(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)info;
    (void)size;
    (void)unused;
    free(malloc(100));
    return 0;
}
static void libdl_deadlock(void) {
    for (int i = 0; i < 4; i++) start(walk_modules, (void *)allocate_in_walk);
    usleep(10000);
}
static void exit_in_walk(void) { dl_iterate_phdr(in_walk, NULL); }

// Signals that come all the time.
static void count(int signal) { ready += signal != 0; }
static void *send_signals(void *target) {
    for (;;) pthread_kill(*(pthread_t *)target, SIGUSR2);
    return NULL;
}
static void signal_during_stop_the_world(void) {
    static pthread_t targets[4];
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    sigaction(SIGUSR2, &action, NULL);
    for (int i = 0; i < 4; i++) {
        targets[i] = start(wait_for_ever, NULL);
        start(send_signals, &targets[i]);
    }
    usleep(20000);
}

// Blocks of odd sizes, and blocks that were to change theirs.
static void malloc_zero(void) {
    void *volatile p = malloc(0);
    p = NULL;
    (void)p;
}
static void realloc_zero(void) {
    void *volatile p = malloc(SIZE);
    p = realloc(p, 0);
    (void)p;
}
static void realloc_too_big(void) {
    void *volatile p = malloc(SIZE);
    if (realloc(p, (size_t)1 << 62) != NULL) abort();
    p = NULL;
}
static void realloc_failure_keeps_original(void) {
    uninitialized = malloc(SIZE);
    if (realloc(uninitialized, (size_t)1 << 62) != NULL) abort();
}
static void realloc_moves(void) {
    uninitialized = malloc(SIZE);
    uninitialized = realloc(uninitialized, 1 << 20);
    uninitialized = realloc(uninitialized, SIZE);
}

// Processes.
static void fork_and_leak(void) {
    pid_t child = fork();
    if (child == 0) {
        lose();
        scrub();
        exit(0);
    }
    waitpid(child, NULL, 0);
}
static void *fork_and_exit_here(void *unused) {
    (void)unused;
    if (fork() == 0) exit(0);
    wait(NULL);
    exit(0);
    return NULL;
}
static void fork_threaded(void) {
    in_static_tls = malloc(SIZE);
    void *volatile held = malloc(SIZE);
    start(fork_and_exit_here, NULL);
    for (;;) pause();
    free(held);
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
    SCENARIO(argument_of_thread),
    SCENARIO(create_thread_leak),
    SCENARIO(before_thread_started),
    SCENARIO(cleanup_in_tsd_destructor),
    SCENARIO(exit_in_tsd_destructor),
    SCENARIO(many_tls_keys_pthread),
    SCENARIO(many_tls_keys_thread),
    SCENARIO(detached_thread_dlsym),
    SCENARIO(use_tls_dynamic_threaded),
    SCENARIO(exit_atexit_stale_stack),
    SCENARIO(alternate_stack),
    SCENARIO(interrupted_stack),
    SCENARIO(nested_coroutines),
    SCENARIO(dlclosed_library),
    SCENARIO(libdl_deadlock),
    SCENARIO(exit_in_walk),
    SCENARIO(signal_during_stop_the_world),
    SCENARIO(malloc_zero),
    SCENARIO(realloc_zero),
    SCENARIO(realloc_too_big),
    SCENARIO(realloc_failure_keeps_original),
    SCENARIO(realloc_moves),
    SCENARIO(fork_and_leak),
    SCENARIO(fork_threaded),
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
