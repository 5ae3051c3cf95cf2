//! Sampled blocks that change their size in place, and those whose records follow later.
//!
//! A buffer that grows by small steps would take the sampler's lock with each of them, and publish its record. Instead
//! its thread notes the size in the block's descriptor alone, where it stands anyway, and who has the lock reads it
//! there ([`Sampler::catch_up`]): before memory falls, for the sake of the peak, with each census, and at the end. Steps
//! over a 128th to a 64th of the size, and 64 KiB at least, are recorded as they come, so that a process that is killed
//! has left its heap as it was but for that. So is each step where nobody takes a census, where everything is recorded,
//! and where a label or a scope counts what it has.

use poolscope_wire::OBJECT_ONE;

use super::stack_table::count_resize;
use super::{HOST, SAMPLER, Sampler, bytes, slot};
use crate::census;
use crate::layout::slab::{NO_SLOT, Slab};
use crate::sampling::budget::weight;
use crate::segment::ownership::own_segment;
use crate::sync::spin_lock::SlowPath;
use crate::tiers::thread_cache::Heap;

/// Blocks at most whose records follow: each sample that is freed looks at them.
const MOST: usize = 8;
/// A smaller step is not recorded as it comes: an eighth of the usual period, by which samples are off anyway.
const STEP_MIN: usize = 64 << 10;

/// The large blocks whose records follow, with their slots in the live table.
pub struct Growing {
    blocks: [Option<(u32, &'static Slab)>; MOST],
    count: u32,
}

impl Growing {
    /// No block.
    pub const fn new() -> Self {
        Growing { blocks: [None; MOST], count: 0 }
    }

    /// Adds a block, if there is room.
    fn follow(&mut self, slot: u32, span: &'static Slab) {
        if let Some(free) = self.blocks.iter_mut().find(|entry| entry.is_none()) {
            *free = Some((slot, span));
            self.count += 1;
            span.set_followed(true);
        }
    }

    /// Takes the block with this slot out, if it is one of them.
    pub fn leave(&mut self, slot: u32) {
        if self.count == 0 {
            return;
        }
        if let Some(entry) = self.blocks.iter_mut().find(|entry| entry.is_some_and(|(its, _)| its == slot)) {
            *entry = None;
            self.count -= 1;
        }
    }
}

/// Notes that a sampled block changed its size in place.
#[cold]
pub fn resize_block(slow: SlowPath, slab: &'static Slab, p: *mut u8, size: usize) {
    let mut sampler = SAMPLER.lock(slow);
    let slot = slot(slab, p).get();
    sampler.catch_up();
    sampler.resize(slot, size, None);
}

/// Notes that a sampled large block has another size in place, which was `before`.
#[inline]
pub fn resize_large(slow: SlowPath, heap: &'static Heap, span: &'static Slab, before: usize) {
    let size = span.aux.get();
    if !span.is_followed() || size < before || is_far(before, size) || !census::is_watching() {
        resize_now(slow, heap, span, before);
    }
}

/// Whether a step leads over a multiple of the power of two that is a 64th of the size, or less.
#[inline]
fn is_far(before: usize, size: usize) -> bool {
    let grain = (size / 64).max(STEP_MIN).ilog2();
    before >> grain != size >> grain
}

#[cold]
#[inline(never)]
fn resize_now(slow: SlowPath, heap: &'static Heap, span: &'static Slab, before: usize) {
    let (slot, size) = (span.live_slot(), span.aux.get());
    let mut sampler = SAMPLER.lock(slow);
    if span.is_followed() && size < before {
        // What it was at its largest.
        sampler.resize(slot, before, Some(span));
    }
    sampler.catch_up();
    sampler.resize(slot, size, Some(span));
    let may_follow = size > before && !span.is_followed() && !heap.records_all() && census::is_watching();
    if may_follow && sampler.may_lag(slot) {
        sampler.growing.follow(slot, span);
    }
}

/// Brings the records of blocks that have grown up to date. What takes a census does this, too.
pub fn catch_up(slow: SlowPath) {
    let mut sampler = SAMPLER.lock(slow);
    // A forked child has no segment before its first sample.
    if own_segment() {
        sampler.catch_up();
    }
}

impl Sampler {
    /// Whether nobody but readers counts what a record's block has.
    fn may_lag(&self, slot: u32) -> bool {
        slot != NO_SLOT && self.live.get(slot).is_some_and(|record| record.scope == 0 && !self.labels.has(record.stack))
    }

    /// Brings the records of blocks that have grown up to date.
    #[inline]
    pub(super) fn catch_up(&mut self) {
        if self.growing.count > 0 {
            self.catch_up_now();
        }
    }

    #[cold]
    #[inline(never)]
    fn catch_up_now(&mut self) {
        for at in 0..MOST {
            if let Some((slot, span)) = self.growing.blocks[at] {
                // SAFETY: a word of a descriptor, which is never unmapped. The block's thread may be changing it.
                let size = unsafe { span.aux.as_ptr().read_volatile() };
                self.resize(slot, size, Some(span));
            }
        }
    }

    /// Brings the record in `slot` up to date with its block, which has `size` bytes in place, and is `span` if it is a
    /// large one.
    #[cold]
    fn resize(&mut self, slot: u32, size: usize, span: Option<&'static Slab>) {
        let Some(segment) = self.own_segment() else { return };
        let Some(&before) = self.live.get(slot) else { return };
        let weight = match span {
            Some(span) if before.weight > OBJECT_ONE => weight(span.exposure().into()).min(before.weight),
            _ => before.weight,
        };
        if (before.size, before.weight) == (size as u64, weight) {
            return;
        }
        self.live.resize(&segment, slot, size as u64, weight);
        let (was, is) = (bytes(before.size, before.weight), bytes(size as u64, weight));
        self.peaks.grew(HOST, is.saturating_sub(was));
        self.peaks.shrinks(&segment, self.stacks.len(), HOST, was.saturating_sub(is));
        count_resize(&segment, &before, size as u64, weight);
        self.labels.changed(before.stack, was, is);
        self.scopes.resized(before.scope, before.size, size as u64);
    }
}
