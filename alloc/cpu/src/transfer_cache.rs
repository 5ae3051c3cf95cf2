//! The transfer cache: blocks freed by another thread than their owner travel in batches.
//!
//! A thread gathers remote frees in its [`Outbox`], by slab, and hands each batch over with one atomic operation on
//! the owner's [inbox](crate::inbox); the owner takes all batches with one exchange on its next refill, and each batch
//! into its slab as a whole, without looking at the single blocks (snmalloc's idea: Liétar et al., "snmalloc: A Message
//! Passing Allocator", ISMM 2019, and its later batches by slab). No lock on either side.

use core::cell::Cell;

use crate::block::BlockPtr;
use crate::free;
use crate::mailbox::Batches;
use crate::slab::Slab;
use crate::spin_lock::SlowPath;
use crate::stats::{self, TierCounter};
use crate::thread_cache::Heap;

/// Slabs that a thread gathers for at a time.
const ROUTES: usize = 64;
/// A batch is sent at this many blocks ...
const BATCH_BLOCKS: u32 = 64;
/// ... and all batches when they hold this many bytes: what a thread that only frees can keep from the others.
const OUTBOX_BYTES: usize = 256 * 1024;

/// Freed blocks of one slab, a linked list.
#[derive(Clone, Copy)]
pub struct Batch {
    /// The first block.
    pub first: BlockPtr,
    /// The last one.
    pub last: BlockPtr,
    /// How many there are.
    pub count: u32,
}

impl Batch {
    /// A batch of one block.
    pub fn of(block: BlockPtr) -> Batch {
        Batch { first: block, last: block, count: 1 }
    }
}

/// Hands a batch to the heap that owned its slab when this was called. If no thread has that heap any more, all that
/// waits in its mailbox is taken back and freed where it belongs now.
pub fn deliver(slow: SlowPath, owner: &'static Heap, batch: Batch) {
    // SAFETY: whoever makes a batch owns its blocks, and it ends here.
    take_in(slow, None, unsafe { owner.inbox.deliver(batch) });
}

/// Frees batches that were taken out of a mailbox, for the heap that the calling thread has, if any.
pub fn take_in(slow: SlowPath, heap: Option<&'static Heap>, batches: Batches) {
    for batch in batches {
        free::free_batch(slow, heap, batch);
    }
}

struct Route {
    slab: Cell<Option<&'static Slab>>,
    batch: Cell<Batch>,
}

/// What a thread freed for others and has not sent yet. Zeroed memory is an empty one.
pub struct Outbox {
    routes: [Route; ROUTES],
    /// Bytes of all batches.
    bytes: Cell<usize>,
    /// Batches sent and blocks in them, not yet in the process's counters.
    sent: Cell<(u64, u64)>,
}

impl Outbox {
    /// Adds a block of another heap's `slab`.
    #[inline]
    pub fn push(&self, slow: SlowPath, slab: &'static Slab, block: BlockPtr) {
        let route = &self.routes[(&raw const *slab as usize >> 6) % ROUTES];
        if !route.slab.get().is_some_and(|gathered| core::ptr::eq(gathered, slab)) {
            self.send(slow, route);
            route.slab.set(Some(slab));
        }
        let mut batch = route.batch.get();
        // SAFETY: the block is free and the caller's.
        unsafe { block.set_next(batch.first) };
        if batch.count == 0 {
            batch.last = block;
        }
        batch.first = block;
        batch.count += 1;
        route.batch.set(batch);
        self.bytes.set(self.bytes.get() + slab.class.get().block());
        if batch.count >= BATCH_BLOCKS {
            self.send(slow, route);
        } else if self.bytes.get() >= OUTBOX_BYTES {
            self.flush(slow);
        }
    }

    /// Sends everything.
    pub fn flush(&self, slow: SlowPath) {
        if self.bytes.get() > 0 {
            for route in &self.routes {
                self.send(slow, route);
            }
        }
        let (batches, blocks) = self.sent.replace((0, 0));
        if batches > 0 {
            stats::add(TierCounter::TransferBatches, batches);
            stats::add(TierCounter::TransferBlocks, blocks);
        }
    }

    fn send(&self, slow: SlowPath, route: &Route) {
        let empty = Batch { first: BlockPtr::NULL, last: BlockPtr::NULL, count: 0 };
        let batch = route.batch.replace(empty);
        let Some(slab) = route.slab.get().filter(|_| batch.count > 0) else { return };
        self.bytes.set(self.bytes.get() - batch.count as usize * slab.class.get().block());
        let (batches, blocks) = self.sent.get();
        self.sent.set((batches + 1, blocks + u64::from(batch.count)));
        free::free_batch(slow, None, batch);
    }
}
