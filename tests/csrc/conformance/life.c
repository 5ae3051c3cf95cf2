// malloc before main, after it, in libraries that come and go, in threads that end.
//
// usage: life SCENARIO [PLUGIN]

#include "scenarios.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

static const char *plugin_path;

static char *from_constructor, *from_exit;
static bool in_scenario;

__attribute__((constructor(101))) static void first_of_all(void) {
    from_constructor = malloc(1000);
    fill(from_constructor, 1, 1000);
    from_constructor = realloc(from_constructor, 100000);
    free(memalign(4096, 10));
}

static void exit_handler(void) {
    from_exit = realloc(from_exit, 300000);
    fill(from_exit, 2, 300000);
}

__attribute__((destructor(101))) static void last_of_all(void) {
    if (!in_scenario) return;
    check_filled(from_constructor, 1, 1000, "from a constructor");
    check_filled(from_exit, 2, 300000, "from an exit handler");
    free(from_constructor);
    free(from_exit);
    free(malloc(5000));
    printf("freed after main\n");
}

static void before_and_after_main(void) {
    in_scenario = true;
    check_filled(from_constructor, 1, 1000, "from a constructor");
    from_exit = malloc(10);
    CHECK(atexit(exit_handler) == 0);
}

static void churn(unsigned seed, int rounds) {
    unsigned char *kept[50] = {0};
    for (int round = 0; round < rounds; round++) {
        size_t at = rand_r(&seed) % 50, size = rand_r(&seed) % (round % 20 == 0 ? 300000 : 2000) + 1;
        free(kept[at]);
        kept[at] = malloc(size);
        CHECK(kept[at] != NULL);
        kept[at][0] = kept[at][size - 1] = 1;
    }
    for (size_t at = 0; at < 50; at++) free(kept[at]);
}

static void *churns_forever(void *seed) {
    for (unsigned round = 0;; round++) churn((unsigned)(uintptr_t)seed + round, 100);
    return NULL;
}

// Detached threads go on while exit handlers and destructors run and the process goes.
static void threads_that_outlive_main(void) {
    before_and_after_main();
    for (uintptr_t i = 0; i < 6; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, churns_forever, (void *)i) == 0);
        pthread_detach(thread);
    }
    usleep(20000);
}

static pthread_key_t keys[3];
static atomic_int destroyed;

// Puts a new block in its place until the C library gives up (PTHREAD_DESTRUCTOR_ITERATIONS).
static void destroy(void *value) {
    size_t round = *(size_t *)value;
    free(value);
    churn((unsigned)round, 200);
    size_t *again = malloc(round % 2 ? 8 : 3000);
    *again = round + 1;
    atomic_fetch_add(&destroyed, 1);
    if (round < 3) CHECK(pthread_setspecific(keys[round % 3], again) == 0);
    else free(again);
}

static void *with_keys(void *unused) {
    for (size_t i = 0; i < 3; i++) {
        size_t *value = malloc(8);
        *value = 0;
        CHECK(pthread_setspecific(keys[i], value) == 0);
    }
    churn(1, 100);
    return unused;
}

static void destructors_of_thread_keys(void) {
    for (int i = 0; i < 3; i++) CHECK(pthread_key_create(&keys[i], destroy) == 0);
    for (int round = 0; round < 200; round++) {
        pthread_t threads[3];
        for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, with_keys, NULL) == 0);
        for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    }
    CHECK(destroyed >= 200 * 3 * 3, "%d destructors", destroyed);
}

static atomic_int finished;

// malloc is no place where a cancelled thread ends (POSIX, 2.9.5.2).
static void *cancels_itself(void *seed) {
    pthread_cancel(pthread_self());
    churn((unsigned)(uintptr_t)seed, 5000);
    atomic_fetch_add(&finished, 1);
    pthread_testcancel();
    return NULL;
}

static void threads_that_are_cancelled(void) {
    for (uintptr_t round = 0; round < 10; round++) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, cancels_itself, (void *)(round * 4 + i)) == 0);
        for (int i = 0; i < 4; i++) {
            void *result;
            pthread_join(threads[i], &result);
            CHECK(result == PTHREAD_CANCELED);
        }
    }
    CHECK(finished == 40, "%d of 40 threads got through", finished);
    churn(1, 1000);
}

static void *ends_last(void *unused) {
    (void)unused;
    usleep(10000);
    churn(3, 500);
    printf("the last thread ended\n");
    return NULL;
}

static void main_that_ends_first(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, ends_last, NULL) == 0);
    pthread_detach(thread);
    churn(4, 500);
    pthread_exit(NULL);
}

static atomic_int handled;
static unsigned char *handlers_block;
// Nothing else here asks for as much: a handler that interrupts the allocator's few instructions for a size and asks for that
// size, too, is the program's own fault.
enum { HANDLERS_SIZE = 400000 };

static void allocates(int signal) {
    (void)signal;
    int saved = errno;
    unsigned char *block = malloc(HANDLERS_SIZE);
    if (block != NULL) {
        block[0] = block[HANDLERS_SIZE - 1] = 7;
        free(handlers_block);
        handlers_block = block;
    }
    errno = saved;
    atomic_fetch_add(&handled, 1);
}

static void signal_handlers_that_allocate(void) {
    if (!ON_POOL) return; // glibc may deadlock, as POSIX allows it to
    struct sigaction action = {.sa_handler = allocates, .sa_flags = SA_RESTART};
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct itimerspec often = {{0, 500000}, {0, 500000}};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &often, NULL) == 0);
    for (unsigned seed = 0; handled < 300; seed++) churn(seed, 300);
    timer_delete(timer);
    CHECK(handlers_block[0] == 7 && handlers_block[HANDLERS_SIZE - 1] == 7);
}

static void *plugin_symbol(void *plugin, const char *name) {
    void *symbol = dlsym(plugin, name);
    CHECK(symbol != NULL, "%s", dlerror());
    return symbol;
}

static void *uses_plugin(void *unused) {
    for (int round = 0; round < 20; round++) {
        void *plugin = dlopen(plugin_path, RTLD_NOW);
        CHECK(plugin != NULL, "%s", dlerror());
        char *(*make)(size_t) = (char *(*)(size_t))plugin_symbol(plugin, "plugin_make");
        int (*catch_bad_alloc)(void) = (int (*)(void))plugin_symbol(plugin, "plugin_catches_bad_alloc");
        char *block = make(3000);
        CHECK(catch_bad_alloc() == 1, "operator new in a library that brought the C++ runtime with it");
        dlclose(plugin);
        check_filled(block, 5, 3000, "from a library that is gone");
        free(block);
    }
    return unused;
}

// A C program that loads a library written in C++, which brings the C++ runtime with it.
static void libraries_that_come_and_go(void) {
    CHECK(dlsym(RTLD_DEFAULT, "__cxa_throw") == NULL, "this program must not have the C++ runtime itself");
    uses_plugin(NULL);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, uses_plugin, NULL) == 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
}

// A namespace of its own has a C library of its own, which nobody preloads anything into.
static void libraries_in_a_namespace(void) {
    void *plugin = dlmopen(LM_ID_NEWLM, plugin_path, RTLD_NOW);
    CHECK(plugin != NULL, "%s", dlerror());
    int (*catch_bad_alloc)(void) = (int (*)(void))plugin_symbol(plugin, "plugin_catches_bad_alloc");
    CHECK(catch_bad_alloc() == 1);
    void (*churns)(int) = (void (*)(int))plugin_symbol(plugin, "plugin_churns");
    churns(2000);
    churn(1, 2000);
}

static const struct scenario SCENARIOS[] = {
    {"before-and-after-main", before_and_after_main},
    {"threads-that-outlive-main", threads_that_outlive_main},
    {"destructors-of-thread-keys", destructors_of_thread_keys},
    {"threads-that-are-cancelled", threads_that_are_cancelled},
    {"main-that-ends-first", main_that_ends_first},
    {"signal-handlers-that-allocate", signal_handlers_that_allocate},
    {"libraries-that-come-and-go", libraries_that_come_and_go},
    {"libraries-in-a-namespace", libraries_in_a_namespace},
};

int main(int argc, char **argv) {
    plugin_path = argc > 2 ? argv[2] : "";
    return run_scenario(argc, argv, SCENARIOS, sizeof SCENARIOS / sizeof SCENARIOS[0]);
}
