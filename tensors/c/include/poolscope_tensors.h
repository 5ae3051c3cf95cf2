/* Named tensors: one name, one piece of device memory, in every process of the machine.
 *
 * A store is a connection to the owner (`poolscope tensors serve`); a tensor is a guard: its memory may be used until it
 * is released. All functions may be called from any thread. A function that fails returns NULL, or -1, and says why by
 * poolscope_tensors_error. A process that forks opens a store of its own in the child. */
#ifndef POOLSCOPE_TENSORS_H
#define POOLSCOPE_TENSORS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct poolscope_store poolscope_store;
typedef struct poolscope_tensor poolscope_tensor;

/* The calling thread's last refusal: words, and a code for programs ("no_such_name"). Valid until its next call. */
const char *poolscope_tensors_error(void);
const char *poolscope_tensors_error_code(void);

/* The store of an owner's socket; NULL is that of POOLSCOPE_TENSORS, or the usual one. */
poolscope_store *poolscope_tensors_open(const char *socket);
/* The same, with another limit than 10 seconds for each wait: for an owner that does not answer, and for a stream that
 * still writes a tensor ("timeout"). */
poolscope_store *poolscope_tensors_open_within(const char *socket, double seconds);
/* Tensors stay valid until they are released. */
void poolscope_tensors_close(poolscope_store *store);

/* A tensor by name. `expect` is NULL, or JSON: what its `meta` must have. */
poolscope_tensor *poolscope_tensors_get(poolscope_store *store, const char *name, const char *expect);

/* The same for work that the stream (a CUstream) is given from now on: what is still being written is waited for by the
 * stream, and not by the host. */
poolscope_tensor *poolscope_tensors_get_on(poolscope_store *store, const char *name, const char *expect,
                                           uint64_t stream);

/* All tensors whose names begin so: a new array of `*count` of them, for poolscope_tensors_free. */
poolscope_tensor **poolscope_tensors_get_many(poolscope_store *store, const char *prefix, size_t *count);

/* A new tensor, which others get once it is committed. `dtype` as "f32"; `meta` is NULL, or a JSON object. */
poolscope_tensor *poolscope_tensors_create(poolscope_store *store, const char *name, const char *dtype,
                                           const uint64_t *shape, size_t rank, uint32_t device, const char *meta);
int poolscope_tensors_commit(poolscope_store *store, const poolscope_tensor *tensor);

/* Gives a name to memory of this process: `address` on the GPU of this identifier ("GPU-..."). Memory that was created
 * exportable outlives the process; plain memory (cudaMalloc) goes with it. */
int poolscope_tensors_publish(poolscope_store *store, const char *name, const char *dtype, const uint64_t *shape,
                              size_t rank, uint32_t device, const char *gpu_uuid, uint64_t address, const char *meta);

/* Any request of the protocol as JSON; its reply as JSON, for poolscope_tensors_free. */
char *poolscope_tensors_request(poolscope_store *store, const char *request);

/* Frees an array or a text that one of these functions returned. */
void poolscope_tensors_free(void *allocated);

/* The identifier of a CUDA device of this process, for poolscope_tensors_free; and its number in this process, or -1. */
char *poolscope_tensors_gpu_uuid(uint32_t ordinal);
int poolscope_tensors_ordinal(const char *gpu_uuid);

/* Where the tensor lies in this process, and its bytes. On a simulated device it is memory of the host. */
uint64_t poolscope_tensor_address(const poolscope_tensor *tensor);
uint64_t poolscope_tensor_bytes(const poolscope_tensor *tensor);
/* All that the owner says of it, as JSON: name, dtype, shape, strides, gpu_uuid, generation, meta and more. Valid as
 * long as the tensor. */
const char *poolscope_tensor_entry(const poolscope_tensor *tensor);
/* Copies between the tensor and memory of the host. */
int poolscope_tensor_read(const poolscope_tensor *tensor, uint64_t offset, void *to, size_t bytes);
int poolscope_tensor_write(const poolscope_tensor *tensor, uint64_t offset, const void *from, size_t bytes);
/* Says that work of a stream uses it: its memory is not used again before the work is done that the stream has when the
 * tensor is released. The call that releases it does not wait, unless it takes the slab's mapping away. */
int poolscope_tensor_record_stream(poolscope_tensor *tensor, uint64_t stream);
/* Finishes a tensor that was created while a stream still writes it: readers, or their streams, wait for the work that it
 * has now. */
int poolscope_tensor_commit_on(const poolscope_tensor *tensor, uint64_t stream);
/* Gives it back. NULL is ignored. */
void poolscope_tensor_release(poolscope_tensor *tensor);

#ifdef __cplusplus
}
#endif

#endif
