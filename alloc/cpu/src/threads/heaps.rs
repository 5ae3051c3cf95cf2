//! All heaps that there ever were, and which of them wait for a thread.

use core::cell::Cell;
use core::sync::atomic::{AtomicPtr, Ordering};

use poolscope_capture::Trail;

use crate::kernel::os;
use crate::script::Calls;
use crate::segment::counters::{self, TierCounter};
use crate::sync::spin_lock::{SlowPath, SpinLock};
use crate::threads::thread_pointer;
use crate::tiers::thread_cache::Heap;

/// Heaps without a thread.
pub struct Registry {
    /// Linked through [`Registration::next_unused`](crate::tiers::notes::Registration).
    unused: Cell<Option<&'static Heap>>,
    count: Cell<u32>,
}

// SAFETY: only reached under the lock below.
unsafe impl Send for Registry {}

/// Held while a heap is made, taken over or left.
pub static REGISTRY: SpinLock<Registry> = SpinLock::new(Registry { unused: Cell::new(None), count: Cell::new(0) });

/// The newest heap; the others follow through [`Registration::next_heap`](crate::tiers::notes::Registration).
static ALL: AtomicPtr<Heap> = AtomicPtr::new(core::ptr::null_mut());

/// Calls `f` with every heap that there ever was.
pub fn for_each_heap(mut f: impl FnMut(&'static Heap)) {
    // SAFETY: the list only grows, at its start, and heaps are never unmapped.
    let mut next = unsafe { ALL.load(Ordering::Acquire).as_ref() };
    while let Some(heap) = next {
        f(heap);
        next = heap.registration.next_heap.get();
    }
}

/// Calls `f` with the memory of all heaps: the first address and the one behind the last. What is remembered of a thread's
/// stack is among it. Who calls has stopped the other threads.
pub fn own_memory(mut f: impl FnMut(usize, usize)) {
    for_each_heap(|heap| {
        let from = (&raw const *heap).addr();
        f(from, from + size_of::<Heap>());
        // SAFETY: words that its thread writes once, and none is running.
        let [trail, calls] = unsafe {
            let capture = heap.sampling.capture.get();
            let (trail, calls) = (&raw const (*capture).trail, &raw const (*capture).calls);
            [trail.read_volatile().addr(), calls.read_volatile().addr()]
        };
        for (from, size) in [(trail, size_of::<Trail>()), (calls, size_of::<Calls>())] {
            if from != 0 {
                f(from, from + size);
            }
        }
    });
}

/// Whether a heap waits for a thread to take it over.
pub fn has_no_thread(heap: &Heap) -> bool {
    !heap.inbox.is_open()
}

/// Whether a thread of this process has the heap for its own, which the kernel can be asked after. Others wait for one,
/// are the limbo's, or were those of threads that a forked child does not have.
pub fn is_a_threads_own(heap: &Heap) -> bool {
    !has_no_thread(heap)
        && !heap.path.thread_word.load(Ordering::Relaxed).is_null()
        && !heap.registration.began_in_child.get()
}

/// A heap that waited for a thread.
pub fn adopt_heap(slow: SlowPath) -> Option<&'static Heap> {
    let registry = REGISTRY.lock(slow);
    let heap = registry.unused.get()?;
    registry.unused.set(heap.registration.next_unused.take());
    drop(registry);
    heap.begin_rounds();
    Some(heap)
}

/// A new heap. `None` without memory.
pub fn new_heap(slow: SlowPath) -> Option<&'static Heap> {
    let memory = os::map(size_of::<Heap>());
    if memory.is_null() {
        return None;
    }
    // SAFETY: zeroed memory of the right size, aligned to a page, is an empty heap; it is never unmapped.
    let heap = unsafe { &*memory.cast::<Heap>() };
    heap.inbox.open();
    heap.path.belongs_to_a_thread.set(true);
    counters::add(TierCounter::MetadataBytes, size_of::<Heap>() as u64);
    {
        let registry = REGISTRY.lock(slow);
        heap.registration.index.set(registry.count.get());
        registry.count.set(registry.count.get() + 1);
        // SAFETY: as in `for_each_heap`.
        heap.registration.next_heap.set(unsafe { ALL.load(Ordering::Relaxed).as_ref() });
        ALL.store((&raw const *heap).cast_mut(), Ordering::Release);
    }
    heap.seed();
    Some(heap)
}

/// Leaves a heap to the next thread.
pub fn leave_heap(slow: SlowPath, heap: &'static Heap) {
    let registry = REGISTRY.lock(slow);
    heap.registration.next_unused.set(registry.unused.replace(Some(heap)));
}

/// In a forked child: the other threads are not there. Their heaps stay as they were in the middle of whatever they
/// did; they are not used again, and what the child frees of their blocks waits in their mailboxes.
pub fn forget_other_threads() {
    let home = thread_pointer::home().cast_const();
    for_each_heap(|heap| {
        if &raw const *heap == home {
            heap.registration.thread_id.set(os::thread_id());
            // Else all children of a server would sample the same blocks, and the sum over them be off as far as each.
            heap.seed();
            heap.registration.began_in_child.set(false);
        } else if !heap.path.thread_word.swap(core::ptr::null_mut(), Ordering::Relaxed).is_null() {
            counters::sub(TierCounter::ThreadsLive, 1);
        }
        // Who held it is not there any more.
        heap.path.closing.unlock_raw();
    });
}
