/* The library by dlopen, after the program has started: malloc stays the C library's, and poolscope_malloc is the pool's.
 * usage: by_name_alone PATH_OF_LIBRARY */
#include "poolscope.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define FUNCTION(name) __typeof__(name) *name##_ = (__typeof__(name) *)dlsym(library, #name)

/* Whether the C library's allocator is at work: its own count of used bytes grows. */
static int malloc_is_the_c_librarys(void) {
    struct mallinfo2 before = mallinfo2();
    void *volatile block = malloc(100000);
    struct mallinfo2 after = mallinfo2();
    free(block);
    return after.uordblks - before.uordblks >= 100000;
}

int main(int argc, char **argv) {
    CHECK(argc == 2 && malloc_is_the_c_librarys());
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    FUNCTION(poolscope_malloc);
    FUNCTION(poolscope_calloc);
    FUNCTION(poolscope_realloc);
    FUNCTION(poolscope_aligned_alloc);
    FUNCTION(poolscope_usable_size);
    FUNCTION(poolscope_free);

    struct mallinfo2 before = mallinfo2();
    void *blocks[4] = {poolscope_malloc_(100000), poolscope_calloc_(1000, 100), poolscope_aligned_alloc_(64, 100000),
                       poolscope_malloc_(50000)};
    blocks[3] = poolscope_realloc_(blocks[3], 100000);
    /* The pool ends the program on a block of another allocator. */
    for (int i = 0; i < 4; i++) CHECK(poolscope_usable_size_(blocks[i]) >= 100000);
    CHECK(mallinfo2().uordblks - before.uordblks < 100000);
    for (int i = 0; i < 3; i++) poolscope_free_(blocks[i]);
    CHECK(!poolscope_realloc_(blocks[3], 0));

    CHECK(malloc_is_the_c_librarys());
    free(strdup("a block of the C library"));
    puts("both allocators");
    return failed_checks;
}
