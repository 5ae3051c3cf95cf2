//! Allocation from a signal handler that interrupted the slow path.
//!
//! POSIX allows no such thing, programs do it all the same, and it must not deadlock: the interrupted thread may
//! hold any lock of the pool. Such a block gets a mapping of its own, noted in a small table without locks. A block
//! that is freed there waits in the mailbox of its owner, or in one of its own here until a thread takes it in.
//!
//! The fast path cannot be protected in this way: a handler that interrupts its three instructions and takes a block
//! of the same class corrupts the list, as with every other allocator.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::arena;
use crate::block::BlockPtr;
use crate::os;
use crate::registry;
use crate::slab::owner;
use crate::transfer_cache::Mailbox;

const SLOTS: usize = 1024;
const PAGE: usize = 4096;

struct Mapping {
    address: AtomicUsize,
    len: AtomicUsize,
}

static MAPPINGS: [Mapping; SLOTS] =
    [const { Mapping { address: AtomicUsize::new(0), len: AtomicUsize::new(0) } }; SLOTS];
static EVER_USED: AtomicUsize = AtomicUsize::new(0);
/// Blocks freed by a handler whose owner is a lock.
static WAITING: Mailbox = Mailbox::new();
const RESERVED: usize = 1;

/// A mapping for `size` bytes at a multiple of `align`; null if there is none to be had.
pub fn alloc(size: usize, align: usize) -> *mut u8 {
    let Some(len) = size.max(1).checked_next_multiple_of(PAGE) else { return core::ptr::null_mut() };
    if align > PAGE || size > isize::MAX as usize {
        return core::ptr::null_mut();
    }
    let free = MAPPINGS
        .iter()
        .find(|mapping| mapping.address.compare_exchange(0, RESERVED, Ordering::AcqRel, Ordering::Relaxed).is_ok());
    let Some(mapping) = free else { return core::ptr::null_mut() };
    let p = os::map(len);
    EVER_USED.store(1, Ordering::Relaxed);
    mapping.len.store(len, Ordering::Relaxed);
    mapping.address.store(p as usize, Ordering::Release);
    p
}

fn find(p: *mut u8) -> Option<&'static Mapping> {
    if EVER_USED.load(Ordering::Relaxed) == 0 {
        return None;
    }
    MAPPINGS.iter().find(|mapping| mapping.address.load(Ordering::Acquire) == p as usize)
}

/// Bytes of the mapping that begins at `p`, if it is one of these.
pub fn usable_size(p: *mut u8) -> Option<usize> {
    find(p).map(|mapping| mapping.len.load(Ordering::Relaxed))
}

/// Unmaps the mapping that begins at `p`, if it is one of these.
pub fn free_mapping(p: *mut u8) -> bool {
    let Some(mapping) = find(p) else { return false };
    let len = mapping.len.load(Ordering::Relaxed);
    // SAFETY: the program frees the block, and `alloc` mapped it.
    unsafe { os::unmap(p, len) };
    mapping.address.store(0, Ordering::Release);
    true
}

/// Frees a block of the pool from a handler: leaves it to its owner.
pub fn free(p: *mut u8) {
    let Some(page) = arena::page_of(p) else {
        if !free_mapping(p) {
            crate::free::invalid(p);
        }
        return;
    };
    let tag = match page.owner.load(Ordering::Acquire) {
        owner::INTERIOR => page.head().owner.load(Ordering::Acquire),
        tag => tag,
    };
    let block = BlockPtr::new(p);
    match tag {
        owner::NONE | owner::INTERIOR => crate::free::invalid(p),
        // SAFETY: the block is free and the caller's, and no constant of `owner` remains but those of locks.
        owner::CENTRAL | owner::SAMPLED | owner::LARGE => unsafe { WAITING.push(block, block) },
        // SAFETY: as above; any other tag is a heap's.
        heap => unsafe { registry::heap_of(heap).mailbox.push(block, block) },
    }
}

/// Takes the blocks that wait for a thread in the slow path.
pub fn take_waiting() -> BlockPtr {
    WAITING.take()
}
