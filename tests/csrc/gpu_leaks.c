// Keeps and loses memory of a simulated device. tests/tests/gpu_leaks.rs has what is leaked then.
#include <stdlib.h>
#include <string.h>

#include "poolscope_gpu.h"

static void *volatile in_a_static;
static void *volatile *volatile in_a_block;
static void *volatile pinned;
static char *volatile interior;
static poolscope_data_ptr owned;

__attribute__((noinline)) static void lose_a_tensor(void) { poolscope_gpu_alloc(0, 3 << 20, NULL); }

__attribute__((noinline)) static void lose_what_points_to_one(void) {
    void *volatile *holder = malloc(sizeof *holder);
    *holder = poolscope_gpu_alloc(0, 5000, NULL);
}

__attribute__((noinline)) static void lose_pinned_memory(void) { poolscope_gpu_pinned_alloc(0, 7000, NULL); }

__attribute__((noinline)) static void lose_owned_buffers(void) {
    poolscope_data_ptr *lost = malloc(sizeof *lost);
    poolscope_gpu_data_ptr_alloc(0, 10000, NULL, lost);
    poolscope_data_ptr pinned_buffer;
    poolscope_gpu_pinned_data_ptr_alloc(0, 11000, NULL, &pinned_buffer);
}

__attribute__((noinline)) static void keep(void) {
    in_a_static = poolscope_gpu_alloc(0, 2 << 20, NULL);
    in_a_block = malloc(sizeof *in_a_block);
    *in_a_block = poolscope_gpu_alloc(0, 6000, NULL);
    pinned = poolscope_gpu_pinned_alloc(0, 8000, NULL);
    interior = (char *)poolscope_gpu_alloc(0, 4 << 20, NULL) + 100;
    poolscope_gpu_data_ptr_alloc(0, 12000, NULL, &owned);
    poolscope_gpu_free(0, poolscope_gpu_alloc(0, 9000, NULL), NULL);
}

__attribute__((noinline, used)) static void use_the_device(void) {
    for (int i = 0; i < 100; i++) poolscope_gpu_free(0, poolscope_gpu_alloc(0, 9000, NULL), NULL);
}

// Allocates device memory while the frame pointer is a pointer of the program's.
void call_with_frame_pointer(void *pointer);
#if defined(__x86_64__)
__asm__(".text\n"
        ".type call_with_frame_pointer, @function\n"
        "call_with_frame_pointer:\n"
        ".cfi_startproc\n"
        "push %rbp\n"
        ".cfi_def_cfa_offset 16\n"
        ".cfi_offset %rbp, -16\n"
        "mov %rdi, %rbp\n"
        "xor %edi, %edi\n"
        "call use_the_device\n"
        "pop %rbp\n"
        ".cfi_restore %rbp\n"
        ".cfi_def_cfa_offset 8\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size call_with_frame_pointer, . - call_with_frame_pointer\n");
#else
void call_with_frame_pointer(void *pointer) { use_the_device(); }
#endif

__attribute__((noinline)) static void lose_a_frame_pointer(void) { call_with_frame_pointer(malloc(56)); }

__attribute__((noinline)) static void scrub(void) {
    volatile char bytes[1 << 16];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = 0;
}

int main(int count, char **arguments) {
    keep();
    if (count > 1 && strcmp(arguments[1], "lose") == 0) {
        lose_a_tensor();
        lose_what_points_to_one();
        lose_pinned_memory();
        lose_owned_buffers();
        lose_a_frame_pointer();
    }
    scrub();
    return 0;
}
