//! The full trace: every allocation and every free, told to one recorder in another process.
//!
//! A recorder asks for it by a word in the segment's header. Whoever is in the slow path and sees the word changed
//! ([`poll`]) answers it: it makes the trace's file ([`session`]) and closes the fast path of all threads
//! ([`crate::threads::detour`]). From then on each call comes by [`allocate`], [`free`] or [`realloc`], which serve it from the
//! thread's own lists as the fast path would, and write an event to the thread's ring ([`ring`]). While nobody records,
//! the fast path has no instruction for it.
//!
//! Threads share nothing: a stack is known by a slot of the thread's own table ([`thread`]), and its return addresses
//! are sent through the ring when the slot gets a new one.
//!
//! A free is told before the block is free, an allocation after it was made: what another thread does with the block in
//! between can't come first. A `realloc` is told as the allocation of the new block and the free of the old one, after
//! it happened. Blocks of a device's memory come from pools of their own, which hear of a trace by [`add_pool`] and
//! tell of their blocks by [`device`]. Not told is what the pool allocates for its own captures, what a signal handler
//! does that interrupted the pool, and what a forked child does, which is not recorded: it has its own segment,
//! and may be recorded by itself.
//!
//! The program never depends on the recorder: a full ring is counted (or waited for, for a bounded time, if that was
//! asked for), and when the recorder is gone, recording ends by itself.

pub mod device_pools;
pub mod handshake;
pub mod ring;
pub mod session;
pub mod thread;

use core::sync::atomic::Ordering;

use poolscope_capture::Caller;
use poolscope_wire::trace::DeviceEvent;

use crate::calls::free as tiers_free;
use crate::calls::malloc;
use crate::entry::registry::{self, Entry};
use crate::hardened;
use crate::layout::arena;
use crate::layout::block::BlockPtr;
use crate::layout::size_class::{MEDIUM_MAX, SMALL_MAX, SizeClass};
use crate::layout::slab::owner;
use crate::serve::reentrant;
use crate::sync::spin_lock::SlowPath;
use crate::threads::detour::{self, Reason};
use crate::tiers::thread_cache::Heap;
use crate::tiers::transfer_cache;

pub use session::{add_pool, forget, is_asked, lock_for_fork, poll, remove_pool, unlock_after_fork, wait_for_recorder};

/// Whether calls are to be told.
#[inline(always)]
pub fn is_on() -> bool {
    detour::is_on_for(Reason::Trace)
}

/// Whether a call of the thread that has `heap` is told: not what capture allocates, nor the parts of a `realloc`.
#[inline(always)]
fn tells(heap: &Heap) -> bool {
    !heap.in_sampler.get() && !heap.in_realloc.get()
}

/// An allocation of the slow path, which is told, for the program's call with these registers ([`Caller`]; word by
/// word, since a structure would go through memory, and its words be waited for). The block, and whether it is known to
/// read as zero.
#[inline(never)]
pub fn allocate(size: usize, align: usize, pc: usize, sp: usize, fp: usize) -> (*mut u8, bool) {
    let caller = Caller { pc, sp, fp };
    let got = if let Some(own) = registry::enter_detoured() {
        match pop(own.heap, own.slow, size, align, caller) {
            Some(p) => Some((p, false)),
            None => allocate_by_tiers(own.heap, own.slow, size, align, caller),
        }
    } else {
        let Entry::Heap(entered) = registry::enter() else { return malloc::allocate_unseen(size, align, &caller) };
        allocate_by_tiers(entered.heap, entered.slow, size, align, caller)
    };
    malloc::or_no_memory(got)
}

/// A block from the thread's own lists, if they have one, which is told.
#[inline(always)]
fn pop(heap: &'static Heap, slow: SlowPath, size: usize, align: usize, caller: Caller) -> Option<*mut u8> {
    if align > 16 || hardened::is_on() || !tells(heap) {
        return None;
    }
    if size <= SMALL_MAX {
        let class = SizeClass::of_small(size);
        // Where the list goes on stands in the block, which has gone cold: it comes while the stack is looked at.
        heap.prefetch(class);
        let event = thread::begin_alloc(heap, slow, caller);
        let p = heap.pop(class)?;
        // And of the next one, which has more time to come where classes alternate.
        heap.prefetch(class);
        thread::note_alloc(event, slow, p, size);
        Some(p)
    } else if size <= MEDIUM_MAX {
        let p = heap.pop_medium(SizeClass::of_medium(size))?;
        thread::note_alloc(thread::begin_alloc(heap, slow, caller), slow, p, size);
        Some(p)
    } else {
        None
    }
}

#[inline(never)]
fn allocate_by_tiers(
    heap: &'static Heap,
    slow: SlowPath,
    size: usize,
    align: usize,
    caller: Caller,
) -> Option<(*mut u8, bool)> {
    let got = if hardened::is_on() {
        hardened::allocate(heap, slow, size, align, &caller)
    } else {
        transfer_cache::take_in(slow, Some(heap), reentrant::WAITING.take());
        malloc::allocate_from_tiers(slow, heap, size, align, &caller)
    };
    if let Some((p, _)) = got
        && tells(heap)
    {
        // A block that is not of the thread's own slabs may just have been freed by another thread.
        if !is_own(heap, p) {
            thread::note_time(heap);
        }
        thread::note_alloc(thread::begin_alloc(heap, slow, caller), slow, p, size);
    }
    got
}

/// Whether a block is of a slab of this heap's.
fn is_own(heap: &Heap, p: *mut u8) -> bool {
    let tag = arena::fast_page_of(p).map(|page| page.owner.load(Ordering::Relaxed));
    tag.is_some_and(|tag| tag & !owner::MEDIUM == heap.tag())
}

/// A block of a device's memory is allocated or freed by another pool of the process.
pub fn device(heap: &'static Heap, slow: SlowPath, event: DeviceEvent) {
    if is_on() && tells(heap) {
        thread::note_device(heap, slow, event, Caller::here());
    }
}

/// A free of the slow path, which is told. `p` is not null.
#[inline(never)]
pub fn free(p: *mut u8) {
    if let Some(own) = registry::enter_detoured() {
        free_from(own.heap, own.slow, p);
    } else if let Entry::Heap(entered) = registry::enter() {
        free_from(entered.heap, entered.slow, p);
    } else {
        tiers_free::free_unseen(p);
    }
}

#[inline(always)]
fn free_from(heap: &'static Heap, slow: SlowPath, p: *mut u8) {
    let page = arena::fast_page_of(p);
    let tag = page.map_or(owner::NONE, |page| page.owner.load(Ordering::Relaxed));
    if tells(heap) {
        thread::note_free(heap, slow, p, tag & !owner::MEDIUM != heap.tag());
    }
    if hardened::is_on() {
        return hardened::free(slow, Some(heap), p);
    }
    if let Some(page) = page
        && tag == heap.tag()
    {
        // SAFETY: as in `free::free_fast`: the slab is this thread's, the block was handed out.
        if unsafe { page.push(BlockPtr::new(p)) } {
            heap.on_countdown(slow, page);
        }
        return;
    }
    if let Some(page) = page
        && tag == heap.tag() + owner::MEDIUM
    {
        // SAFETY: as above; a medium block.
        if unsafe { heap.push_medium(page.class.get(), BlockPtr::new(p)) } {
            heap.flush_medium(slow, page.class.get());
        }
        return;
    }
    tiers_free::free_dispatch(slow, Some(heap), BlockPtr::new(p));
}

/// A `realloc` of a block that holds `held` bytes, which is told.
#[inline(never)]
pub fn realloc(p: *mut u8, size: usize, resize: impl FnOnce() -> *mut u8) -> *mut u8 {
    let quiet = match registry::enter() {
        Entry::Heap(entered) if tells(entered.heap) => {
            entered.heap.in_realloc.set(true);
            Some(entered.heap)
        }
        _ => None,
    };
    let new = resize();
    let Some(heap) = quiet else { return new };
    heap.in_realloc.set(false);
    if !new.is_null()
        && let Entry::Heap(entered) = registry::enter()
        && is_on()
    {
        let (heap, slow) = (entered.heap, entered.slow);
        thread::note_free(heap, slow, p, new != p);
        thread::note_alloc(thread::begin_alloc(heap, slow, Caller::here()), slow, new, size);
    }
    new
}
