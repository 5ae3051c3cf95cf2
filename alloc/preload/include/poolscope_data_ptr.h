/* poolscope_data_ptr.h - an owned buffer: what poolscope.h makes of host memory and poolscope_gpu.h of device memory.
 *
 * poolscope.h says who owns it, and frees it. */
#ifndef POOLSCOPE_DATA_PTR_H
#define POOLSCOPE_DATA_PTR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Gives a buffer back. */
typedef void (*poolscope_deleter)(void *context);

/* Values of device_kind; any other number is the business of those who use it. They are those of PyTorch's DeviceType. */
#define POOLSCOPE_DEVICE_HOST 0
#define POOLSCOPE_DEVICE_CUDA 1

typedef struct poolscope_data_ptr {
    void *data;                /* first byte; may be null if length is 0 */
    size_t length;             /* bytes */
    void *context;             /* what the deleter gets */
    poolscope_deleter deleter; /* null for a borrowed buffer */
    int32_t device_kind;       /* where the memory lies */
    int32_t device_index;      /* which device of that kind; 0 for the host */
} poolscope_data_ptr;

/* The empty buffer: no bytes, nothing to free. It is all zeros. */
#define POOLSCOPE_DATA_PTR_EMPTY {NULL, 0, NULL, NULL, POOLSCOPE_DEVICE_HOST, 0}

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
