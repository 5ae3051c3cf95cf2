//! Static probes for tracers outside: `otel_memory:alloc(address, size, weight)` and `otel_memory:free(address)`.
//!
//! They are the contract of OpenTelemetry's eBPF profiler for allocators that sample: `size` is what the program asked
//! for, `weight` the bytes that the sample stands for, so that the weights of all samples add up to an estimate of what
//! was allocated. Both are in bytes. Only sampled blocks have them, and only their frees.
//!
//! Tracers find a probe by a note in the file (`.note.stapsdt`) and raise a counter beside it (`.probes`) while they
//! listen. As long as nobody does, a sample pays for one load and one branch; what is not sampled pays for nothing.

use core::hint::black_box;

/// A block was sampled.
#[inline(never)]
pub fn allocated(address: u64, size: u64, weight: u64) {
    black_box(probe::probe_lazy!(otel_memory, alloc, address, size, weight));
}

/// A sampled block is freed.
#[inline(never)]
pub fn freed(address: u64) {
    black_box(probe::probe_lazy!(otel_memory, free, address));
}
