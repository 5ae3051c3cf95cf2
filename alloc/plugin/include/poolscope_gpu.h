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
 * with as many bytes as follow a colon, and as many of them as follow another (sim:1G:2). Addresses of its memory can't be
 * read, those of pinned memory can; programs that only allocate, and tests of such programs, run on it anywhere.
 *
 * Every function may be called from any thread. C99 or later, C++11 or later.
 */
#ifndef POOLSCOPE_GPU_H
#define POOLSCOPE_GPU_H

#include <stddef.h>
#include <stdint.h>

#include "poolscope_data_ptr.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The words of the calling thread's last refusal, until its next one; null without any. */
const char *poolscope_gpu_error(void);

/* Which build of the library this is, such as "libpoolscope_gpu.so 0.1.0 commit 15d0db6 segment 8": the last number is the
 * version of the segments that it writes. */
const char *poolscope_gpu_build(void);

/* Devices that there are; -1 if there is no driver to ask. */
int poolscope_gpu_device_count(void);

/* -- Blocks -- */

/* At least `size` bytes, aligned to 256, for work given to the stream from now on. Null if that is refused. A size of 0 gets a
 * block of its own, too. */
void *poolscope_gpu_alloc(int device, size_t size, void *stream);

/* Frees a block: work that was given to the stream before may still use it. Null is allowed. 0, or -1 if it is no block of the
 * program's: it was freed before, or is inside of one. A hardened pool refuses a stream that is none, too. Blocks of pinned memory
 * may be freed by it. */
int poolscope_gpu_free(int device, void *block, void *stream);

/* Says that work on this stream uses the block, too: when it is freed, it is reused after what the stream has to do then. */
int poolscope_gpu_record_stream(int device, void *block, void *stream);

/* Says that a stream is about to be destroyed; what was freed on it goes to the other streams. */
int poolscope_gpu_stream_ends(int device, void *stream);

/* Bytes that the block has; 0 if it is none. */
size_t poolscope_gpu_size(int device, const void *block);

/* -- Pinned host memory --
 *
 * Memory of the host, locked in place, which the device and the host read and write at the same address. It is a pool like the
 * device's, with the same settings, in the order of the same streams; every tool shows it as the device's pinned memory. */
void *poolscope_gpu_pinned_alloc(int device, size_t size, void *stream);
int poolscope_gpu_pinned_free(int device, void *block, void *stream);

/* -- Owned buffers --
 *
 * A block as a poolscope_data_ptr, in *out, whose former value is not freed: deleter(context) frees it on the stream that it was
 * allocated on, which must be there then. poolscope_data_ptr_free() of poolscope.h does so, and code that knows nothing of
 * devices may. device_kind is POOLSCOPE_DEVICE_CUDA with the device as device_index, or POOLSCOPE_DEVICE_HOST for pinned memory.
 * A size of 0 makes the empty buffer. 0, or -1; then *out is empty. */
int poolscope_gpu_data_ptr_alloc(int device, size_t size, void *stream, poolscope_data_ptr *out);
int poolscope_gpu_pinned_data_ptr_alloc(int device, size_t size, void *stream, poolscope_data_ptr *out);

/* -- Hooks --
 *
 * A hook is called before and after every allocation and every free of device and pinned memory, on the thread that does it.
 * There may be any number. A hook may allocate and free (that is reported to nobody), add and remove hooks; it must not throw.
 * Without one, nothing gets slower. */

enum {
    POOLSCOPE_GPU_BEFORE_ALLOC = 0, /* block is null */
    POOLSCOPE_GPU_AFTER_ALLOC = 1,  /* block is null if there was no memory */
    POOLSCOPE_GPU_BEFORE_FREE = 2,
    POOLSCOPE_GPU_AFTER_FREE = 3 /* block may be somebody else's by now; it does not come where the free was refused */
};

typedef struct poolscope_gpu_event {
    uint32_t moment; /* one of the above */
    int device;
    int is_pinned; /* 1 for the device's pinned memory */
    void *block;
    size_t size; /* allocations: bytes asked for; frees: bytes that the block has */
    void *stream;
} poolscope_gpu_event;

typedef void (*poolscope_gpu_hook)(const poolscope_gpu_event *event, void *context);

/* Adds a hook; it sees what begins from now on. Returns a number for its removal, or 0 if the hook is null. */
uint64_t poolscope_gpu_add_hook(poolscope_gpu_hook hook, void *context);

/* Removes a hook. When this returns, no thread is in it and none will be, unless it was called from a hook: then only the
 * second holds. 0, or -1 if there is no such hook. */
int poolscope_gpu_remove_hook(uint64_t hook);

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

/* A round of the background work: looks how far the streams are, merges what is over, defragments when that is due, and gives
 * back what was idle. The pool's own thread does it, unless background_interval_ms is 0. */
int poolscope_gpu_maintain(int device);

/* Lets a device read and write another one's memory, what it has now and what will come. The other way round is another call. */
int poolscope_gpu_enable_peer(int memory_of, int for_device);

/* The counters as one JSON object, cut to `room` bytes with the zero at its end. Returns the length of all of it; 0 if it is
 * refused. */
size_t poolscope_gpu_stats_json(int device, char *text, size_t room);
int poolscope_gpu_print_stats(int device);
int poolscope_gpu_reset_stats(int device);
/* Has peak_usage and peak_held alone begin anew, with what there is. */
int poolscope_gpu_reset_peaks(int device);

/* -- Settings --
 *
 * poolscope_gpu_configure() changes a setting while the pool runs, to a value as text. poolscope_gpu_get() writes a setting's
 * value, cut to `room` bytes with the zero at its end, and returns the length of all of it; 0 if there is no such setting.
 * What a process starts with is said in its environment: POOLSCOPE_GPU_ and the name in capitals (POOLSCOPE_GPU_MEMORY_LIMIT=8G).
 * Bytes may end in K, M, G or T.
 *
 * The settings, what they take, and their defaults:
 *
 * "alignment", a power of two of bytes from 256 to 2M; 256. Bytes to a multiple of which every block is aligned and
 *     rounded up.
 * "memory_limit", bytes from 0 to 1024T; 0. Bytes of memory that the pool holds at most; 0 for as many as the device
 *     has. What it holds already it keeps until it is free.
 * "wait_for_streams", 0 or 1; 1. 1 lets a request take memory that another stream has freed, behind an event, before
 *     memory is created. With 0 it takes what that stream is known to be done with, and no stream waits for another
 *     one.
 * "wait_share", a number from 0 to 1; 0.01. The part of its time for which a stream at work may be held up by what
 *     others have freed, before memory is created instead. With 0 it takes only what is over before its own work is;
 *     with 1 it waits as long as it takes, and a pool whose streams are far behind holds up to a fifth less.
 * "piece_divisor", a number from 0 to 1099511627776; 96. The length of the pieces in which memory is created: half of
 *     what is new, where several streams use the pool an eighth; at most what is held divided by this, or 48 MiB (8
 *     MiB) where that is more; at least the lesser of these two. 0: 2 MiB. With a small divisor cold starts are quick,
 *     since the driver charges for pieces; but a piece is put together with others as a whole, so that more memory is
 *     held.
 * "fit_medium_below", bytes from 0 to 1024T; 1024T. Bytes that the pool holds up to which blocks of 64 KiB to 1 MiB
 *     take what was asked for and no power of two, as larger ones do, unless threads often wait for each other. A pool
 *     holds up to a third less by it. A thread keeps such blocks for requests of the same length; for other lengths it
 *     takes the pool's lock. 0: never.
 * "thread_cache_max_blocks", a number from 0 to 1048576; 64. Free blocks of a size class that a thread keeps for a
 *     stream, at most. Of large classes it begins with 1 MiB, and keeps more if that turns out to be too few.
 * "global_cache_max_blocks", a number from 0 to 1073741824; 1024. Free blocks of a size class that all threads together
 *     keep for a stream, beside their own.
 * "batch_alloc_count", a number from 1 to 65536; 16. Blocks that move between these at a time.
 * "pinned_fallback", 0 or 1; 0. 1 serves requests from pinned host memory where there is no device memory and nothing
 *     else has helped.
 * "enable_stats", 0 or 1; 1. 1 counts blocks as they come and go. Without, the counts, totals and hits stay as they
 *     are, and what small blocks take includes those in caches, from then on.
 * "hardened", 0 or 1; 0. 1 looks at every free: two threads that free one block at once, a stream that is gone. A freed
 *     block waits before it is given out again. Decided when the pool is made.
 * "enable_defrag", 0 or 1; 1. 1 lets the background work defragment.
 * "defrag_threshold", a number from 0 to 1; 0.3. The part of the held memory that may lie free in pieces too small for
 *     the largest recent request, before the background work defragments.
 * "defrag_interval_ms", milliseconds from 1 to 1000000000; 5000. Time that passes at least before the background work
 *     defragments again.
 * "idle_release_ms", milliseconds from 0 to 1000000000; 10000. Time after which free granules go back to the device.
 * "background_interval_ms", milliseconds from 0 to 3600000; 20. Time between two rounds of the pool's own thread, which
 *     does the background work; 0: it has none, and the program calls for a round (`maintain`). Where time is
 *     simulated, there is no thread either.
 * "driver_calls_per_second", a number from 0 to 1000000000; 1000. Calls to the driver that the background work may make
 *     in a second.
 */
int poolscope_gpu_configure(int device, const char *setting, const char *value);
size_t poolscope_gpu_get(int device, const char *setting, char *text, size_t room);

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
