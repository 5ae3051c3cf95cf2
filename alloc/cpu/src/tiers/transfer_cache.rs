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
use crate::tiers::notes::update;
use crate::tiers::publish as heap_publish;
use crate::tiers::thread_cache::Heap;

/// Slabs that a thread gathers for at a time.
const ROUTES: usize = 512;
/// A batch is sent at this many blocks ...
const BATCH_BLOCKS: usize = 128;
/// ... or bytes.
const BATCH_BYTES: usize = 16 * 1024;
/// Bytes that a thread keeps from the others, a part of what is in slabs: with as many, all batches are sent. A program
/// whose threads free each other's blocks at random has few of each slab at a time, and what a batch costs is shared
/// by as many as it has.
const WAITING_MIN: usize = 64 * 1024;
const WAITING_MAX: usize = 256 * 1024;
const WAITING_SHARE: usize = 64;

/// Batches after which the process's counters are brought up to date.
const PUBLISHED_EVERY: u64 = 64;

/// Blocks in a whole batch of such ones.
fn batch_of(block: usize) -> u32 {
    (BATCH_BYTES / block).clamp(1, BATCH_BLOCKS) as u32
}

/// Hands a batch to the heap that owned its slab when this was called. If no thread has that heap any more, all that
/// waits in its mailbox is taken back and freed where it belongs now.
pub fn deliver(slow: SlowPath, heap: Option<&'static Heap>, owner: &'static Heap, batch: Batch) {
    if let Some((heap, class)) = heap.zip(class_of(batch)).filter(|_| !batch.counted) {
        let count = &heap.of(class).count;
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
        let (blocks, count) = (u64::from(batch.count), &heap.of(class).count);
        if !batch.counted {
            count.returned.set(count.returned.get() + blocks);
        }
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
    /// Bytes of a block.
    size: Cell<u32>,
    /// Blocks that it lacks.
    room: Cell<u16>,
    /// See [`Batch::counted`].
    counted: Cell<bool>,
}

impl Route {
    /// Adds a block at the end: a batch is in the order in which its blocks were freed.
    ///
    /// Threads that pass blocks on mostly free them in the order in which they got them. A list of its owner's is then
    /// a sequence of neighbours, which the processor foresees, and stays one where a slab's blocks come back in several
    /// batches. With the last block in front, each batch was the other way round.
    #[inline(always)]
    fn append(&self, block: BlockPtr) {
        // SAFETY: the block is free and the caller's.
        unsafe { self.last.get().set_next(block) };
        self.last.set(block);
    }
}

/// What a thread freed for others and has not sent yet. Zeroed memory is an empty one.
#[repr(C)]
pub struct Outbox {
    /// A bit for each route that may have a batch.
    open: [Cell<u64>; ROUTES / 64],
    /// Bytes of the blocks that wait, and that may beyond [`WAITING_MIN`].
    waiting: Cell<usize>,
    more: Cell<usize>,
    /// Batches sent, and blocks in them.
    pub batches: Cell<u64>,
    pub blocks: Cell<u64>,
    /// Both, as far as they are in the process's counters.
    published: Cell<(u64, u64)>,
    /// Blocks that came the other way: freed by other threads, and back.
    pub returned: Cell<u64>,
    routes: [Route; ROUTES],
}

impl Outbox {
    /// Adds a block of another heap's `slab` to a batch that was begun and does not become whole by it: a few
    /// instructions without a call. False if there is none such.
    #[inline(always)]
    pub fn push_quickly(&self, _: SlowPath, slab: &'static Slab, block: BlockPtr) -> bool {
        let route = self.route(slab);
        let room = route.room.get();
        let waiting = self.waiting.get() + route.size.get() as usize;
        let gathers = route.slab.get().is_some_and(|gathered| core::ptr::eq(gathered, slab));
        let gathers = gathers && room > 1 && waiting < WAITING_MIN + self.more.get() && !route.counted.get();
        if gathers {
            route.append(block);
            route.room.set(room - 1);
            self.waiting.set(waiting);
        }
        gathers
    }

    #[inline(always)]
    fn route(&self, slab: &'static Slab) -> &Route {
        &self.routes[Self::number_of(slab)]
    }

    #[inline(always)]
    fn number_of(slab: &'static Slab) -> usize {
        (&raw const *slab as usize / size_of::<Slab>()) % ROUTES
    }

    /// Adds a block of another heap's `slab`, which is in the counters as freed already or is not.
    pub fn push(&self, slow: SlowPath, heap: &'static Heap, slab: &'static Slab, block: BlockPtr, counted: bool) {
        let route = self.route(slab);
        let gathers = route.slab.get().is_some_and(|gathered| core::ptr::eq(gathered, slab));
        if gathers && route.counted.get() == counted {
            route.append(block);
        } else {
            self.begin(slow, heap, route, slab, block);
            route.counted.set(counted);
        }
        let room = route.room.get() - 1;
        route.room.set(room);
        self.waiting.set(self.waiting.get() + route.size.get() as usize);
        if room == 0 {
            self.send(slow, heap, route);
        }
        // Who owns them is to know, or has waited long enough.
        if self.waiting.get() >= WAITING_MIN + self.more.get() || reasons::is_counting() {
            heap.send_waiting(slow);
        }
    }

    /// Begins a batch of one block. The one before is sent.
    fn begin(&self, slow: SlowPath, heap: &'static Heap, route: &Route, slab: &'static Slab, block: BlockPtr) {
        self.send(slow, heap, route);
        let (number, size) = (Self::number_of(slab), slab.class.get().block());
        let open = &self.open[number / 64];
        open.set(open.get() | 1 << (number % 64));
        route.slab.set(Some(slab));
        route.first.set(block);
        route.last.set(block);
        route.room.set(batch_of(size) as u16);
        route.size.set(size as u32);
    }

    /// Calls `f` with the class and the number of blocks of each batch that waits and is not counted yet. The thread
    /// may be changing them.
    pub fn for_each_open(&self, mut f: impl FnMut(SizeClass, u32)) {
        // SAFETY: words of a heap, which is never unmapped; slabs' descriptors neither.
        unsafe {
            for route in self.numbers().filter_map(|number| self.routes.get(number)) {
                let (slab, room) = (route.slab.as_ptr().read_volatile(), route.room.as_ptr().read_volatile());
                let is_counted = route.counted.as_ptr().read_volatile();
                if let Some(seen) = slab.filter(|_| !is_counted).and_then(|slab| slab.look()) {
                    f(seen.class, batch_of(seen.class.block()).saturating_sub(room.into()));
                }
            }
        }
    }

    /// The routes that may have a batch. The thread may be changing them.
    fn numbers(&self) -> impl Iterator<Item = usize> {
        // SAFETY: words of a heap, which is never unmapped.
        let words = self.open.iter().map(|word| unsafe { word.as_ptr().read_volatile() });
        words
            .enumerate()
            .flat_map(|(at, word)| (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| at * 64 + bit))
    }

    /// Sends everything.
    pub fn flush(&self, slow: SlowPath, heap: &'static Heap) {
        let mut sent = false;
        for (at, word) in self.open.iter().enumerate() {
            let mut open = word.get();
            sent |= open != 0;
            update(word, 0);
            while open != 0 {
                self.send(slow, heap, &self.routes[at * 64 + open.trailing_zeros() as usize]);
                open &= open - 1;
            }
        }
        if sent {
            let share = counters::get(TierCounter::SlabBytes) as usize / WAITING_SHARE;
            self.more.set(share.clamp(WAITING_MIN, WAITING_MAX) - WAITING_MIN);
        }
        self.publish();
    }

    fn send(&self, slow: SlowPath, heap: &'static Heap, route: &Route) {
        if route.slab.take().is_none() {
            return;
        }
        let size = route.size.get() as usize;
        let count = batch_of(size) - u32::from(route.room.get());
        self.waiting.set(self.waiting.get().saturating_sub(size * count as usize));
        self.batches.set(self.batches.get() + 1);
        self.blocks.set(self.blocks.get() + u64::from(count));
        if self.batches.get().is_multiple_of(PUBLISHED_EVERY) {
            self.publish();
            publish::publish_tiers();
        }
        let batch = Batch { first: route.first.get(), last: route.last.get(), count, counted: route.counted.get() };
        free(slow, Some(heap), batch);
    }

    /// Brings the process's counters up to date.
    fn publish(&self) {
        let now = (self.batches.get(), self.blocks.get());
        let before = self.published.get();
        if now != before {
            self.published.set(now);
            counters::add(TierCounter::TransferBatches, now.0 - before.0);
            counters::add(TierCounter::TransferBlocks, now.1 - before.1);
        }
    }
}
