//! The end of a thread: what it kept goes on to others.

use core::sync::atomic::Ordering;

use poolscope_wire::thread_state;

use crate::entry::capture;
use crate::kernel::os;
use crate::kernel::raw_thread;
use crate::segment::counters::{self, TierCounter};
use crate::segment::publish;
use crate::sync::spin_lock::SlowPath;
use crate::threads::heaps::leave_heap;
use crate::tiers::publish as heap_publish;
use crate::tiers::static_heaps::BUSY;
use crate::tiers::thread_cache::Heap;
use crate::tiers::transfer_cache;
use crate::tracer;

/// Does what a thread does at its exit, for one that ended without: by the bare system call. False if it is there, or
/// ends by itself. The caller holds [`closing`](crate::tiers::notes::Path::closing).
pub fn end_if_gone(slow: SlowPath, heap: &'static Heap) -> bool {
    if raw_thread::is_of_another_process() || os::thread_exists(os::process_id(), heap.registration.thread_id.get()) {
        return false;
    }
    let word = heap.path.thread_word.swap(core::ptr::null_mut(), Ordering::Relaxed);
    if word.is_null() {
        return false;
    }
    let mut last = [0];
    let was_busy = os::read_own_memory(word.addr(), &mut last) == 1 && last == [(&raw const BUSY).addr()];
    // A handler may have ended it in the middle of the slow path: then nobody knows what its heap is like.
    if !was_busy && !heap.path.held_open.get() {
        end_thread(slow, heap);
    }
    true
}

/// Gives up what a thread had, whose word is nobody's any more.
pub fn end_thread(slow: SlowPath, heap: &'static Heap) {
    heap.calls.in_hook.set(false);
    heap.calls.in_realloc.set(false);
    heap.sampling.scope.set(0);
    heap.retire_all(slow);
    transfer_cache::take_in(slow, Some(heap), heap.inbox.close());
    heap.empty_outbox(slow);
    capture::release(heap);
    counters::sub(TierCounter::ThreadsLive, 1);
    heap_publish::publish_thread(heap, thread_state::EXITED);
    tracer::thread::thread_ends(heap);
    publish::publish_tiers();
    leave_heap(slow, heap);
}
