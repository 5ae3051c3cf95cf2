//! The full trace: every allocation and every free, told to one recorder in another process.
//!
//! A recorder asks for it by a word in the segment's header. Whoever is in the slow path and sees the word changed
//! ([`poll`]) answers it: it makes the trace's file ([`session`]) and closes the fast path of all threads
//! ([`crate::detour`]). From then on each call comes by [`allocate`], [`free`] or [`realloc`], which serve it from the
//! thread's own lists as the fast path would, and write an event to the thread's ring ([`ring`]). While nobody records, the
//! fast path has no instruction for it.
//!
//! Threads share nothing: a stack is known by a slot of the thread's own table ([`thread`]), and its return addresses
//! are sent through the ring when the slot gets a new one.
//!
//! A free is told before the block is free, an allocation after it was made: what another thread does with the block in
//! between can't come first. A `realloc` is told as the allocation of the new block and the free of the old one, after it
//! happened. Not told is what the pool allocates for its own captures, what a signal handler does that interrupted the
//! pool, and what a forked child does, which is not recorded: it has its own segment, and may be recorded by itself.
//!
//! The program never depends on the recorder: a full ring is counted (or waited for, for a bounded time, if that was asked
//! for), and when the recorder is gone, recording ends by itself.

pub mod ring;
pub mod session;
pub mod thread;

use core::sync::atomic::Ordering;

use crate::block::BlockPtr;
use crate::detour::{self, Reason};
use crate::registry::{self, Entered, Entry};
use crate::size_class::{MEDIUM_MAX, SMALL_MAX, SizeClass};
use crate::slab::owner;
use crate::{arena, free as tiers_free, hardened, malloc, reentrant, transfer_cache};

pub use session::{forget, lock_for_fork, poll, unlock_after_fork, wait_for_recorder};

/// Whether calls are to be told.
#[inline(always)]
pub fn is_on() -> bool {
    detour::is_on_for(Reason::Trace)
}

/// Whether a call of the thread that has `heap` is told: not what capture allocates, nor the parts of a `realloc`.
#[inline(always)]
fn tells(entered: &Entered) -> bool {
    !entered.heap.in_sampler.get() && !entered.heap.in_realloc.get()
}

/// An allocation of the slow path, which is told. The block, and whether it is known to read as zero.
#[inline(never)]
pub fn allocate(size: usize, align: usize) -> (*mut u8, bool) {
    let Entry::Heap(entered) = registry::enter_quickly() else { return malloc::allocate_unseen(size, align) };
    if hardened::is_on() || !tells(&entered) {
        return allocate_by_tiers(entered, size, align);
    }
    let heap = entered.heap;
    if align <= 16 {
        let block = if size <= SMALL_MAX {
            heap.pop(SizeClass::of_small(size))
        } else if size <= MEDIUM_MAX {
            heap.pop_medium(SizeClass::of_medium(size))
        } else {
            None
        };
        if let Some(p) = block {
            thread::note_alloc(&entered, p, size);
            return (p, false);
        }
    }
    allocate_by_tiers(entered, size, align)
}

#[inline(never)]
fn allocate_by_tiers(entered: Entered, size: usize, align: usize) -> (*mut u8, bool) {
    let got = if hardened::is_on() {
        hardened::allocate(&entered, size, align)
    } else {
        transfer_cache::take_in(entered.slow, Some(entered.heap), reentrant::WAITING.take());
        malloc::allocate_from_tiers(entered.slow, entered.heap, size, align)
    };
    if let Some((p, _)) = got
        && tells(&entered)
    {
        thread::note_alloc(&entered, p, size);
    }
    drop(entered);
    malloc::or_no_memory(got)
}

/// A free of the slow path, which is told. `p` is not null.
#[inline(never)]
pub fn free(p: *mut u8) {
    let Entry::Heap(entered) = registry::enter_quickly() else { return tiers_free::free_unseen(p) };
    let heap = entered.heap;
    let page = arena::fast_page_of(p);
    let tag = page.map_or(owner::NONE, |page| page.owner.load(Ordering::Relaxed));
    if tells(&entered) {
        thread::note_free(&entered, p, tag & !owner::MEDIUM != heap.tag());
    }
    if hardened::is_on() {
        return hardened::free(entered.slow, Some(entered.heap), p);
    }
    if let Some(page) = page
        && tag == heap.tag()
    {
        // SAFETY: as in `free::free_fast`: the slab is this thread's, the block was handed out.
        if unsafe { page.push(BlockPtr::new(p)) } {
            heap.on_countdown(entered.slow, page);
        }
        return;
    }
    if let Some(page) = page
        && tag == heap.tag() + owner::MEDIUM
    {
        // SAFETY: as above; a medium block.
        if unsafe { heap.push_medium(page.class.get(), BlockPtr::new(p)) } {
            heap.flush_medium(entered.slow, page.class.get());
        }
        return;
    }
    tiers_free::free_dispatch(entered.slow, Some(heap), BlockPtr::new(p));
}

/// A `realloc` of a block that holds `held` bytes, which is told.
#[inline(never)]
pub fn realloc(p: *mut u8, size: usize, resize: impl FnOnce() -> *mut u8) -> *mut u8 {
    let quiet = match registry::enter() {
        Entry::Heap(entered) if tells(&entered) => {
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
        thread::note_free(&entered, p, new != p);
        thread::note_alloc(&entered, new, size);
    }
    new
}
