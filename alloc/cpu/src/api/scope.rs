//! Scopes of the leak checker: a thread records every allocation while it is in one.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::api::device;
use crate::entry::{self, Entry};
use crate::sampler;
use crate::segment::counters::{self, TierCounter};

/// Numbers of scopes; 0 stands for none.
static NEXT: AtomicU32 = AtomicU32::new(1);

/// A block that is allocated now and was allocated in a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// Where it lies.
    pub address: usize,
    /// Bytes asked for.
    pub size: u64,
    /// Kernel id of the thread that allocated it.
    pub thread_id: u32,
    /// Which memory: one of [`device::kind`].
    pub kind: u16,
    /// Number of the device; 0 for host memory.
    pub device: u32,
}

/// Whether anything was ever allocated from the pool in this process.
pub fn pool_is_in_use() -> bool {
    counters::get(TierCounter::ThreadsStarted) > 0
}

/// Begins a scope of this thread: its number, and that of the scope it was in.
pub fn begin() -> Option<(u32, u32)> {
    if !pool_is_in_use() {
        return None;
    }
    let Entry::Heap(entered) = entry::enter() else { return None };
    let mut id = NEXT.fetch_add(1, Ordering::Relaxed);
    if id == 0 {
        id = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    let outer = entered.heap.scope.replace(id);
    entered.heap.begin_recording(entered.slow);
    drop(entered);
    device::scope_changed();
    Some((id, outer))
}

/// Puts this thread into a scope that it began before, or into none (0).
pub fn set(scope: u32) {
    if let Entry::Heap(entered) = entry::enter() {
        entered.heap.scope.set(scope);
        if entered.heap.records_all() {
            entered.heap.begin_recording(entered.slow);
        } else {
            entered.heap.end_recording();
        }
    }
    device::scope_changed();
}

/// Calls `f` with each block of a scope that is not freed, and with the return addresses of its stack. `f` runs under
/// the sampler's lock: it must not allocate or free.
pub fn visit_live(scope: u32, mut f: impl FnMut(LiveBlock, &[u64])) {
    let Entry::Heap(entered) = entry::enter() else { return };
    sampler::visit_scope(entered.slow, scope, |record, frames| {
        let block = LiveBlock {
            address: record.address as usize,
            size: record.size,
            thread_id: record.tid,
            kind: record.kind,
            device: record.device,
        };
        f(block, frames);
    });
}

/// Samples of this process that found no room in the live table.
pub fn dropped() -> u64 {
    let Entry::Heap(entered) = entry::enter() else { return 0 };
    sampler::dropped(entered.slow)
}
