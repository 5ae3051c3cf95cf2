/* poolscope_heapcheck.h - leak checks inside a program in C or C++, by libpoolscope.so.
 *
 *     uint64_t scope = poolscope_heapcheck_begin();
 *     run_the_test();
 *     struct poolscope_heapcheck_result result;
 *     if (poolscope_heapcheck_end(scope, NULL, &result) != 0) fail("%llu blocks", (unsigned long long)result.blocks);
 *
 * There are two questions. A scope says what grew: which blocks its thread has allocated in it that are still there at
 * its end. poolscope_heapcheck_check() says what nobody can reach: to which blocks of the whole process no pointer leads
 * any more. That takes a program with every allocation recorded (POOLSCOPE_PERIOD=1, or `poolscope check`).
 *
 * Programs written for LeakSanitizer need no change: the library has its functions, too (sanitizer/lsan_interface.h).
 *
 * Every function may be called from any thread. POOLSCOPE_WEAK is as in poolscope.h. C99 or later, C++11 or later.
 */
#ifndef POOLSCOPE_HEAPCHECK_H
#define POOLSCOPE_HEAPCHECK_H

#include <stddef.h>
#include <stdint.h>

#ifndef POOLSCOPE_API
#ifdef POOLSCOPE_WEAK
#define POOLSCOPE_API __attribute__((weak))
#else
#define POOLSCOPE_API
#endif
#endif

#ifdef __cplusplus
#ifndef POOLSCOPE_NOTHROW
#define POOLSCOPE_NOTHROW noexcept
#endif
extern "C" {
#else
#ifndef POOLSCOPE_NOTHROW
#define POOLSCOPE_NOTHROW __attribute__((nothrow))
#endif
#endif

/* What is left, or was found. */
struct poolscope_heapcheck_result {
    /* Blocks and their bytes. */
    uint64_t blocks;
    uint64_t bytes;
    /* Threads of the process that were to be stopped, and those that were; both 0 for a scope. */
    uint32_t threads;
    uint32_t stopped;
};

/* What a scope may leave. */
struct poolscope_heapcheck_limits {
    uint64_t blocks;
    uint64_t bytes;
};

/* Begins a scope of the calling thread, inside the one that it is in: every allocation of the thread is recorded until
 * the end. Scopes of other threads are not concerned, and what a thread that is started in the scope allocates is not
 * the scope's. What a static or a thread-local keeps that held nothing at the beginning is made when it is first needed,
 * and counts for nothing at the end. What the C library allocates in it and keeps, such as the record of the first thread
 * that is started, counts as well. 0 if there can be none (in a signal handler, or before anything was allocated). */
POOLSCOPE_API uint64_t poolscope_heapcheck_begin(void) POOLSCOPE_NOTHROW;

/* Begins a scope of all threads that are in none. 0 if not every allocation is recorded (POOLSCOPE_PERIOD=1). There is one
 * at a time: it takes the place of the one before. */
POOLSCOPE_API uint64_t poolscope_heapcheck_begin_all(void) POOLSCOPE_NOTHROW;

/* What was counted in a scope so far, and in those in it: calls that asked for memory, blocks that are in use, their bytes,
 * and the most that these ever were. */
struct poolscope_heapcheck_counts {
    uint64_t allocations;
    uint64_t blocks;
    uint64_t bytes;
    uint64_t peak;
};

/* 0, or -1 if the scope has ended or is not counted: 255 are at a time. */
POOLSCOPE_API int poolscope_heapcheck_count(uint64_t scope, struct poolscope_heapcheck_counts *counts) POOLSCOPE_NOTHROW;

/* A block that is in use, with the stack that allocated it, innermost first: return addresses, and calls of Python's
 * functions. `depth` says how many there are, of which the first 32 are here. */
struct poolscope_heapcheck_block {
    uint64_t address;
    uint64_t bytes;
    uint64_t depth;
    uint64_t frames[32];
};

/* Writes down the blocks of a scope that are in use, `room` of them at most. Returns how many there are. */
POOLSCOPE_API uint64_t poolscope_heapcheck_blocks(uint64_t scope, struct poolscope_heapcheck_block *blocks,
                                                  uint64_t room) POOLSCOPE_NOTHROW;

/* A function of Python's, and the line that it was at. */
struct poolscope_heapcheck_function {
    char name[256];
    char file[512];
    uint32_t line;
};

/* Says which function of Python's a frame of a block's stack is a call of. 0, or -1 if it is a return address. */
POOLSCOPE_API int poolscope_heapcheck_python(uint64_t frame, struct poolscope_heapcheck_function *function)
    POOLSCOPE_NOTHROW;

/* Ends a scope, in the thread that began it. 0 if it left nothing, or no more than `limits` allow; 1 if it left more;
 * -1 if that is not known, since records found no room. `limits` and `result` may be null. */
POOLSCOPE_API int poolscope_heapcheck_end(uint64_t scope, const struct poolscope_heapcheck_limits *limits,
                                          struct poolscope_heapcheck_result *result) POOLSCOPE_NOTHROW;

/* Looks for blocks that no pointer leads to, in the whole process, and writes a report of them to standard error if there
 * are any. All threads wait meanwhile. 0 if there are none, 1 if there are; -1 if that could not be found out, and
 * standard error says why. `result` may be null. It may be called any number of times. */
POOLSCOPE_API int poolscope_heapcheck_check(struct poolscope_heapcheck_result *result) POOLSCOPE_NOTHROW;

/* The block that an address lies in is no leak, and neither is what it leads to. 0, or ENOENT if no recorded block lies
 * there. */
POOLSCOPE_API int poolscope_heapcheck_ignore(const void *block) POOLSCOPE_NOTHROW;

/* What the calling thread allocates from here on is no leak, and neither is what it leads to. Each call is taken back by
 * one of poolscope_heapcheck_enable. */
POOLSCOPE_API void poolscope_heapcheck_disable(void) POOLSCOPE_NOTHROW;
POOLSCOPE_API void poolscope_heapcheck_enable(void) POOLSCOPE_NOTHROW;

/* Memory that holds pointers and that a check does not look at by itself: a file or a segment that processes share. Memory
 * that the program has mapped for itself and its forked children is looked at. 0, or ENOMEM if there are 256 already;
 * ENOENT if there is none just so. */
POOLSCOPE_API int poolscope_heapcheck_add_root(const void *begin, size_t bytes) POOLSCOPE_NOTHROW;
POOLSCOPE_API int poolscope_heapcheck_remove_root(const void *begin, size_t bytes) POOLSCOPE_NOTHROW;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif
