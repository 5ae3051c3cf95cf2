/* A compiler at run time: makes two functions that call malloc, and names them in the perf map. The first keeps a frame pointer, the
 * second none. A third one is named only after it was called. Then waits for a line. */
#pragma GCC diagnostic ignored "-Wpedantic"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void *kept[8];

__attribute__((noinline)) void *callee(void) {
    void *block = malloc(1000);
    memset(block, 1, 1000);
    return block;
}

static void *function(unsigned char *code, const unsigned char *bytes, size_t length) {
    memcpy(code, bytes, length);
    void *(*generated)(void *(*)(void)) = (void *(*)(void *(*)(void)))code;
    return generated(callee);
}

int main(void) {
    /* push rbp; mov rbp, rsp; call rdi; mov ecx, ecx; pop rbp; ret */
    static const unsigned char with[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x89, 0xc9, 0x5d, 0xc3};
    /* sub rsp, 8; call rdi; add rsp, 8; ret */
    static const unsigned char without[] = {0x48, 0x83, 0xec, 8, 0xff, 0xd7, 0x48, 0x83, 0xc4, 8, 0xc3};
    unsigned char *code =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED) {
        return 1;
    }
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    FILE *map = fopen(path, "w");
    fprintf(map, "%lx 40 jit_with_a_frame_pointer\n", (unsigned long)code);
    fprintf(map, "%lx 40 py::Cache.insert:/srv/app/cache.py\n", (unsigned long)code + 64);
    fflush(map);
    kept[0] = function(code, with, sizeof with);
    kept[1] = function(code + 64, without, sizeof without);
    kept[2] = function(code + 128, without, sizeof without);
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) {
        fprintf(map, "%lx 40 jit_named_later\n", (unsigned long)code + 128);
        fflush(map);
        puts("named");
        fflush(stdout);
    }
    fclose(map);
    unlink(path);
    return 0;
}
