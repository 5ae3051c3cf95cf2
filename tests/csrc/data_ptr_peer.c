/* The C side of buffers that go back and forth between Rust and C. */
#include "poolscope.h"

#include <stdlib.h>
#include <string.h>

static int deleted;

static void delete_words(void *context) {
    free(context);
    deleted++;
}

/* A buffer of the library's pool, which counts up. */
int peer_make(size_t length, poolscope_data_ptr *out) {
    int error = poolscope_data_ptr_alloc(length, 256, out);
    for (size_t i = 0; i < out->length; i++) ((unsigned char *)out->data)[i] = (unsigned char)i;
    return error;
}

/* A buffer of the C library's malloc. */
poolscope_data_ptr peer_wrap(void) {
    char *words = malloc(6);
    memcpy(words, "words", 6);
    return poolscope_data_ptr_wrap(words, 6, words, delete_words, POOLSCOPE_DEVICE_HOST, 0);
}

int peer_deleted(void) { return deleted; }

/* Takes a buffer by value, as the owner of the only copy. */
unsigned long peer_sum_and_free(poolscope_data_ptr buffer) {
    unsigned long sum = 0;
    for (size_t i = 0; i < buffer.length; i++) sum += ((unsigned char *)buffer.data)[i];
    poolscope_data_ptr_free(&buffer);
    return sum;
}

/* Writes to a buffer and gives it back. */
poolscope_data_ptr peer_double(poolscope_data_ptr buffer) {
    for (size_t i = 0; i < buffer.length; i++) ((unsigned char *)buffer.data)[i] *= 2;
    return poolscope_data_ptr_move(&buffer);
}
