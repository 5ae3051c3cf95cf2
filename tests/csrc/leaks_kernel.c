// Blocks whose address only the kernel has, or memory that is no usual one: leaks_kernel SCENARIO [SECONDS]
//
// tests/tests/leaks.rs has what is leaked then.
#define _GNU_SOURCE
#include <linux/io_uring.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 1337, SIGNAL_STACK = 20000 };

// What a function leaves below the stack pointer, and in registers, is not this one's.
__attribute__((noinline)) static void scrub(void) {
    volatile char bytes[16384];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = 0;
}

__attribute__((noinline)) static int wait_with_data(void) {
    int epoll = epoll_create1(EPOLL_CLOEXEC), event = eventfd(0, EFD_CLOEXEC);
    struct epoll_event wanted = {.events = EPOLLIN, .data.ptr = malloc(SIZE)};
    if (epoll < 0 || event < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, event, &wanted) != 0) abort();
    return epoll;
}
static void epoll_data(void) { wait_with_data(); }
static void epoll_closed(void) { close(wait_with_data()); }

__attribute__((noinline)) static timer_t make_timer(void) {
    timer_t timer;
    struct sigevent how = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGURG};
    how.sigev_value.sival_ptr = malloc(SIZE);
    if (timer_create(CLOCK_MONOTONIC, &how, &timer) != 0) abort();
    return timer;
}
static void timer_value(void) { make_timer(); }
static void timer_deleted(void) { timer_delete(make_timer()); }

static volatile int rings;
static void ring(union sigval value) {
    (void)value;
    rings++;
}
// The C library has a thread of its own for it, which takes no handler.
static void timer_with_thread(void) {
    timer_t timer;
    struct sigevent how = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = ring};
    how.sigev_value.sival_ptr = malloc(SIZE);
    struct itimerspec when = {.it_value = {.tv_nsec = 1000000}, .it_interval = {.tv_nsec = 20000000}};
    if (timer_create(CLOCK_MONOTONIC, &how, &timer) != 0 || timer_settime(timer, 0, &when, NULL) != 0) abort();
    while (rings < 3) usleep(1000);
    memset(&how, 0, sizeof how);
}

__attribute__((noinline)) static void closed_to_writing(void) {
    void **page = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page[1000] = malloc(SIZE);
    if (mprotect(page, 1 << 16, PROT_READ) != 0) abort();
}

__attribute__((noinline)) static void shared_with_children(void) {
    void **page = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    page[1000] = malloc(SIZE);
}

// A request that waits, and what the program has given with it. Where there is no io_uring, a static keeps it.
static struct io_uring_sqe *requests;
static void *unasked;
__attribute__((noinline)) static int ask_the_ring(void) {
    struct io_uring_params made = {0};
    int ring = (int)syscall(SYS_io_uring_setup, 8, &made), event = eventfd(0, EFD_CLOEXEC);
    if (ring < 0) {
        unasked = malloc(SIZE);
        return -1;
    }
    char *queue = mmap(NULL, made.sq_off.array + made.sq_entries * sizeof(unsigned), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
    requests = mmap(NULL, made.sq_entries * sizeof *requests, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring,
                    IORING_OFF_SQES);
    if (queue == MAP_FAILED || requests == MAP_FAILED) abort();
    requests[0] = (struct io_uring_sqe){.opcode = IORING_OP_POLL_ADD, .fd = event, .poll32_events = 1};
    requests[0].user_data = (unsigned long)malloc(SIZE);
    ((unsigned *)(queue + made.sq_off.array))[0] = 0;
    __atomic_store_n((unsigned *)(queue + made.sq_off.tail), 1, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, ring, 1, 0, 0, NULL, 0) != 1) abort();
    return ring;
}
static void ring_request(void) { ask_the_ring(); }
static void ring_closed(void) {
    int ring = ask_the_ring();
    unasked = NULL;
    if (ring < 0) return;
    close(ring);
    munmap(requests, 8 * sizeof *requests);
}

// A stack for signals, on which something was left that no signal needs any more.
__attribute__((noinline)) static void name_stack(size_t size) {
    stack_t stack = {.ss_sp = calloc(1, size), .ss_size = size};
    *(void **)((char *)stack.ss_sp + size / 2) = malloc(SIZE);
    if (sigaltstack(&stack, NULL) != 0) abort();
}
static void signal_stack(void) { name_stack(SIGNAL_STACK); }
static void signal_stack_given_up(void) {
    name_stack(SIGNAL_STACK);
    stack_t none = {.ss_flags = SS_DISABLE};
    if (sigaltstack(&none, NULL) != 0) abort();
}

static volatile int named;
static void *wait_with_stack(void *nothing) {
    name_stack(SIGNAL_STACK);
    scrub();
    named = 1;
    for (;;) pause();
    return nothing;
}
static void signal_stack_of_a_thread(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, wait_with_stack, NULL) != 0) abort();
    while (!named) usleep(1000);
}

#define SCENARIO(name) {#name, name}
static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    SCENARIO(epoll_data),    SCENARIO(epoll_closed),      SCENARIO(timer_value),
    SCENARIO(timer_deleted), SCENARIO(timer_with_thread), SCENARIO(closed_to_writing),
    SCENARIO(shared_with_children), SCENARIO(signal_stack), SCENARIO(signal_stack_given_up),
    SCENARIO(signal_stack_of_a_thread), SCENARIO(ring_request), SCENARIO(ring_closed),
};

int main(int argc, char **argv) {
    for (size_t i = 0; argc > 1 && i < sizeof scenarios / sizeof *scenarios; i++) {
        if (strcmp(scenarios[i].name, argv[1]) != 0) continue;
        scenarios[i].run();
        scrub();
        // To be asked from outside.
        if (argc > 2) {
            puts("ready");
            fflush(stdout);
            // A search ends a call that sleeps early.
            for (unsigned left = (unsigned)atoi(argv[2]); left > 0;) left = sleep(left);
        }
        return 0;
    }
    return 2;
}
