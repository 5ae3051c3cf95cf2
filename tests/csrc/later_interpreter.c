// A program that loads an interpreter's library when it runs, as servers load one with a plugin.
//
//     later_interpreter LIBRARY SCRIPT             CPython runs the script
//     later_interpreter -r LIBRARY SCRIPT          Ruby does
//     later_interpreter -u LIBRARY... ROUNDS       each CPython in turn is loaded, runs a function and is unloaded;
//                                                  prints whether it is gone
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A library that a program loads is there for what else it loads, or for those alone that ask for it by name.
static void *load(const char *path, int how)
{
    void *library = dlopen(path, RTLD_NOW | how);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    return library;
}

// Writes the address of a function to where its pointer lies.
static void find(void *library, const char *name, void *pointer)
{
    void *found = dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    memcpy(pointer, &found, sizeof found);
}

static int run_python(char **args, int count)
{
    void *library = load(args[1], RTLD_GLOBAL);
    int (*run)(int, char **);
    find(library, "Py_BytesMain", &run);
    return run(count - 1, args + 1);
}

static int run_ruby(char **args, int count)
{
    void *library = load(args[1], RTLD_GLOBAL);
    void (*start)(int *, char ***);
    find(library, "ruby_sysinit", &start);
    void (*set_up)(void);
    find(library, "ruby_init", &set_up);
    void *(*options)(int, char **);
    find(library, "ruby_options", &options);
    int (*run)(void *);
    find(library, "ruby_run_node", &run);
    void (*init_stack)(void *);
    find(library, "ruby_init_stack", &init_stack);
    char **rest = args + 1;
    count--;
    start(&count, &rest);
    void *here;
    init_stack(&here);
    set_up();
    return run(options(count, rest));
}

// What the script makes goes with its interpreter.
static void run_once(const char *path, int round, int number)
{
    void *library = load(path, RTLD_LOCAL);
    void (*initialize)(int);
    find(library, "Py_InitializeEx", &initialize);
    int (*run)(const char *);
    find(library, "PyRun_SimpleString", &run);
    int (*finalize)(void);
    find(library, "Py_FinalizeEx", &finalize);
    char script[256];
    snprintf(script, sizeof script,
             "def of_%d_in_%d():\n    return bytearray(%d)\nx = of_%d_in_%d()\n", number, round,
             300000 + 1000 * (10 * round + number), number, round);
    initialize(0);
    if (run(script) != 0 || finalize() != 0)
        exit(3);
    dlclose(library);
    library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    printf("%s\n", library == NULL ? "unloaded" : "stays");
    if (library != NULL)
        dlclose(library);
}

int main(int count, char **args)
{
    if (strcmp(args[1], "-u") == 0) {
        for (int round = 0; round < atoi(args[count - 1]); round++)
            for (int number = 0; number < count - 3; number++)
                run_once(args[2 + number], round, number);
        puts("ready");
        fflush(stdout);
        getchar();
        return 0;
    }
    if (strcmp(args[1], "-r") == 0)
        return run_ruby(args + 1, count - 1);
    return run_python(args, count);
}
