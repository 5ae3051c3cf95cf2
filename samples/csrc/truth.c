/* Holds known amounts of memory from known places, and says what they are: a profile can be held to it.
 *
 * site_a holds 300 MiB, site_b 100 MiB, site_c allocates 50 MiB and frees them; with a path as argument, site_plugin
 * of that library (truth_plugin.c) holds 64 MiB. One line for each size tells how many blocks of it a site
 * allocated and how many of these it holds; then READY, and the program waits until its standard input ends.
 */
#include "truth.h"

#include <dlfcn.h>
#include <unistd.h>

#define SITE(name)                                                                   \
    __attribute__((noinline)) void name(struct blocks *blocks, size_t total) {       \
        blocks_fill(blocks, total);                                                  \
        __asm__ volatile("" ::: "memory"); /* no tail call takes this frame away */ \
    }

SITE(site_a)
SITE(site_b)
SITE(site_c)

int main(int argc, char **argv) {
    size_t a = 300 * MIB, b = 100 * MIB, c = 50 * MIB;
    struct blocks of_a = blocks_room(a), of_b = blocks_room(b), of_c = blocks_room(c);
    site_a(&of_a, a);
    site_b(&of_b, b);
    site_c(&of_c, c);
    blocks_free(&of_c);
    if (argc > 1) {
        void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (!plugin) {
            fprintf(stderr, "truth: %s\n", dlerror());
            return 1;
        }
        void (*hold)(void) = (void (*)(void))dlsym(plugin, "plugin_hold");
        if (!hold) {
            fprintf(stderr, "truth: %s\n", dlerror());
            return 1;
        }
        hold();
    }
    blocks_tell("site_a", a, 1);
    blocks_tell("site_b", b, 1);
    blocks_tell("site_c", c, 0);
    printf("READY\n");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) {
    }
    blocks_free(&of_a);
    blocks_free(&of_b);
    return 0;
}
