//! Small blocks of other threads' slabs that a thread has freed and keeps for its own next allocations.
//!
//! Threads that exchange blocks through one table free each other's all the time. Sent home, each costs its owner a
//! transfer, and whoever uses it next fetches it from another processor's caches; kept, it is used again where it
//! was freed last. Google's tcmalloc and jemalloc do the same with all blocks, and pay with memory that wanders from
//! thread to thread. Here it is the exception: a class keeps none until the thread has both freed foreign blocks of it
//! and lacked own ones, and few then. A thread that only frees sends everything home, and so does one that was given
//! a single block: its neighbours in the line of the processor's caches are another thread's.
//!
//! A kept block that its thread frees again is another's still, and takes the slow way each time. A thread that was
//! handed a table would go on with its blocks for all of its life, though nobody frees any of its own. So a class keeps
//! none for a round now and then. If fewer and fewer blocks come that are others', that goes on until hardly any do.
//! Otherwise it begins again, and goes on for twice as many rounds.
//!
//! What is kept becomes the list that `malloc` pops, as a whole, when that has run out. Its blocks are of many slabs,
//! then, and go back one by one. What no list was made of since the outbox was sent last goes home with that: each
//! block may be all that is in use of its slab. Their owners count them as in use all the while, as they do those in
//! the outbox.

use core::cell::Cell;
use core::sync::atomic::Ordering;

use super::Heap;
use super::counting::is_start;
use super::limit::cache_limit;
use crate::layout::arena::{self, ARENA_PAGE};
use crate::layout::block::BlockPtr;
use crate::layout::size_class::{SMALL_CLASSES, SizeClass};
use crate::layout::slab::{Kind, Slab, owner};
use crate::settings::{self, Numa};
use crate::sync::spin_lock::SlowPath;
use crate::tiers::notes::update;

/// So many kept blocks come before the thread's own.
pub(super) const KEPT_MIN: u16 = 8;
/// Blocks that a class keeps at first; it doubles where that was too few.
const FIRST: u16 = 8;
/// Blocks that a class keeps at most ...
pub(super) const BLOCKS_MAX: usize = 256;
/// ... and bytes.
const BYTES_MAX: usize = 16 * 1024;
/// A class keeps others' blocks where the thread frees at least one of them for so many that it allocates.
const RARE: u32 = 16;
/// A share of all.
const WHOLE: u32 = 1024;
/// Blocks of the class that are allocated in a round, at least. The first one ends with the first general refill: the
/// thread may not live for long.
const ROUND: u32 = 128;
/// Rounds in which a class keeps blocks before it tries one without: at first and at most.
const STAY_MIN: u16 = 3;
const STAY_MAX: u16 = 63;
/// The part of what a thread's cache may hold that all classes may keep together.
const SHARE: usize = 8;

/// What is kept of a class.
struct Kept {
    /// The block that was freed last.
    first: Cell<BlockPtr>,
    /// Blocks that are kept, and that may be; 0 while the class keeps none.
    blocks: Cell<u16>,
    limit: Cell<u16>,
    /// Blocks that may be kept while it does.
    room: Cell<u16>,
    /// Rounds until it tries one without, and how many there are when it begins again.
    left: Cell<u16>,
    stay: Cell<u16>,
    /// Blocks allocated until the round began, without the high bits of their number.
    allocs: Cell<u32>,
    /// In a round in which none are kept: others' blocks that were freed in the one before, to those allocated, by
    /// [`WHOLE`]; the largest number where that kept some.
    share: Cell<u16>,
    /// Blocks that went home for lack of room since the limit was last looked at.
    refused: Cell<u16>,
    /// The list that `malloc` pops was kept: its blocks are of many slabs.
    in_list: Cell<bool>,
    /// There was a need for it since the outbox was sent last.
    needed: Cell<bool>,
}

/// What a heap keeps of others' small blocks. Zeroed memory is nothing.
pub struct Exchange {
    kept: [Kept; SMALL_CLASSES],
    /// Bytes that all classes may keep together.
    reserved: Cell<usize>,
    /// What is kept is on its way into the outbox, which may become full by it.
    sending: Cell<bool>,
}

impl Kept {
    /// Whether the thread has freed others' blocks of the class since it began again.
    fn was_asked(&self) -> bool {
        self.refused.get() > 0 || self.stay.get() > 0
    }

    /// At the end of a round in which blocks were kept: whether some are in the next one.
    fn goes_on(&self) -> bool {
        let left = self.left.get();
        if left == 0 {
            self.share.set(u16::MAX);
            return false;
        }
        self.left.set(left - 1);
        true
    }

    /// At the end of a round in which none were kept: whether some are from now on.
    fn begins(&self, allocated: u32) -> bool {
        let share = (u32::from(self.refused.get()) * WHOLE / allocated.max(1)).min(WHOLE) as u16;
        let before = self.share.replace(share);
        if u32::from(share) < WHOLE / RARE || before == u16::MAX || share < before - before / 4 {
            return false;
        }
        let stay = self.stay.get().max(STAY_MIN);
        self.left.set(stay);
        self.stay.set((2 * stay + 1).min(STAY_MAX));
        true
    }
}

impl Exchange {
    #[inline(always)]
    fn of(&self, class: SizeClass) -> &Kept {
        &self.kept[class.index()]
    }

    /// Bytes that are kept, about: other threads may ask, while this one changes them.
    pub fn bytes(&self) -> usize {
        (0..SMALL_CLASSES).map(|class| SizeClass(class as u8)).map(|class| self.blocks(class) * class.block()).sum()
    }

    /// Blocks of a class that are kept. The thread may be changing them.
    pub fn blocks(&self, class: SizeClass) -> usize {
        // SAFETY: a word of a heap, which is never unmapped.
        let blocks = |kept: &Kept| unsafe { kept.blocks.as_ptr().read_volatile() };
        self.kept.get(class.index()).map_or(0, |kept| blocks(kept).into())
    }
}

/// Whether a block of this class may begin at an address that a list of kept ones led to while its thread was changing
/// it: then its memory can be read.
pub(super) fn may_be_kept(at: usize, class: SizeClass) -> bool {
    let Some(page) = arena::page_of(core::ptr::without_provenance_mut(at)) else { return false };
    let tag = page.owner.load(Ordering::Acquire);
    let Some(seen) = page.look().filter(|seen| seen.class == class) else { return false };
    let pages = if seen.kind == Kind::Interior as u8 { page.pages_now() as usize } else { 0 };
    (tag == owner::CENTRAL || tag > owner::LARGE) && is_start(pages * ARENA_PAGE + at % ARENA_PAGE, class)
}

impl Heap {
    /// Keeps a small block of another heap's slab that this thread has freed, if there is room. False if it is left to
    /// the caller.
    #[inline(always)]
    pub fn keep_small(&self, _: SlowPath, class: SizeClass, block: BlockPtr) -> bool {
        let kept = self.exchange.of(class);
        let blocks = kept.blocks.get();
        if blocks >= kept.limit.get() {
            kept.refused.set(kept.refused.get().saturating_add(1));
            return false;
        }
        // SAFETY: the block is free and the caller's.
        unsafe { block.set_next(kept.first.get()) };
        kept.first.set(block);
        kept.blocks.set(blocks + 1);
        true
    }

    /// Makes what is kept of a small class, if that is at least so many blocks, the list that `malloc` pops, but for
    /// its first block. `None` if it is less, or a sample is due before the end of the list.
    #[inline(always)]
    pub(super) fn use_kept(&self, class: SizeClass, least: u16) -> Option<*mut u8> {
        if self.exchange.of(class).blocks.get() < least { None } else { self.take_up_kept(class) }
    }

    #[inline(never)]
    fn take_up_kept(&self, class: SizeClass) -> Option<*mut u8> {
        if !self.install_kept(class, 1) {
            return None;
        }
        let count = &self.of(class).count;
        count.refills.set(count.refills.get() + 1);
        self.pop(class)
    }

    /// Makes what is kept of a small class, if that is at least so many blocks, the list that `malloc` pops, which is
    /// empty. False if it is less, or a sample is due before the end of the list.
    #[inline]
    pub(super) fn install_kept(&self, class: SizeClass, least: u16) -> bool {
        let kept = self.exchange.of(class);
        let blocks = kept.blocks.get();
        let budget = &self.budget(class).left;
        let left = budget.get() - (class.block() * usize::from(blocks)) as i64;
        if blocks < least || left <= 0 {
            return false;
        }
        budget.set(left);
        kept.in_list.set(true);
        kept.needed.set(true);
        kept.blocks.set(0);
        self.head[class.index()].set(kept.first.replace(BlockPtr::NULL));
        let count = &self.of(class).count;
        count.frees.set(count.frees.get() + u64::from(blocks));
        count.allocs.set(count.allocs.get() + u64::from(blocks));
        count.cached.set(blocks.into());
        true
    }

    /// Notes that the list that `malloc` pops is of the active slab.
    #[inline(always)]
    pub(super) fn note_own_list(&self, class: SizeClass) {
        update(&self.exchange.of(class).in_list, false);
    }

    /// Whether the list that `malloc` pops was kept. The thread may be changing it.
    pub(super) fn is_list_kept(&self, class: SizeClass) -> bool {
        // SAFETY: a word of a heap, which is never unmapped.
        unsafe { self.exchange.of(class).in_list.as_ptr().read_volatile() }
    }

    /// The lists of a small class that have blocks of many slabs.
    pub(super) fn kept_lists(&self, class: SizeClass) -> impl Iterator<Item = BlockPtr> {
        let in_use = self.is_list_kept(class).then(|| self.head[class.index()].get());
        in_use.into_iter().chain([self.exchange.of(class).first.get()])
    }

    /// At a general refill of a small class: may it keep blocks, and more of them?
    #[inline]
    pub(super) fn look_at_kept(&self, class: SizeClass) {
        let kept = self.exchange.of(class);
        if kept.refused.get() > 0 || kept.limit.get() > 0 {
            self.decide(class, kept);
        }
    }

    /// Ends the round, if it is over, and begins the next one. Where blocks were kept, and some were refused, there is
    /// room for more from now on.
    #[cold]
    #[inline(never)]
    fn decide(&self, class: SizeClass, kept: &Kept) {
        let allocs = self.of(class).count.allocs.get() as u32;
        let allocated = allocs.wrapping_sub(kept.allocs.get());
        let (kept_some, is_over) = (kept.limit.get() > 0, allocated >= ROUND || kept.stay.get() == 0);
        let keeps = match (kept_some, is_over) {
            (true, true) => kept.goes_on(),
            (false, true) => kept.begins(allocated),
            (true, false) => true,
            (false, false) => return,
        };
        if is_over {
            kept.allocs.set(allocs);
        }
        let refused = kept.refused.replace(0) > 0;
        if keeps && refused && (kept_some || kept.room.get() == 0) {
            self.make_room(class, kept);
        }
        kept.limit.set(if keeps { kept.room.get() } else { 0 });
    }

    /// Makes room for more, if there is any.
    fn make_room(&self, class: SizeClass, kept: &Kept) {
        // The memory of one node is to stay with its threads.
        if settings::current().numa() == Numa::Local {
            return;
        }
        let before = kept.room.get();
        let most = (BYTES_MAX / class.block()).min(BLOCKS_MAX) as u16;
        let limit = (before * 2).clamp(FIRST, most.max(FIRST));
        let reserved = self.exchange.reserved.get() + usize::from(limit - before) * class.block();
        if reserved <= cache_limit() / SHARE {
            self.exchange.reserved.set(reserved);
            kept.room.set(limit);
        }
    }

    /// Begins the first round of a thread that has taken the heap over.
    pub fn begin_rounds(&self) {
        for (kept, class) in self.exchange.kept.iter().zip(&self.classes) {
            update(&kept.allocs, class.count.allocs.get() as u32);
        }
    }

    /// Sends home all that is kept, and begins again with nothing.
    pub(super) fn send_home(&'static self, slow: SlowPath) {
        update(&self.exchange.reserved, 0);
        self.send_kept(slow, true);
    }

    /// Sends what waits in the outbox, and what is kept without need.
    #[cold]
    #[inline(never)]
    pub fn send_waiting(&'static self, slow: SlowPath) {
        self.outbox.flush(slow, self);
        // An outbox that becomes full by what is sent calls this again: no deeper, the program's stack may be small.
        if !self.exchange.sending.get() {
            self.send_kept(slow, false);
        }
    }

    /// Sends what is kept without need, or all, and then has no class keep any.
    #[cold]
    #[inline(never)]
    fn send_kept(&'static self, slow: SlowPath, all: bool) {
        for (kept, class) in self.exchange.kept.iter().zip(&self.classes) {
            let stays = kept.needed.get() && !all;
            update(&kept.needed, false);
            if all && kept.was_asked() {
                kept.allocs.set(class.count.allocs.get() as u32);
                for count in [&kept.limit, &kept.room, &kept.left, &kept.stay, &kept.share, &kept.refused] {
                    update(count, 0);
                }
            }
            if !stays && kept.blocks.get() > 0 {
                kept.blocks.set(0);
                self.exchange.sending.set(true);
                self.send_blocks(slow, kept.first.replace(BlockPtr::NULL), false);
            }
        }
        update(&self.exchange.sending, false);
    }

    /// Sends blocks of many slabs to those who own them, which are in the counters as freed or are not. How many.
    #[cold]
    #[inline(never)]
    pub(super) fn send_blocks(&'static self, slow: SlowPath, list: BlockPtr, counted: bool) -> u32 {
        let (mut block, mut blocks) = (list, 0);
        while !block.is_null() {
            // SAFETY: the list's blocks are free and this thread's.
            let next = unsafe { block.next() };
            if let Some(slab) = arena::page_of(block.address()).map(Slab::head) {
                self.outbox.push(slow, self, slab, block, counted);
            }
            block = next;
            blocks += 1;
        }
        blocks
    }
}
