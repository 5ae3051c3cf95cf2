//! The transfer cache: blocks freed by another thread than their owner travel in batches.
//!
//! A thread gathers remote frees in its [`Outbox`], by owner, and hands each full batch over with one atomic
//! operation on the owner's [`Mailbox`]; the owner takes the whole list with one exchange on its next refill
//! (snmalloc's idea: Liétar et al., "snmalloc: A Message Passing Allocator", ISMM 2019). No lock on either side.

use core::cell::Cell;
use core::sync::atomic::{AtomicPtr, Ordering, fence};

use crate::block::BlockPtr;
use crate::spin_lock::SlowPath;
use crate::stats::{self, TierCounter};
use crate::thread_cache::Heap;

/// Owners that a thread gathers for at a time.
const ROUTES: usize = 16;
/// A batch is sent at this many blocks ...
const BATCH_BLOCKS: u32 = 64;
/// ... or bytes.
const BATCH_BYTES: usize = 16 * 1024;

/// A stack of freed blocks that any thread pushes lists to and one takes as a whole.
#[repr(transparent)]
pub struct Mailbox(AtomicPtr<u8>);

impl Mailbox {
    /// An empty mailbox.
    pub const fn new() -> Self {
        Mailbox(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// Adds a linked list of blocks from `first` to `last`.
    ///
    /// # Safety
    /// The blocks are free and the caller's.
    pub unsafe fn push(&self, first: BlockPtr, last: BlockPtr) {
        let mut head = self.0.load(Ordering::Relaxed);
        loop {
            // SAFETY: the caller owns the list.
            unsafe { last.set_next(BlockPtr::new(head)) };
            match self.0.compare_exchange_weak(head, first.address(), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Takes all blocks. No ABA problem: nothing is ever popped singly.
    pub fn take(&self) -> BlockPtr {
        if self.0.load(Ordering::Relaxed).is_null() {
            return BlockPtr::NULL;
        }
        BlockPtr::new(self.0.swap(core::ptr::null_mut(), Ordering::AcqRel))
    }
}

/// Hands a list of blocks to the heap that owned their slabs when they were freed. If no thread has that heap any
/// more, the blocks are taken back and freed where they belong now.
///
/// # Safety
/// The blocks are free and the caller's.
pub unsafe fn deliver(slow: SlowPath, owner: &'static Heap, first: BlockPtr, last: BlockPtr) {
    // SAFETY: the caller's promise.
    unsafe { owner.mailbox.push(first, last) };
    // Against the exit of the owner's thread, which clears `live` and then takes the mailbox: one of the two sides
    // sees the other.
    fence(Ordering::SeqCst);
    if owner.live.load(Ordering::Relaxed) == 0 {
        let mut block = owner.mailbox.take();
        while !block.is_null() {
            // SAFETY: the list is ours now.
            let next = unsafe { block.next() };
            crate::free::free_dispatch(slow, None, block);
            block = next;
        }
    }
}

struct Route {
    owner: Cell<Option<&'static Heap>>,
    first: Cell<BlockPtr>,
    last: Cell<BlockPtr>,
    blocks: Cell<u32>,
    bytes: Cell<usize>,
}

/// What a thread freed for others and has not sent yet.
pub struct Outbox {
    routes: [Route; ROUTES],
    waiting: Cell<u32>,
}

impl Outbox {
    /// Adds a block of `bytes` bytes for `owner`; sends the batch if it is full.
    pub fn push(&self, slow: SlowPath, block: BlockPtr, owner: &'static Heap, bytes: usize) {
        let route = &self.routes[(owner.tag() >> 12) % ROUTES];
        if route.owner.get().is_none_or(|current| !core::ptr::eq(current, owner)) {
            route.send(slow, self);
            route.owner.set(Some(owner));
        }
        // SAFETY: the block is free and ours.
        unsafe { block.set_next(route.first.get()) };
        if route.first.get().is_null() {
            route.last.set(block);
            self.waiting.set(self.waiting.get() + 1);
        }
        route.first.set(block);
        route.blocks.set(route.blocks.get() + 1);
        route.bytes.set(route.bytes.get() + bytes);
        if route.blocks.get() >= BATCH_BLOCKS || route.bytes.get() >= BATCH_BYTES {
            route.send(slow, self);
        }
    }

    /// Sends everything.
    pub fn flush(&self, slow: SlowPath) {
        if self.waiting.get() > 0 {
            for route in &self.routes {
                route.send(slow, self);
            }
        }
    }
}

impl Route {
    fn send(&self, slow: SlowPath, outbox: &Outbox) {
        let first = self.first.replace(BlockPtr::NULL);
        if first.is_null() {
            return;
        }
        outbox.waiting.set(outbox.waiting.get() - 1);
        stats::add(TierCounter::TransferBatches, 1);
        stats::add(TierCounter::TransferBlocks, u64::from(self.blocks.replace(0)));
        self.bytes.set(0);
        if let Some(owner) = self.owner.get() {
            // SAFETY: the batch's blocks are free and ours.
            unsafe { deliver(slow, owner, first, self.last.get()) };
        }
    }
}
