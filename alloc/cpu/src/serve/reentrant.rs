//! Allocation from a signal handler that interrupted the slow path.
//!
//! POSIX allows no such thing, programs do it all the same, and it must not deadlock: the interrupted thread may
//! hold any lock of the pool. Such a block gets a mapping of its own, noted in a small table without locks. A block
//! that is freed there waits in the mailbox of its owner, or in one of its own here until a thread takes it in.
//!
//! The fast path cannot be protected in this way: a handler that interrupts its three instructions and takes a block
//! of the same class corrupts the list, as with every other allocator.

use core::sync::atomic::Ordering;

use crate::kernel::os;
use crate::layout::arena;
use crate::layout::block::Batch;
use crate::layout::block::BlockPtr;
use crate::layout::mailbox::Mailbox;
use crate::layout::misuse;
use crate::layout::slab::owner;
use crate::serve::mappings::Mappings;
use crate::tiers::thread_cache::heap_of;

const KERNEL_PAGE: usize = 4096;

static MAPPINGS: Mappings<1024> = Mappings::new();
/// Blocks freed by a handler whose owner is a lock or has ended; they wait for a thread in the slow path.
pub static WAITING: Mailbox = Mailbox::new();

/// A mapping for `size` bytes at a multiple of `align`; null if there is none to be had.
pub fn alloc(size: usize, align: usize) -> *mut u8 {
    let Some(len) = size.max(1).checked_next_multiple_of(KERNEL_PAGE) else { return core::ptr::null_mut() };
    if align > KERNEL_PAGE || size > isize::MAX as usize {
        return core::ptr::null_mut();
    }
    MAPPINGS.insert(len, || os::map(len))
}

/// Bytes of the mapping that begins at `p`, if it is one of these.
pub fn usable_size(p: *mut u8) -> Option<usize> {
    MAPPINGS.len(p)
}

/// Unmaps the mapping that begins at `p`, if it is one of these.
pub fn free_mapping(p: *mut u8) -> bool {
    let Some(len) = MAPPINGS.remove(p) else { return false };
    // SAFETY: the program frees the block, and `alloc` mapped it.
    unsafe { os::unmap(p, len) };
    true
}

/// Frees a block of the pool from a handler: leaves it to its owner.
pub fn free(p: *mut u8) {
    let Some(page) = arena::page_of(p) else {
        if !free_mapping(p) {
            misuse::invalid(p);
        }
        return;
    };
    let batch = Batch::of(BlockPtr::new(p));
    match page.head().owner.load(Ordering::Acquire) {
        owner::NONE => misuse::invalid(p),
        // SAFETY: the block is free and the caller's, and no constant of `owner` remains but those of locks.
        owner::CENTRAL | owner::SAMPLED | owner::LARGE => unsafe { WAITING.push(batch) },
        // SAFETY: as above; any other tag is a heap's.
        heap => unsafe {
            heap_of(heap).inbox.deliver(batch).for_each(|batch| WAITING.push(batch));
        },
    }
}
