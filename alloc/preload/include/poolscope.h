/* poolscope.h - the C interface of libpoolscope.so.
 *
 * Nothing here is needed to run on the pool: preloaded or linked (-lpoolscope), the library serves malloc and operator
 * new. This header is for programs that want more of it: blocks that are certain to be the pool's, and owned
 * buffers to pass between libraries and languages.
 *
 *     cc server.c $(pkg-config --cflags --libs poolscope)
 *
 * A program that is to run with and without the library defines POOLSCOPE_WEAK before it includes this file. It is
 * built without -lpoolscope and as a position-independent executable (-pie, the default of most distributions); each
 * function below is null in it unless the library was preloaded:
 *
 *     if (poolscope_release_free_memory) poolscope_release_free_memory();
 *
 * Every function may be called from any thread. C99 or later, C++11 or later.
 */
#ifndef POOLSCOPE_H
#define POOLSCOPE_H

#include <stddef.h>
#include <stdint.h>

#include "poolscope_data_ptr.h"

/* The version of this header. poolscope_version() is that of the library. */
#define POOLSCOPE_VERSION "0.1.0"

#ifdef POOLSCOPE_WEAK
#define POOLSCOPE_API __attribute__((weak))
#else
#define POOLSCOPE_API
#endif

#ifdef __cplusplus
#define POOLSCOPE_NOTHROW noexcept
extern "C" {
#else
#define POOLSCOPE_NOTHROW __attribute__((nothrow))
#endif

/* The library's version, such as "0.1.0". */
POOLSCOPE_API const char *poolscope_version(void) POOLSCOPE_NOTHROW;

/* The same with the commit that it was built from and the version of the segments that it writes, such as
 * "libpoolscope.so 0.1.0 commit 15d0db6 segment 11". */
POOLSCOPE_API const char *poolscope_build(void) POOLSCOPE_NOTHROW;

/* -- Blocks --
 *
 * The malloc family by names that are the pool's in every program, also where malloc is another allocator's (the
 * library came by dlopen, or the program brings a malloc of its own). Where malloc is the pool's, both families are
 * one: blocks of either may be freed by either.
 *
 * What returns null sets errno to ENOMEM. A pointer that is no block of the pool ends the program with a message. */

/* `size` bytes at a multiple of 16. A size of 0 gets a block of its own, too. */
POOLSCOPE_API void *poolscope_malloc(size_t size)
    POOLSCOPE_NOTHROW __attribute__((malloc, alloc_size(1), warn_unused_result));

/* `count` elements of `size` bytes, all zero; null if the product is too large. */
POOLSCOPE_API void *poolscope_calloc(size_t count, size_t size)
    POOLSCOPE_NOTHROW __attribute__((malloc, alloc_size(1, 2), warn_unused_result));

/* The block with `size` bytes, in place or elsewhere, with its contents as far as they fit. A null `block` is allocated, a
 * size of 0 frees the block and returns null. On failure the block stays as it is. */
POOLSCOPE_API void *poolscope_realloc(void *block, size_t size)
    POOLSCOPE_NOTHROW __attribute__((alloc_size(2), warn_unused_result));

/* `size` bytes at a multiple of `align`. Null and EINVAL unless `align` is a power of two; `size` need not be a multiple
 * of it. */
POOLSCOPE_API void *poolscope_aligned_alloc(size_t align, size_t size)
    POOLSCOPE_NOTHROW __attribute__((malloc, alloc_size(2), warn_unused_result));

/* Frees a block, whichever thread allocated it; null is allowed. errno is kept. */
POOLSCOPE_API void poolscope_free(void *block) POOLSCOPE_NOTHROW;

/* The same for callers that know the size they asked for, and the alignment if it was poolscope_aligned_alloc. */
POOLSCOPE_API void poolscope_free_sized(void *block, size_t size) POOLSCOPE_NOTHROW;
POOLSCOPE_API void poolscope_free_aligned_sized(void *block, size_t align, size_t size) POOLSCOPE_NOTHROW;

/* Bytes that the block holds, at least those that were asked for; 0 for null. */
POOLSCOPE_API size_t poolscope_usable_size(const void *block) POOLSCOPE_NOTHROW;

/* -- The pool as a whole -- */

/* Writes a copy of what other processes see of this heap to a file, with the counters as of now: `poolscope dump FILE`,
 * `poolscope flamegraph FILE` and the like read it, here and elsewhere, now and later. 0, or the error's number: EAGAIN
 * from a signal handler that interrupted the pool, ENODATA if the process has no segment (POOLSCOPE_PLAIN=1), EINVAL for
 * null.
 * Without a call, POOLSCOPE_DUMP_AT_EXIT=/path writes one at a normal exit, POOLSCOPE_DUMP_SIGNAL=USR2 when that signal
 * comes, and POOLSCOPE_DUMP_AT_REFUSAL=1 when a request finds no memory. */
POOLSCOPE_API int poolscope_dump(const char *path) POOLSCOPE_NOTHROW;

/* Serves this process's profiles over HTTP until it ends: has the command `poolscope serve` do so, which is looked for beside
 * the library, below its prefix and in PATH. `address` is one of the loopback interface with a port, as "127.0.0.1:6060",
 * which every user of the machine can read, or a socket that is yours alone, as "unix:/run/user/1000/heap.sock". What is
 * there: /debug/pprof/heap, allocs and leak, /flamegraph, /metrics, and / in a browser. Returns 0 when it listens, ENOENT
 * if there is no such command, or EINVAL if it can't listen there; it says why on standard error. */
POOLSCOPE_API int poolscope_serve(const char *address) POOLSCOPE_NOTHROW;

/* Gives the memory that no block is in back to the kernel: the calling thread's cache, those of threads that sleep, and
 * all free spans. Returns the bytes. */
POOLSCOPE_API size_t poolscope_release_free_memory(void) POOLSCOPE_NOTHROW;

/* The same, and the counters that only grow begin again at 0, so that one test does not see another's. */
POOLSCOPE_API size_t poolscope_reset(void) POOLSCOPE_NOTHROW;

/* -- Labels --
 *
 * A label is the program's own word for what a thread is doing. What the thread allocates under it has it in profiles (as
 * the outermost function, and as pprof's label), in metrics and in the dashboard. Where labels nest, the innermost one
 * counts. There are 64 at most, of 32 bytes each; where none is set, they cost nothing. */

/* Puts the calling thread under a label. Returns the one that it was under, for poolscope_label_leave. */
POOLSCOPE_API uint32_t poolscope_label_enter(const char *name) POOLSCOPE_NOTHROW;
POOLSCOPE_API void poolscope_label_leave(uint32_t outer) POOLSCOPE_NOTHROW;

/* Bytes in use of what was allocated under it, estimated from samples unless every allocation is recorded. */
POOLSCOPE_API uint64_t poolscope_label_in_use(const char *name) POOLSCOPE_NOTHROW;

enum {
    POOLSCOPE_OVER_WARN = 0,   /* says so on standard error, once until the label falls below seven eighths */
    POOLSCOPE_OVER_REFUSE = 1, /* the same, and requests under the label that are due to be sampled find no memory */
    POOLSCOPE_OVER_CALL = 2    /* calls a function, on the thread that passed the limit; it may allocate and free */
};

typedef void (*poolscope_label_call)(const char *name, uint64_t in_use, uint64_t limit, void *context);

/* Sets the bytes that a label is to have in use at most, and what is done beyond; 0 bytes for no limit. Limits are looked at
 * with each sample. Returns 0, or EINVAL: also where there are 64 other labels, so that nothing is limited. */
POOLSCOPE_API int poolscope_label_limit(const char *name, uint64_t bytes, int over, poolscope_label_call call,
                                        void *context) POOLSCOPE_NOTHROW;

/* -- Hooks --
 *
 * A hook is called before and after every allocation and every free, on the thread that does it. There may be any number.
 * A hook may allocate and free (that is reported to nobody), add and remove hooks; it must not throw. Without one, nothing
 * gets slower. A realloc is reported as an allocation and a free. */

enum {
    POOLSCOPE_BEFORE_ALLOC = 0, /* block is null */
    POOLSCOPE_AFTER_ALLOC = 1,  /* block is null if there was no memory */
    POOLSCOPE_BEFORE_FREE = 2,  /* the block can still be read */
    POOLSCOPE_AFTER_FREE = 3    /* block is a number only */
};

typedef struct poolscope_event {
    uint32_t moment; /* one of the above */
    void *block;
    size_t size;  /* allocations: bytes asked for; frees: bytes that the block holds */
    size_t align; /* allocations: the alignment asked for, at least 16; frees: 0 */
} poolscope_event;

typedef void (*poolscope_hook)(const poolscope_event *event, void *context);

/* Adds a hook. Returns a number for its removal, or 0 without memory and in a signal handler that interrupted the pool. */
POOLSCOPE_API uint64_t poolscope_add_hook(poolscope_hook hook, void *context) POOLSCOPE_NOTHROW;

/* Removes a hook. When this returns, no thread is in it and none will be, unless it was called from a hook: then only the
 * second holds. Returns 0, or ENOENT for a hook that there is not. */
POOLSCOPE_API int poolscope_remove_hook(uint64_t hook) POOLSCOPE_NOTHROW;

/* -- Settings -- */

/* Changes a setting while the program runs. `name` is that of the environment in small letters and without POOLSCOPE_
 * (docs/guide/settings.md lists them), `value` what the environment would say: poolscope_set("scavenge_ms", "1000").
 * Returns 0, ENOENT for a name that there is not, EINVAL for a value that the setting does not take, or EPERM for a
 * setting that only counts at the start of the process. */
POOLSCOPE_API int poolscope_set(const char *name, const char *value) POOLSCOPE_NOTHROW;

/* The texts below are written into `buffer` as far as its `size` bytes reach, with a zero byte at the end. Returned are the
 * bytes that the whole text takes, without that one, as snprintf does; `buffer` may be null if `size` is 0. */

/* A setting's value in force. Returns 0 for a name that there is not. */
POOLSCOPE_API size_t poolscope_get(const char *name, char *buffer, size_t size) POOLSCOPE_NOTHROW;

/* What the pool did and where its bytes are: in the layout of tcmalloc, as malloc_stats prints it to standard error and
 * `poolscope stats PID` to standard output; and as JSON. */
POOLSCOPE_API size_t poolscope_stats_text(char *buffer, size_t size) POOLSCOPE_NOTHROW;
POOLSCOPE_API size_t poolscope_stats_json(char *buffer, size_t size) POOLSCOPE_NOTHROW;

/* -- Owned buffers --
 *
 * A poolscope_data_ptr is a buffer together with the way to give it back, so that it can be freed by code that does not
 * know where it came from: tensors on their way through an inference engine.
 *
 * Ownership. Whoever holds the structure owns the buffer, and frees it, once: poolscope_data_ptr_free calls
 * deleter(context). A copy of the structure is the same buffer a second time, so that only one of the copies may be
 * freed; poolscope_data_ptr_move makes this visible by leaving an empty buffer behind. A buffer without a deleter is
 * borrowed: freeing it does nothing, and the memory's owner has to outlive it.
 *
 * A deleter is called by the thread that frees the buffer, which need not be the one that made it. It may allocate,
 * and free other buffers. No exception may leave it.
 *
 * The layout is part of the interface. Rust's poolscope_alloc::DataPtr has the same one: a buffer made there may be
 * freed here, and the other way round, also between two copies of the library in one process. */

/* Makes a buffer of `size` bytes of host memory at a multiple of `align`, a power of two, in *out, whose former value is
 * not freed. The contents are whatever was there. A size of 0 makes the empty buffer.
 * Returns 0, EINVAL for the alignment, or ENOMEM; then *out is empty. errno is kept. */
POOLSCOPE_API int poolscope_data_ptr_alloc(size_t size, size_t align, poolscope_data_ptr *out)
    POOLSCOPE_NOTHROW __attribute__((warn_unused_result));

/* A buffer of memory from elsewhere. With a deleter the buffer owns what `context` stands for. */
POOLSCOPE_API poolscope_data_ptr poolscope_data_ptr_wrap(void *data, size_t length, void *context,
                                                         poolscope_deleter deleter, int32_t device_kind,
                                                         int32_t device_index)
    POOLSCOPE_NOTHROW __attribute__((warn_unused_result));

/* The buffer in *from, which is empty afterwards. */
POOLSCOPE_API poolscope_data_ptr poolscope_data_ptr_move(poolscope_data_ptr *from)
    POOLSCOPE_NOTHROW __attribute__((warn_unused_result));

/* Frees the buffer in *buffer, which is empty before the deleter runs. Null and the empty buffer are allowed. */
POOLSCOPE_API void poolscope_data_ptr_free(poolscope_data_ptr *buffer) POOLSCOPE_NOTHROW;

#ifdef __cplusplus
} /* extern "C" */

#include <cerrno>
#include <cstddef>
#include <new>
#include <stdexcept>

namespace poolscope {

/* A poolscope_data_ptr that is freed when it goes out of scope. It can be moved and not copied. */
class data_ptr {
public:
    data_ptr() noexcept = default;
    /* Takes over a buffer that the caller owns. */
    explicit data_ptr(const poolscope_data_ptr &owned) noexcept : buffer_(owned) {}
    data_ptr(data_ptr &&other) noexcept : buffer_(other.release()) {}
    data_ptr &operator=(data_ptr &&other) noexcept {
        reset(other.release());
        return *this;
    }
    data_ptr(const data_ptr &) = delete;
    data_ptr &operator=(const data_ptr &) = delete;
    ~data_ptr() { poolscope_data_ptr_free(&buffer_); }

#ifdef __cpp_exceptions
    /* Host memory of the pool. Throws std::bad_alloc, or std::invalid_argument for an alignment that is no power of two. */
    static data_ptr allocate(std::size_t size, std::size_t align = alignof(std::max_align_t)) {
        data_ptr made;
        int error = poolscope_data_ptr_alloc(size, align, &made.buffer_);
        if (error == EINVAL) throw std::invalid_argument("poolscope::data_ptr: an alignment is a power of two");
        if (error != 0) throw std::bad_alloc();
        return made;
    }
#endif

    /* First byte. */
    void *get() const noexcept { return buffer_.data; }
    /* First element, for memory that the caller knows to be of this type. */
    template <class T> T *as() const noexcept { return static_cast<T *>(buffer_.data); }
    /* Bytes. */
    std::size_t size() const noexcept { return buffer_.length; }
    void *context() const noexcept { return buffer_.context; }
    poolscope_deleter deleter() const noexcept { return buffer_.deleter; }
    int device_kind() const noexcept { return buffer_.device_kind; }
    int device_index() const noexcept { return buffer_.device_index; }
    explicit operator bool() const noexcept { return buffer_.data != nullptr; }

    /* Frees the buffer and takes over another one, by default the empty one. */
    void reset(const poolscope_data_ptr &owned = poolscope_data_ptr()) noexcept {
        poolscope_data_ptr old = buffer_;
        buffer_ = owned;
        poolscope_data_ptr_free(&old);
    }
    /* Gives the buffer up to a caller who frees it. */
    poolscope_data_ptr release() noexcept {
        poolscope_data_ptr released = buffer_;
        buffer_ = poolscope_data_ptr();
        return released;
    }
    /* Gives the buffer up to a caller who knows what its deleter would have done with the context. */
    void *release_context() noexcept { return release().context; }

private:
    poolscope_data_ptr buffer_ = poolscope_data_ptr();
};

} // namespace poolscope
#endif

#endif
