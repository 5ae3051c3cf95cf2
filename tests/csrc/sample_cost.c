/* Pairs of malloc and free behind a stack of so many frames, for callgrind to count (sample_cost.rs).
 *
 * usage: sample_cost PAIRS DEPTH [LIBRARY]
 * LIBRARY: opened, and its `through` is the innermost frame but one */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef void call(long);

/* The compiler is told to take malloc for a function like any other, and leaves every pair in. */
static void pairs(long count) {
    for (long pair = 0; pair < count; pair++) free(malloc(1024));
}

static void here(call *f, long count) {
    f(count);
    __asm__ volatile("" ::: "memory");
}

static void (*innermost)(call *, long) = here;

/* No tail call: something is left to do after it. */
__attribute__((noinline)) static void descend(int depth, long count) {
    if (depth > 0) descend(depth - 1, count);
    else innermost(pairs, count);
    __asm__ volatile("" ::: "memory");
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    if (argc > 3) {
        void *library = dlopen(argv[3], RTLD_NOW);
        if (library == NULL || (*(void **)&innermost = dlsym(library, "through")) == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
    }
    descend(atoi(argv[2]), atol(argv[1]));
    return 0;
}
