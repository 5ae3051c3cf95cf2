// Does what each argument names, and then holds 4,000 blocks of 1,000 bytes, from 64 call paths, until its input ends.
// Meanwhile it takes and frees large ones.
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCKS = 4000, BYTES = 1000, PATHS = 64 };

static void *volatile held[BLOCKS];

__attribute__((noinline)) static void *take(int depth) {
    void *volatile block = depth ? take(depth - 1) : malloc(BYTES);
    return block;
}

static void must(int result, const char *what) {
    if (result) {
        perror(what);
        _exit(1);
    }
}

int main(int argc, char **argv) {
    void *volatile first = malloc(BYTES);
    free(first);
    for (char **step = argv + 1; step < argv + argc; step++) {
        if (!strcmp(*step, "chroot")) must(chroot("/var") || chdir("/"), "chroot");
        if (!strcmp(*step, "setuid")) must(setgid(65534) || setuid(65534), "setuid");
    }
    for (int i = 0; i < BLOCKS; i++) held[i] = take(i % PATHS);
    must(write(1, "ready\n", 6) != 6, "write");
    struct pollfd input = {.fd = 0, .events = POLLIN};
    while (poll(&input, 1, 5) <= 0) {
        void *volatile large = malloc(1 << 20);
        free(large);
    }
    return 0;
}
