//! The transfer cache: blocks freed by another thread than their owner travel in batches.
//!
//! A thread gathers remote frees in its [`Outbox`], by slab, and hands each batch over with one atomic operation on the
//! owner's [inbox](crate::layout::inbox); the owner takes all batches with one exchange on its next refill, and each
//! batch into its slab as a whole, without looking at the single blocks (snmalloc's idea: Liétar et al., "snmalloc: A
//! Message Passing Allocator", ISMM 2019, and its later batches by slab). No lock on either side.

use core::cell::Cell;

use crate::layout::arena;
use crate::layout::block::Batch;
use crate::layout::block::BlockPtr;
use crate::layout::mailbox::Batches;
use crate::layout::misuse;
use crate::layout::size_class::SizeClass;
use crate::layout::slab::Slab;
use crate::segment::counters::{self, TierCounter};
use crate::segment::publish;
use crate::sync::reasons;
use crate::sync::spin_lock::SlowPath;
use crate::tiers::give_back;
use crate::tiers::publish as heap_publish;
use crate::tiers::thread_cache::Heap;

/// Slabs that a thread gathers for at a time.
const ROUTES: usize = 256;
/// Batches that may be open; one more sends them all.
const OPEN_MAX: u32 = 128;
/// A batch is sent at this many blocks ...
const BATCH_BLOCKS: usize = 128;
/// ... or bytes. With [`OPEN_MAX`], it bounds what a thread that only frees keeps from the others.
const BATCH_BYTES: usize = 16 * 1024;

/// Batches after which the process's counters are brought up to date.
const PUBLISHED_EVERY: u64 = 64;

/// Blocks in a whole batch of such ones.
fn batch_of(block: usize) -> u32 {
    (BATCH_BYTES / block).clamp(1, BATCH_BLOCKS) as u32
}

/// Hands a batch to the heap that owned its slab when this was called. If no thread has that heap any more, all that
/// waits in its mailbox is taken back and freed where it belongs now.
pub fn deliver(slow: SlowPath, heap: Option<&'static Heap>, owner: &'static Heap, batch: Batch) {
    if let Some((heap, class)) = heap.zip(class_of(batch)) {
        let count = &heap.counts[class.index()];
        count.sent.set(count.sent.get() + u64::from(batch.count));
        heap_publish::publish_class(heap, class);
    }
    // SAFETY: whoever makes a batch owns its blocks, and it ends here.
    take_in(slow, heap, unsafe { owner.inbox.deliver(batch) });
}

fn class_of(batch: Batch) -> Option<SizeClass> {
    arena::page_of(batch.first.address()).map(|page| page.class.get())
}

/// Frees batches that were taken out of a mailbox, for the heap that the calling thread has, if any.
pub fn take_in(slow: SlowPath, heap: Option<&'static Heap>, batches: Batches) {
    for batch in batches {
        if let Some(heap) = heap {
            heap.calls.took_in.set(true);
        }
        count_returned(heap, batch);
        free(slow, heap, batch);
    }
}

/// Counts a batch that came back.
pub fn count_returned(heap: Option<&'static Heap>, batch: Batch) {
    if let Some((heap, class)) = heap.zip(class_of(batch)) {
        let (blocks, count) = (u64::from(batch.count), &heap.counts[class.index()]);
        count.returned.set(count.returned.get() + blocks);
        heap.outbox.returned.set(heap.outbox.returned.get() + blocks);
    }
}

/// Frees a batch that a thread gathered, or that came back: of a slab that was a heap's when a block of it was freed.
fn free(slow: SlowPath, heap: Option<&'static Heap>, batch: Batch) {
    if !give_back::batch(slow, heap, batch) {
        misuse::invalid(batch.first.address());
    }
}

/// A batch that is being gathered.
struct Route {
    /// Whose blocks; `None` if there are none.
    slab: Cell<Option<&'static Slab>>,
    first: Cell<BlockPtr>,
    last: Cell<BlockPtr>,
    /// Blocks that it lacks.
    room: Cell<u32>,
}

impl Route {
    /// Adds a block at the end: a batch is in the order in which its blocks were freed.
    ///
    /// Threads that pass blocks on mostly free them in the order in which they got them. A list of its owner's is then a
    /// sequence of neighbours, which the processor foresees, and stays one where a slab's blocks come back in several
    /// batches. With the last block in front, each batch was the other way round.
    #[inline(always)]
    fn append(&self, block: BlockPtr) {
        // SAFETY: the block is free and the caller's.
        unsafe { self.last.get().set_next(block) };
        self.last.set(block);
    }
}

/// What a thread freed for others and has not sent yet. Zeroed memory is an empty one.
pub struct Outbox {
    routes: [Route; ROUTES],
    /// Batches that wait.
    open: Cell<u32>,
    /// Batches sent, and blocks in them.
    pub batches: Cell<u64>,
    pub blocks: Cell<u64>,
    /// Both, as far as they are in the process's counters.
    published: Cell<(u64, u64)>,
    /// Blocks that came the other way: freed by other threads, and back.
    pub returned: Cell<u64>,
}

impl Outbox {
    /// Adds a block of another heap's `slab` to a batch that was begun and does not become whole by it: a few
    /// instructions without a call. False if there is none such.
    #[inline(always)]
    pub fn push_quickly(&self, _: SlowPath, slab: &'static Slab, block: BlockPtr) -> bool {
        let route = self.route(slab);
        let room = route.room.get();
        let gathers = route.slab.get().is_some_and(|gathered| core::ptr::eq(gathered, slab)) && room > 1;
        if gathers {
            route.append(block);
            route.room.set(room - 1);
        }
        gathers
    }

    #[inline(always)]
    fn route(&self, slab: &'static Slab) -> &Route {
        &self.routes[(&raw const *slab as usize >> 6) % ROUTES]
    }

    /// Adds a block of another heap's `slab`.
    pub fn push(&self, slow: SlowPath, heap: &'static Heap, slab: &'static Slab, block: BlockPtr) {
        let route = self.route(slab);
        if route.slab.get().is_some_and(|gathered| core::ptr::eq(gathered, slab)) {
            route.append(block);
        } else {
            self.begin(slow, heap, route, slab, block);
        }
        let room = route.room.get() - 1;
        route.room.set(room);
        if room == 0 {
            self.send(slow, heap, route);
        } else if reasons::is_counting() {
            // Who owns it is to know.
            self.flush(slow, heap);
        }
    }

    /// Begins a batch of one block. The one before is sent.
    fn begin(&self, slow: SlowPath, heap: &'static Heap, route: &Route, slab: &'static Slab, block: BlockPtr) {
        self.send(slow, heap, route);
        if self.open.get() >= OPEN_MAX {
            self.flush(slow, heap);
        }
        self.open.set(self.open.get() + 1);
        route.slab.set(Some(slab));
        route.first.set(block);
        route.last.set(block);
        route.room.set(batch_of(slab.class.get().block()));
    }

    /// Calls `f` with the class and the number of blocks of each batch that waits. The thread may be changing them.
    pub fn for_each_open(&self, mut f: impl FnMut(SizeClass, u32)) {
        // SAFETY: words of a heap, which is never unmapped; slabs' descriptors neither.
        unsafe {
            if self.open.as_ptr().read_volatile() == 0 {
                return;
            }
            for route in &self.routes {
                let (slab, room) = (route.slab.as_ptr().read_volatile(), route.room.as_ptr().read_volatile());
                if let Some(seen) = slab.and_then(|slab| slab.look()) {
                    f(seen.class, batch_of(seen.class.block()).saturating_sub(room));
                }
            }
        }
    }

    /// Sends everything.
    pub fn flush(&self, slow: SlowPath, heap: &'static Heap) {
        if self.open.replace(0) > 0 {
            for route in &self.routes {
                self.send(slow, heap, route);
            }
        }
        self.publish();
    }

    fn send(&self, slow: SlowPath, heap: &'static Heap, route: &Route) {
        let Some(slab) = route.slab.take() else { return };
        let count = batch_of(slab.class.get().block()) - route.room.get();
        self.open.set(self.open.get().saturating_sub(1));
        self.batches.set(self.batches.get() + 1);
        self.blocks.set(self.blocks.get() + u64::from(count));
        if self.batches.get().is_multiple_of(PUBLISHED_EVERY) {
            self.publish();
            publish::publish_tiers();
        }
        free(slow, Some(heap), Batch { first: route.first.get(), last: route.last.get(), count });
    }

    /// Brings the process's counters up to date.
    fn publish(&self) {
        let now = (self.batches.get(), self.blocks.get());
        let before = self.published.replace(now);
        if now != before {
            counters::add(TierCounter::TransferBatches, now.0 - before.0);
            counters::add(TierCounter::TransferBlocks, now.1 - before.1);
        }
    }
}
