/* A program that loads a library as PHP loads its extensions: bound to the library's own dependencies first. What one
 * allocates the other frees. Without arguments it is the program; compiled with LIBRARY it is the library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef LIBRARY
char *renamed(char *name);
char *renamed(char *name) {
    free(name);
    return strdup("of the library");
}
#else
int main(void) {
    void *library = dlopen("libdeepbind.so", RTLD_NOW | RTLD_GLOBAL | RTLD_DEEPBIND); /* by the executable's run path */
    if (!library) {
        return fprintf(stderr, "%s\n", dlerror()), 2;
    }
    char *(*renamed)(char *) = (char *(*)(char *))dlsym(library, "renamed");
    for (int i = 0; i < 1000; i++) {
        char *name = renamed(strdup("of the program"));
        if (i == 999) {
            puts(name);
        }
        free(name);
    }
    return dlclose(library);
}
#endif
