//! The descriptor of an arena page, and the slab that a run of pages is when it holds blocks of one class.
//!
//! Descriptors lie out of line, in a table before the arena's pages: headers inside the slabs, 64 KiB apart, would
//! all fall into one set of the first-level cache. They are never unmapped, so a `&'static Slab` is always good;
//! what it *says* is only the owner's to change (or the lock holder's), hence the cells.

use core::cell::Cell;
use core::mem::offset_of;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::layout::arena::{self, ARENA_PAGE};
use crate::layout::block::Batch;
use crate::layout::block::BlockPtr;
use crate::layout::free_list::FreeList;
use crate::layout::lean;
use crate::layout::size_class::{ClassInfo, SizeClass};

mod large;
mod order;
mod seen;

pub use seen::Seen;

/// Values of [`Slab::owner`] that are not the address of a heap.
pub mod owner {
    /// Nobody: a page that holds no block's start.
    pub const NONE: usize = 0;
    /// The central cache of its class; fields belong to the holder of that lock.
    pub const CENTRAL: usize = 16;
    /// The sampler; fields belong to the holder of its lock.
    pub const SAMPLED: usize = 24;
    /// One large block.
    pub const LARGE: usize = 32;
}

/// What the page heap keeps a page for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Never handed out: the table of descriptors begins zeroed.
    #[allow(dead_code, reason = "what zeroed memory reads as")]
    Unused = 0,
    /// In a free span.
    Free = 1,
    /// In a span that is in use.
    Used = 2,
    /// In a slab of several pages, not its first: [`Slab::pages`] is the distance to that.
    Interior = 3,
}

/// Where a heap or the central cache keeps a slab.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Place {
    /// In no list.
    None = 0,
    /// The slab that a heap allocates from.
    Active = 1,
    /// In the list of slabs with few free blocks, if any.
    Full = 2,
    /// In the queue of slabs worth allocating from.
    Partial = 3,
    /// In the list of slabs with no block handed out.
    Empty = 4,
    /// In the queue of slabs of which less than half is handed out.
    Sparse = 5,
    /// In the queue of those of which pages may be without a block, and that were not looked through yet.
    Thin = 6,
}

/// No entry in the live table.
pub const NO_SLOT: u32 = u32::MAX;

/// Descriptor of a page. In a span of several pages the first one's speaks for all; the last one's `kind` and
/// `pages` serve the page heap when it looks for a free neighbour.
///
/// Each `free` writes to one, and neighbouring pages are slabs of different threads. So each has two lines of the
/// processor's caches, which processors fetch in pairs. What frees and refills write lies in the first one; what every
/// thread reads that frees a block, whosever it is, in the second one, which all may have a copy of.
#[repr(C, align(128))]
pub struct Slab {
    /// Blocks that the owner freed, linked.
    pub local_free: Cell<BlockPtr>,
    /// Frees until the owner has to look: it falls by one with each, and at 0 the slow path runs. Large block: see
    /// [`Slab::exposure`].
    pub countdown: Cell<u32>,
    /// What `countdown` was when `live` was last brought up to date.
    armed: Cell<u16>,
    /// Blocks in the list that other threads' frees came back to, see [`Slab::push_batch`]. Large block: see
    /// [`Slab::is_followed`].
    remote: Cell<u16>,
    /// What `free` pushes onto, in the thread that owns it. Here, not beside the owner: the two lines are then fetched
    /// at once.
    into: Cell<Option<&'static FreeList>>,
    /// Slab of a heap: first block of the list that other threads' frees came back to. Sampled slab: address of its
    /// table of live slots. Large block: bytes asked for.
    pub aux: Cell<usize>,
    /// Slab: free blocks that are in the counters already. Large block: see [`Slab::live_slot`].
    counted_frees: Cell<u16>,
    /// Slab: a bit for each unit without memory, see [`crate::layout::holes`]. Large block: see [`Slab::live_slot`].
    pub holes: Cell<u16>,
    /// Blocks that are cut from it: the first ones, or, where it has holes, those outside of them. Large block: see
    /// [`Slab::moved`].
    pub carved: Cell<u16>,
    /// Blocks handed out (to a thread's list or to the program) when last brought up to date. Large block: see
    /// [`Slab::expose`].
    pub live: Cell<u16>,
    /// Next slab or span in a list.
    pub next: Cell<Option<&'static Slab>>,
    /// The slab or span before it in a list.
    pub prev: Cell<Option<&'static Slab>>,
    /// Which list it is in.
    pub place: Cell<Place>,
    second_line: SecondLine,
    /// Address of the heap that owns it, or one of [`owner`].
    pub owner: AtomicUsize,
    /// Pages of the span.
    pub pages: Cell<u32>,
    /// Size class of the blocks.
    pub class: Cell<SizeClass>,
    /// What the page heap keeps it for.
    pub kind: Cell<Kind>,
    /// Slab: blocks, the first ones, that had memory behind them when it began. Large block: see [`Slab::expose`].
    ready: Cell<u16>,
    /// Bit 0: its memory reads as zero. Bits 1 to 7: index of the arena.
    pub zero_and_arena: Cell<u8>,
}

/// Where the second line begins.
#[repr(align(64))]
struct SecondLine;

const _: () = assert!(size_of::<Slab>() == 128 && offset_of!(Slab, owner) == 64);
const _: () = assert!(offset_of!(Slab, countdown) - offset_of!(Slab, local_free) == offset_of!(FreeList, countdown));

// SAFETY: every field but `owner` is only touched by the owner that `owner` names: the thread of that heap, or the
// holder of the lock that the tag stands for. Changes of `owner` hand the fields over (release and acquire through
// the lock, or through the list that carries the block).
unsafe impl Sync for Slab {}

impl Slab {
    /// The first page's address.
    #[inline]
    pub fn address(&'static self) -> *mut u8 {
        arena::page_address(self)
    }

    /// Bytes of the span.
    pub fn bytes(&self) -> usize {
        self.pages.get() as usize * ARENA_PAGE
    }

    /// Blocks in the slab.
    #[inline]
    pub fn capacity(&self) -> u32 {
        self.class.get().info().capacity
    }

    /// Blocks handed out right now.
    #[inline]
    pub fn in_use(&self) -> u32 {
        u32::from(self.live.get()).wrapping_sub(u32::from(self.armed.get()).wrapping_sub(self.countdown.get()))
    }

    /// Sets the number of frees until the owner has to look, with `live` brought up to date.
    #[inline]
    pub fn arm(&self, live: u32, countdown: u32) {
        self.live.set(live as u16);
        self.armed.set(countdown as u16);
        self.countdown.set(countdown);
    }

    /// Arms a slab in the full list: its owner looks when so many blocks are free that a refill is worth it.
    pub fn arm_full(&self, wanted: u32) {
        let live = self.in_use();
        let free = self.capacity() - live;
        self.arm(live, wanted.saturating_sub(free).max(1).min(live.max(1)));
    }

    /// Whether less than half of it is in use.
    pub fn is_sparse(&self) -> bool {
        self.in_use() * 2 < self.capacity()
    }

    /// Arms a slab that is not sparse, for when it will be.
    pub fn arm_sparse(&self) {
        let live = self.in_use();
        self.arm(live, (live + 1 - self.capacity().div_ceil(2)).max(1));
    }

    /// Whether so few blocks are in use that pages are likely to have none.
    pub fn is_thin(&self) -> bool {
        self.is_sparse() && self.in_use() <= self.thin_max()
    }

    /// Arms a sparse slab that is not thin, for when it will be.
    pub fn arm_thin(&self) {
        let live = self.in_use();
        self.arm(live, live.saturating_sub(self.thin_max()).max(1));
    }

    /// Arms a slab that was looked through, for when it is worth it again.
    pub fn arm_again(&self) {
        let live = self.in_use();
        self.arm(live, (live - live / 2).max(1));
    }

    /// Arms a slab whose owner only wants to know when it is empty.
    pub fn arm_empty(&self) {
        let live = self.in_use();
        self.arm(live, live.max(1));
    }

    /// Keeps an empty slab that waits in a queue quiet.
    pub fn arm_never(&self) {
        self.arm_quiet(self.in_use());
    }

    /// Brings `live` up to date; the owner need not look at all. The countdown goes on below 0.
    #[inline(always)]
    fn arm_quiet(&self, live: u32) {
        self.arm(live, 0);
    }

    /// Blocks that it has to give.
    pub fn free_blocks(&self) -> u32 {
        self.capacity() - self.in_use()
    }

    /// Whether it has blocks to give.
    pub fn has_free(&self) -> bool {
        !self.local_free.get().is_null() || self.remote.get() > 0 || u32::from(self.carved.get()) < self.capacity()
    }

    /// Whether blocks may be cut from it that never were, or whose memory went back.
    #[inline(always)]
    pub fn has_uncut(&self) -> bool {
        self.has_holes() || u32::from(self.carved.get()) < self.capacity()
    }

    /// Blocks that no memory is behind: not cut, from pages that had none when the slab began, or in holes.
    pub fn untouched(&self) -> u32 {
        self.untouched_with(self.carved.get(), self.has_holes())
    }

    /// What it would be with `carved` blocks cut, and with holes or none.
    pub fn untouched_with(&self, carved: u16, has_holes: bool) -> u32 {
        let touched = if has_holes { carved } else { carved.max(self.ready.get()) };
        self.capacity() - u32::from(touched)
    }

    /// Bytes at its start that memory may be behind, where it has no holes.
    pub fn touched_bytes(&self) -> usize {
        match self.untouched() {
            0 => self.bytes(),
            untouched => (self.capacity() - untouched) as usize * self.class.get().block(),
        }
    }

    /// Free blocks, those without memory left out.
    pub fn free_with_memory(&self) -> u32 {
        self.capacity() - self.in_use() - self.untouched()
    }

    /// Pushes a freed block; true if the owner has to look at the slab now.
    ///
    /// # Safety
    /// `block` is a block of this slab that was handed out and is now free; the caller is the slab's owner.
    #[inline(always)]
    pub unsafe fn push(&self, block: BlockPtr) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.own_list().push(block) }
    }

    /// The list of blocks that the owner freed.
    #[inline(always)]
    fn own_list(&self) -> &FreeList {
        // SAFETY: two fields of the descriptor are laid out as those of the list are.
        unsafe { &*(&raw const *self).byte_add(offset_of!(Slab, local_free)).cast() }
    }

    /// What `free` pushes a block of this page onto.
    ///
    /// # Safety
    /// The caller is the owner, a heap.
    #[inline(always)]
    pub unsafe fn frees_into(&self) -> &'static FreeList {
        // SAFETY: every page that names a heap has one, see `set_owner`.
        unsafe { self.into.get().unwrap_unchecked() }
    }

    /// Takes a batch that other threads freed; true if the owner has to look at the slab now. It counts as
    /// [`Slab::push`] does, and leaves the list alone that the fast path pushes to: a signal handler may be what brings
    /// the batch, with that push half done underneath.
    ///
    /// # Safety
    /// The batch is of blocks of this slab that were handed out and are now free; the caller is the slab's owner.
    pub unsafe fn push_batch(&self, batch: Batch) -> bool {
        // SAFETY: the blocks are free memory of a slab that the caller owns.
        unsafe { batch.last.set_next(BlockPtr::new(self.aux.get() as *mut u8)) };
        self.aux.set(batch.first.address() as usize);
        self.remote.set(self.remote.get() + batch.count as u16);
        let before = self.countdown.get();
        self.countdown.set(before.wrapping_sub(batch.count));
        before <= batch.count
    }

    /// Blocks that the owner freed and that wait in the slab's list.
    #[inline(always)]
    pub fn local_blocks(&self) -> u32 {
        u32::from(self.carved.get()).wrapping_sub(self.in_use()).wrapping_sub(self.remote.get().into())
    }

    /// Takes the list of all [`Slab::local_blocks`]. They count as handed out afterwards.
    #[inline(always)]
    pub fn take_local(&self, blocks: u32) -> BlockPtr {
        self.arm_quiet(self.in_use() + blocks);
        self.local_free.replace(BlockPtr::NULL)
    }

    /// Whether most of its free blocks came back from others.
    pub fn came_back(&self) -> bool {
        u32::from(self.remote.get()) * 2 > self.free_blocks()
    }

    /// Whether [`Slab::take_free`] takes what came back from others.
    #[inline(always)]
    pub fn takes_back(&self, least: u32) -> bool {
        self.remote.get() > 0 && self.local_blocks() < least
    }

    /// Takes the freed blocks: those that the owner freed, and, if these are less than `least`, those that came back
    /// from others behind them. The list and its length; they count as handed out afterwards.
    pub fn take_free(&self, least: u32) -> (BlockPtr, u32) {
        let in_use = self.in_use();
        let mut list = self.local_free.replace(BlockPtr::NULL);
        let mut count = self.local_blocks();
        if self.takes_back(least) {
            let behind = BlockPtr::new(self.aux.replace(0) as *mut u8);
            match self.last_of(list) {
                // SAFETY: a free block of a slab that the caller owns.
                Some(last) => unsafe { last.set_next(behind) },
                None => list = behind,
            }
            count += u32::from(self.remote.replace(0));
        }
        self.arm_quiet(in_use + count);
        (list, count)
    }

    /// The lists of its free blocks: those that the owner freed, and those that came back from others.
    pub fn free_lists(&self) -> [BlockPtr; 2] {
        let remote = if self.remote.get() > 0 { self.aux.get() as *mut u8 } else { core::ptr::null_mut() };
        [self.local_free.get(), BlockPtr::new(remote)]
    }

    /// Has the list `free` as its only one, with `carved` blocks cut.
    pub fn set_free(&self, free: BlockPtr, carved: u32) {
        self.local_free.set(free);
        self.aux.set(0);
        self.remote.set(0);
        self.carved.set(carved as u16);
    }

    /// The last one of a list of blocks that the owner freed.
    fn last_of(&self, list: BlockPtr) -> Option<BlockPtr> {
        let mut last = list;
        if last.is_null() {
            return None;
        }
        loop {
            // SAFETY: the list's blocks are free and the owner's.
            let next = unsafe { last.next() };
            if next.is_null() {
                return Some(last);
            }
            last = next;
        }
    }

    /// Cuts up to `want` new blocks off the unused end, linked in address order with `behind` behind them; of a slab
    /// with holes maybe some more. They count as handed out.
    pub fn carve(&'static self, want: u32, behind: BlockPtr) -> (BlockPtr, u32) {
        if self.has_holes() {
            return self.fill_holes(want, behind);
        }
        let carved = u32::from(self.carved.get());
        let mut count = want.min(self.capacity() - carved);
        if lean::is_on() {
            count = self.open(carved, count);
        }
        if count == 0 {
            return (BlockPtr::NULL, 0);
        }
        let size = self.class.get().block();
        // SAFETY: blocks `carved .. carved + count` lie inside the slab and were never handed out.
        unsafe {
            let first = self.address().add(carved as usize * size);
            let mut block = first;
            for _ in 1..count {
                let next = block.add(size);
                BlockPtr::new(block).set_next(BlockPtr::new(next));
                block = next;
            }
            BlockPtr::new(block).set_next(behind);
            let live = self.in_use() + count;
            self.carved.set((carved + count) as u16);
            self.arm_quiet(live);
            (BlockPtr::new(first), count)
        }
    }

    /// Bytes that are usable under a narrow limit of data, when `carved` blocks were cut:
    /// there is room for one from the start.
    fn usable(&self, carved: u32) -> usize {
        lean::pages_of(carved.max(1) as usize * self.class.get().block())
    }

    /// Makes room for up to `count` blocks behind those that were cut: how many there is room for.
    #[cold]
    fn open(&'static self, carved: u32, count: u32) -> u32 {
        let usable = self.usable(carved);
        for count in [count, 1] {
            if lean::open(self, usable, self.usable(carved + count)) {
                return count;
            }
        }
        0
    }

    /// Takes up to `want` free blocks: freed ones first, then new ones. They count as handed out.
    pub fn take_some(&'static self, want: u32) -> (BlockPtr, u32) {
        let (list, blocks) = self.take_free(want);
        if blocks > want {
            // SAFETY: the list has `blocks` blocks, all ours; what was taken from is empty now.
            let rest = unsafe { list.cut(want) };
            self.put_back_all(rest, blocks - want);
            return (list, want);
        }
        if blocks < want {
            let (first, more) = self.carve(want - blocks, list);
            if blocks + more > want {
                // SAFETY: as above.
                let rest = unsafe { first.cut(want) };
                self.put_back_all(rest, blocks + more - want);
                return (first, want);
            }
            if more > 0 {
                return (first, blocks + more);
            }
        }
        (list, blocks)
    }

    /// Puts `count` handed-out blocks, a linked list that ends with `last`, back.
    ///
    /// # Safety
    /// The blocks are this slab's and the caller's; the caller owns the slab.
    pub unsafe fn put_back(&self, first: BlockPtr, last: BlockPtr, count: u32) {
        // SAFETY: `last` is one of the blocks.
        unsafe { last.set_next(self.local_free.get()) };
        self.local_free.set(first);
        let live = self.in_use() - count;
        self.arm(live, live);
    }

    /// Puts `count` handed-out blocks, the linked list at `first`, into the empty list of blocks that the owner freed.
    pub fn put_back_all(&self, first: BlockPtr, count: u32) {
        debug_assert!(self.local_free.get().is_null());
        self.local_free.set(first);
        let live = self.in_use() - count;
        self.arm(live, live);
    }

    /// Makes a span, of which the first `ready` pages have memory behind them, a slab of `class` with nothing carved
    /// and hands it to `owner`, as [`Slab::set_owner`] does.
    pub fn begin(&'static self, class: SizeClass, owner: usize, stack: Option<&'static FreeList>, ready: u32) {
        self.local_free.set(BlockPtr::NULL);
        self.aux.set(0);
        self.remote.set(0);
        self.class.set(class);
        self.place.set(Place::None);
        self.carved.set(0);
        self.counted_frees.set(0);
        self.holes.set(0);
        let ClassInfo { block, capacity, .. } = *class.info();
        let is_part = ready > 0 && ready < self.pages.get();
        let blocks = if is_part { (ready * ARENA_PAGE as u32).div_ceil(block) } else { ready * capacity };
        self.ready.set(blocks.min(capacity) as u16);
        self.arm(0, 0);
        self.next.set(None);
        self.prev.set(None);
        for page in 1..self.pages.get() {
            let interior = self.page(page);
            interior.pages.set(page);
            interior.kind.set(Kind::Interior);
            interior.class.set(class);
        }
        self.set_owner(owner, stack);
    }

    /// Hands the slab over. Where the owner is a heap, what it frees goes onto this stack, or onto the slab's own list
    /// if there is none. Every page says all that, so that `free` needs to look at one only.
    pub fn set_owner(&'static self, owner: usize, stack: Option<&'static FreeList>) {
        let into = stack.unwrap_or_else(|| self.own_list());
        for page in (0..self.pages.get()).rev() {
            let page = self.page(page);
            page.into.set(Some(into));
            page.owner.store(owner, Ordering::Release);
        }
    }

    /// Ends the slab: no page of it has an owner any more.
    pub fn end(&'static self) {
        self.set_owner(owner::NONE, None);
    }

    /// Free blocks that are in the counters already.
    pub fn counted(&self) -> u32 {
        self.counted_frees.get().into()
    }

    /// Notes how many free blocks are in the counters.
    pub fn set_counted(&self, blocks: u32) {
        self.counted_frees.set(blocks as u16);
    }

    /// The descriptor of the `n`th page of the span.
    pub fn page(&'static self, n: u32) -> &'static Slab {
        // SAFETY: descriptors of a span's pages are neighbours in the arena's table, the last page's the first.
        unsafe { &*(&raw const *self).sub(n as usize) }
    }

    /// The descriptor of the page before the span. There always is one: page 0 of an arena is in no span.
    pub fn page_before(&'static self) -> &'static Slab {
        self.page_back(1)
    }

    /// The descriptor `n` pages before.
    pub fn page_back(&'static self, n: u32) -> &'static Slab {
        // SAFETY: as for `page`; the caller names a page of the same arena.
        unsafe { &*(&raw const *self).add(n as usize) }
    }

    /// The slab that this page belongs to.
    #[inline]
    pub fn head(&'static self) -> &'static Slab {
        self.page_back(self.pages_behind_head())
    }

    /// Pages of the slab before this one.
    #[inline(always)]
    pub fn pages_behind_head(&self) -> u32 {
        // `begin` stored the distance to the first page.
        if self.kind.get() == Kind::Interior { self.pages.get() } else { 0 }
    }

    /// Whether the slab's memory reads as zero.
    pub fn is_zero(&self) -> bool {
        self.zero_and_arena.get() & 1 != 0
    }

    /// Notes whether the slab's memory reads as zero.
    pub fn set_zero(&self, zero: bool) {
        self.zero_and_arena.set(self.zero_and_arena.get() & !1 | u8::from(zero));
    }
}
