// What a peer's library offers to the benchmark: one allocator of one device, opened anew for each row. Every function may be
// called from any thread once peer_open has returned 0, except that nothing runs beside peer_open and peer_close.
#ifndef POOLSCOPE_BENCH_PEER_H
#define POOLSCOPE_BENCH_PEER_H

#include <stddef.h>

#define PEER extern "C" __attribute__((visibility("default")))

/// Opens the allocator of that name on a device. 0, or an error that peer_error says.
PEER int peer_open(const char *name, int device);
/// Ends the allocator and gives its memory back.
PEER void peer_close(void);
/// Memory in the order of a stream; null, and an error that peer_error says.
PEER void *peer_allocate(size_t bytes, void *stream);
/// Frees it, in the order of the stream.
PEER void peer_free(void *address, size_t bytes, void *stream);
/// The most bytes of the device that it has held; 0 where it does not say.
PEER size_t peer_peak_reserved(void);
/// What the thread's last error says.
PEER const char *peer_error(void);
/// The version that this library was compiled for.
PEER const char *peer_version(void);

#endif
