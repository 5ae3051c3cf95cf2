/* poolscope_gpu.h - the C interface of libpoolscope_gpu.so: device memory in the order of streams.
 *
 *     cc train.c -lpoolscope_gpu
 *
 * A process has one pool for each CUDA device that it names, made at the first call and there until it ends. Memory is that
 * of the device's primary context, which the CUDA runtime uses, too. `device` is the driver's number, from 0; `stream`
 * is a CUstream or cudaStream_t, null for the legacy default stream.
 *
 * What fails says so by its value, and poolscope_gpu_error() has the words: without a driver, with one that is too old,
 * without memory. Nothing here ends the process.
 *
 * POOLSCOPE_GPU_DEVICE=sim in the environment puts a simulated device in the place of the real ones, with 16 GiB of memory or
 * with as many bytes as follow a colon (sim:1073741824). Its addresses can't be read; programs that only allocate, and
 * tests of such programs, run on it anywhere.
 *
 * Every function may be called from any thread. C99 or later, C++11 or later.
 */
#ifndef POOLSCOPE_GPU_H
#define POOLSCOPE_GPU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The words of the calling thread's last refusal, until its next one; null without any. */
const char *poolscope_gpu_error(void);

/* Devices that there are; -1 if there is no driver to ask. */
int poolscope_gpu_device_count(void);

/* -- Blocks -- */

/* At least `size` bytes, aligned to 256, for work given to the stream from now on. Null if that is refused. A size of 0 gets a
 * block of its own, too. */
void *poolscope_gpu_alloc(int device, size_t size, void *stream);

/* Frees a block: work that was given to the stream before may still use it. Null is allowed. 0, or -1 if it is no block. */
int poolscope_gpu_free(int device, void *block, void *stream);

/* Says that work on this stream uses the block, too: when it is freed, it is reused after what the stream has to do then. */
int poolscope_gpu_record_stream(int device, void *block, void *stream);

/* Says that a stream is about to be destroyed; what was freed on it goes to the other streams. */
int poolscope_gpu_stream_ends(int device, void *stream);

/* Bytes that the block has; 0 if it is none. */
size_t poolscope_gpu_size(int device, const void *block);

/* -- Graphs -- */

/* To be called before the stream's work is captured, with a number for the graph: what is allocated on the stream until
 * poolscope_gpu_end_capture() is the graph's own until poolscope_gpu_end_graph(). That one gives it up in the order of a
 * stream that comes after the graph's last launch. */
int poolscope_gpu_begin_capture(int device, void *stream, uint64_t graph);
int poolscope_gpu_end_capture(int device, uint64_t graph);
int poolscope_gpu_end_graph(int device, uint64_t graph, void *stream);

/* -- The pool -- */

/* Puts free memory for so many blocks of a size into the pool. */
int poolscope_gpu_preallocate(int device, size_t size, size_t blocks, void *stream);

/* Gives memory back to the device that is free: that whose work is over, or all, after waiting for it. The bytes. */
size_t poolscope_gpu_trim(int device);
size_t poolscope_gpu_release_all(int device);

/* Merges free memory that is next to each other, once its work is over. */
int poolscope_gpu_defragment(int device);

/* Changes a setting while the pool runs: "alignment", "thread_cache_max_blocks", "memory_limit" and the others that README.md
 * names, each with its value as text. */
int poolscope_gpu_configure(int device, const char *setting, const char *value);

/* The counters as one JSON object, cut to `room` bytes with the zero at its end. Returns the length of all of it; 0 if it is
 * refused. */
size_t poolscope_gpu_stats_json(int device, char *text, size_t room);
int poolscope_gpu_print_stats(int device);
int poolscope_gpu_reset_stats(int device);

/* -- PyTorch -- see samples/python/torch_pluggable.py. */

void *poolscope_torch_alloc(size_t size, int device, void *stream);
void poolscope_torch_free(void *block, size_t size, int device, void *stream);
void poolscope_torch_init(int devices);
void poolscope_torch_reset(void);
void poolscope_torch_memory_fraction(double fraction, int device);
void *poolscope_torch_base_alloc(void *address, size_t *size);
void poolscope_torch_record_stream(void *block, void *stream);

/* c10::MempoolId_t. The last argument of begin is a std::function, by reference, which is not looked at. */
typedef struct {
    uint64_t capture, user;
} poolscope_torch_pool_id;
void poolscope_torch_begin_pool(int device, poolscope_torch_pool_id pool, const void *filter);
void poolscope_torch_end_pool(int device, poolscope_torch_pool_id pool);
void poolscope_torch_release_pool(int device, poolscope_torch_pool_id pool);

/* -- CuPy -- see samples/python/cupy_pool.py. `stream` is what CFunctionAllocator calls `param`. */

void *poolscope_cupy_malloc(void *stream, size_t size, int device);
void poolscope_cupy_free(void *stream, void *block, int device);

#ifdef __cplusplus
}
#endif
#endif
