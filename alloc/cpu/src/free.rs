//! `free`.
//!
//! Architecture invariant: the fast path, [`free`], looks at the page's descriptor and this thread's heap and at
//! nothing else. One compare, the slab's owner against this thread's heap, sends blocks of other threads, sampled and
//! large blocks, and addresses that are no block's to the slow path.

use core::sync::atomic::Ordering;

use crate::arena;
use crate::block::BlockPtr;
use crate::message::Message;
use crate::registry::{self, Entry};
use crate::slab::{Slab, owner};
use crate::spin_lock::SlowPath;
use crate::thread_cache::Heap;
use crate::{central_cache, large, reentrant, sampler, thread_pointer, transfer_cache};

/// Frees a block. Null is allowed; errno is kept.
///
/// # Safety
/// `p` is null or a block that this pool allocated and that was not freed yet; nobody uses it any more.
#[inline(always)]
pub unsafe fn free(p: *mut u8) {
    if let Some(slab) = arena::fast_page_of(p)
        && slab.owner.load(Ordering::Relaxed) == thread_pointer::get() as usize
    {
        // SAFETY: the slab is this thread's, the block was handed out (the caller's promise).
        if unsafe { slab.push(BlockPtr::new(p)) } {
            free_last(slab);
        }
        return;
    }
    free_slow(p);
}

/// The slab's countdown ran out with this free.
#[cold]
#[inline(never)]
extern "C" fn free_last(slab: &'static Slab) {
    if let Entry::Heap(entered) = registry::enter() {
        entered.heap.on_countdown(entered.slow, slab);
    }
}

#[cold]
#[inline(never)]
extern "C" fn free_slow(p: *mut u8) {
    if p.is_null() {
        return;
    }
    // Blocks of a slab of several pages, not on its first: this thread's own need no more than the fast path.
    if let Some(page) = arena::fast_page_of(p)
        && page.owner.load(Ordering::Relaxed) == owner::INTERIOR
    {
        let slab = page.head();
        if slab.owner.load(Ordering::Relaxed) == thread_pointer::get() as usize {
            // SAFETY: as in `free`.
            if unsafe { slab.push(BlockPtr::new(p)) } {
                free_last(slab);
            }
            return;
        }
    }
    match registry::enter() {
        Entry::Heap(entered) => free_dispatch(entered.slow, Some(entered.heap), BlockPtr::new(p)),
        Entry::Reentrant => reentrant::free(p),
        Entry::NoMemory(entered) => free_dispatch(entered.slow, None, BlockPtr::new(p)),
    }
}

/// Frees a block wherever it belongs, in the slow path of the thread that has `heap`, or of one that has none.
pub fn free_dispatch(slow: SlowPath, heap: Option<&'static Heap>, block: BlockPtr) {
    loop {
        let Some(slab) = slab_of(block) else { return };
        match slab.owner.load(Ordering::Acquire) {
            owner::NONE | owner::INTERIOR => invalid(block.address()),
            // A thread may take the slab over before its lock is had: then it has another owner.
            owner::CENTRAL if central_cache::free(slow, slab, block) => return,
            owner::CENTRAL => {}
            owner::SAMPLED => return sampler::free_block(slow, slab, block),
            owner::LARGE => return large::free(slow, slab),
            tag => {
                // SAFETY: any other tag is a heap's.
                let owner = unsafe { registry::heap_of(tag) };
                return match heap {
                    Some(heap) if core::ptr::eq(heap, owner) => {
                        // SAFETY: the slab is this heap's.
                        if unsafe { slab.push_remote(block) } {
                            heap.on_countdown(slow, slab);
                        }
                    }
                    Some(heap) => heap.free_remote(slow, block, owner, slab.class.get().block()),
                    // SAFETY: the block is free and ours.
                    None => unsafe { transfer_cache::deliver(slow, owner, block, block) },
                };
            }
        }
    }
}

/// The slab of a block; `None` if the block was a mapping of its own, which is gone now.
fn slab_of(block: BlockPtr) -> Option<&'static Slab> {
    let p = block.address();
    let Some(page) = arena::page_of(p) else {
        if !reentrant::free_mapping(p) {
            invalid(p);
        }
        return None;
    };
    Some(if page.owner.load(Ordering::Acquire) == owner::INTERIOR { page.head() } else { page })
}

/// Ends the process: `p` is not a block of the pool, or was freed before.
#[cold]
pub fn invalid(p: *mut u8) -> ! {
    Message::new("free of ").address(p as usize).text(", which is not an allocated block").abort()
}
