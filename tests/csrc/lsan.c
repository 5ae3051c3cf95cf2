// A program that is written for LeakSanitizer: lsan SCENARIO
//
// It declares the functions as sanitizer/lsan_interface.h does. tests/tests/lsan.rs has what comes of each scenario.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void __lsan_disable(void);
void __lsan_enable(void);
void __lsan_ignore_object(const void *block);
void __lsan_register_root_region(const void *begin, size_t bytes);
void __lsan_unregister_root_region(const void *begin, size_t bytes);
void __lsan_do_leak_check(void);
int __lsan_do_recoverable_leak_check(void);

#ifdef SUPPRESSIONS
const char *__lsan_default_suppressions(void) { return "leak:lose_on_purpose\n"; }
#endif
#ifdef TURNED_OFF
int __lsan_is_turned_off(void) { return 1; }
#endif
#ifdef OPTIONS
const char *__lsan_default_options(void) { return "exitcode=7"; }
#endif

enum { SIZE = 1337 };

static void *volatile held;

__attribute__((noinline)) static void scrub(void) {
    volatile char bytes[8192];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = 0;
    __asm__ volatile("" ::: "rbx", "r12", "r13", "r14", "r15", "memory");
}

__attribute__((noinline)) static void lose_on_purpose(size_t size) {
    void *volatile p = malloc(size);
    p = NULL;
    (void)p;
}

// What a check says: 1 if anything leaked.
static int check(void) {
    scrub();
    return __lsan_do_recoverable_leak_check();
}

static int recoverable(void) {
    held = malloc(SIZE);
    int first = check();
    held = NULL;
    int second = check();
    lose_on_purpose(23);
    int third = check();
    printf("%d %d %d\n", first, second, third);
    return 0;
}

static int disabled(void) {
    __lsan_disable();
    __lsan_disable();
    void **volatile block = malloc(SIZE);
    __lsan_enable();
    // What an ignored block leads to is none either, whenever it came.
    lose_on_purpose(100);
    __lsan_enable();
    *(void *volatile *)block = malloc(666);
    block = NULL;
    printf("%d\n", check());
    lose_on_purpose(23);
    printf("%d\n", check());
    return 0;
}

static int ignored(void) {
    void **volatile block = malloc(SIZE);
    *(void *volatile *)block = malloc(666);
    __lsan_ignore_object((void *)block);
    block = NULL;
    printf("%d\n", check());
    return 0;
}

static int root_region(void) {
    // A file that processes share is no root by itself.
    int file = memfd_create("shared", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, 8192) != 0) abort();
    void **shared = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared == MAP_FAILED || mprotect((char *)shared + 4096, 4096, PROT_NONE) != 0) abort();
    shared[7] = malloc(SIZE);
    __lsan_register_root_region(shared, 8192);
    printf("%d\n", check());
    __lsan_unregister_root_region(shared, 8192);
    printf("%d\n", check());
    return 0;
}

static int do_leak_check(void) {
    lose_on_purpose(SIZE);
    scrub();
    __lsan_do_leak_check();
    puts("goes on");
    return 3;
}

static int lose(void) {
    lose_on_purpose(SIZE);
    return 0;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int (*run)(void);
    } scenarios[] = {
        {"recoverable", recoverable}, {"disabled", disabled},           {"ignored", ignored},
        {"root_region", root_region}, {"do_leak_check", do_leak_check}, {"lose", lose},
    };
    setvbuf(stdout, NULL, _IOLBF, 256);
    for (size_t i = 0; argc > 1 && i < sizeof scenarios / sizeof *scenarios; i++) {
        if (strcmp(scenarios[i].name, argv[1]) == 0) {
            int code = scenarios[i].run();
            scrub();
            return code;
        }
    }
    return 2;
}
