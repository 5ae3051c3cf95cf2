/* Keeps one block of 1000 bytes for each way in which a function can have its name. The arguments are plug-ins: each is loaded,
 * its function `plug_in` called, and unloaded again, before the next. Then waits for a line. */
#pragma GCC diagnostic ignored "-Wpedantic"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void *kept[16];
int count;

static inline __attribute__((always_inline)) void *inlined_into_it(size_t n) {
    return malloc(n);
}

__attribute__((noinline)) void hold_in_main(void) {
    kept[count++] = inlined_into_it(1000);
}

int main(int argc, char **argv) {
    hold_in_main();
    for (int i = 1; i < argc; i++) {
        void *library = dlopen(argv[i], RTLD_NOW);
        if (library == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        // From here on no relative path leads to it.
        if (chdir("/") != 0) {
            return 1;
        }
        void *(*plug_in)(void) = (void *(*)(void))dlsym(library, "plug_in");
        kept[count++] = plug_in();
        if (i + 1 < argc) {
            dlclose(library);
        }
    }
    puts("ready");
    fflush(stdout);
    return getchar() == EOF;
}
