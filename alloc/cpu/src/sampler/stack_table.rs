//! Distinct call stacks and their totals, in the segment.

use poolscope_wire::{LiveRecord, OBJECT_ONE, Region, StackRecord, kind, stack_flags};

use crate::kernel::os;
use crate::segment::Segment;

/// The stack of samples for which the table had no room: it has no frames.
pub const UNKNOWN: u32 = 0;

/// Entries of the index at first: a page.
const FIRST: usize = 1 << 10;

/// Finds a stack's record by its frames. The records and frames are the segment's; the index is private.
pub struct StackTable {
    /// Open addressing; each entry is a stack's index plus 1, 0 if free. A power of two, of which half is taken at most
    /// while there is memory for more: most programs have few stacks, and each is in a page of its own in a large
    /// index.
    index: *mut u32,
    index_len: usize,
    stacks: u32,
    frames: u32,
}

/// A captured stack, ready to be looked up.
pub struct CapturedStack<'a> {
    /// Return addresses, innermost first.
    pub frames: &'a [u64],
    /// What stands behind them: a label, or nothing.
    pub label: &'a [u64],
    /// Bits of [`stack_flags`].
    pub flags: u16,
    /// One of [`kind`].
    pub kind: u16,
    /// Number of the device; 0 for host memory.
    pub device: u32,
    /// Number of modules that were replaced by others so far: the same addresses mean other code afterwards.
    pub epoch: u64,
}

impl CapturedStack<'_> {
    /// Words that it takes.
    fn len(&self) -> usize {
        self.frames.len() + self.label.len()
    }
}

impl StackTable {
    /// Before [`StackTable::start`].
    pub const fn new() -> Self {
        StackTable { index: core::ptr::null_mut(), index_len: 0, stacks: 0, frames: 0 }
    }

    /// Number of stacks, the unknown one included.
    pub fn len(&self) -> u32 {
        self.stacks
    }

    /// Begins an empty table for `segment`. False if there is no memory for it.
    pub fn start(&mut self, segment: &Segment) -> bool {
        if !segment.commit(Region::Stacks, 1) || !self.make_index(segment, FIRST) {
            return false;
        }
        self.stacks = 1;
        let unknown = StackRecord { flags_and_kind: StackRecord::describe(0, kind::HOST, 0), ..StackRecord::ZERO };
        // SAFETY: record 0 was just committed.
        unsafe { segment.record::<StackRecord>(Region::Stacks, UNKNOWN).write(unknown) };
        segment.raise_count(Region::Stacks, 1);
        true
    }

    /// Puts an index of `len` entries in the place of the one that there is. False without memory: then that one stays.
    #[cold]
    fn make_index(&mut self, segment: &Segment, len: usize) -> bool {
        let index: *mut u32 = os::map(len * size_of::<u32>()).cast();
        if index.is_null() {
            return false;
        }
        if !self.index.is_null() {
            // SAFETY: the old index is nobody's any more.
            unsafe { os::unmap(self.index.cast(), self.index_len * size_of::<u32>()) };
        }
        (self.index, self.index_len) = (index, len);
        // The unknown one is not looked up.
        for id in 1..self.stacks {
            // SAFETY: records below the number of stacks are committed.
            let hash = unsafe { (*segment.record::<StackRecord>(Region::Stacks, id)).hash };
            let place = self.free_place(hash);
            // SAFETY: a place of the index.
            unsafe { *self.index.add(place) = id + 1 };
        }
        true
    }

    /// The first free place for a stack that is not in the index, which has free ones.
    fn free_place(&self, hash: u64) -> usize {
        let mut at = hash as usize & (self.index_len - 1);
        // SAFETY: `at` is below the index's length.
        while unsafe { *self.index.add(at) } != 0 {
            at = (at + 1) & (self.index_len - 1);
        }
        at
    }

    /// Whether the index has room for one more stack, made if need be. One entry stays free: searches end there.
    #[inline]
    fn has_room(&mut self, segment: &Segment) -> bool {
        let stacks = self.stacks as usize + 1;
        2 * stacks <= self.index_len || self.make_index(segment, 2 * self.index_len) || stacks < self.index_len
    }

    /// The index of a stack, added if it is new; [`UNKNOWN`] if there is no room.
    pub fn intern(&mut self, segment: &Segment, stack: &CapturedStack<'_>) -> u32 {
        let hash = hash(stack);
        let mut at = hash as usize & (self.index_len - 1);
        loop {
            // SAFETY: `at` is below the index's length.
            let entry = unsafe { *self.index.add(at) };
            if entry == 0 {
                break;
            }
            // SAFETY: entries are indices of committed records.
            let record = unsafe { &*segment.record::<StackRecord>(Region::Stacks, entry - 1) };
            if record.hash == hash && usize::from(record.depth) == stack.len() {
                return entry - 1;
            }
            at = (at + 1) & (self.index_len - 1);
        }
        let added = if self.has_room(segment) { self.add(segment, stack, hash) } else { None };
        let Some(id) = added else {
            segment.header().dropped_stacks += 1;
            return UNKNOWN;
        };
        let place = self.free_place(hash);
        // SAFETY: a place of the index.
        unsafe { *self.index.add(place) = id + 1 };
        id
    }

    fn add(&mut self, segment: &Segment, stack: &CapturedStack<'_>, hash: u64) -> Option<u32> {
        let id = self.stacks;
        let first_frame = self.frames;
        let frames_after = first_frame.checked_add(stack.len() as u32)?;
        if !segment.commit(Region::Frames, frames_after) || !segment.commit(Region::Stacks, id + 1) {
            return None;
        }
        // SAFETY: both ranges were just committed and nobody reads them before the counts are raised.
        unsafe {
            let to = segment.record::<u64>(Region::Frames, first_frame);
            core::ptr::copy_nonoverlapping(stack.frames.as_ptr(), to, stack.frames.len());
            core::ptr::copy_nonoverlapping(stack.label.as_ptr(), to.add(stack.frames.len()), stack.label.len());
            segment.record::<StackRecord>(Region::Stacks, id).write(StackRecord {
                hash,
                first_frame,
                depth: stack.len() as u16,
                flags_and_kind: StackRecord::describe(stack.flags, stack.kind, stack.device),
                ..StackRecord::ZERO
            });
        }
        if stack.flags & stack_flags::TRUNCATED != 0 {
            segment.header().truncated_stacks += 1;
        }
        self.frames = frames_after;
        self.stacks = id + 1;
        segment.raise_count(Region::Frames, frames_after);
        segment.raise_count(Region::Stacks, id + 1);
        Some(id)
    }

    /// Copies the identities of all stacks from the parent's segment into a forked child's, totals at zero. False if
    /// the child's segment has no room.
    pub fn copy_to(&self, from: &Segment, to: &Segment) -> bool {
        if !to.commit(Region::Frames, self.frames) || !to.commit(Region::Stacks, self.stacks) {
            return false;
        }
        // SAFETY: both segments have these records committed; in the parent's they are complete and don't change.
        unsafe {
            core::ptr::copy_nonoverlapping(
                from.record::<u64>(Region::Frames, 0),
                to.record::<u64>(Region::Frames, 0),
                self.frames as usize,
            );
            for id in 0..self.stacks {
                let record = *from.record::<StackRecord>(Region::Stacks, id);
                to.record::<StackRecord>(Region::Stacks, id).write(StackRecord {
                    hash: record.hash,
                    first_frame: record.first_frame,
                    depth: record.depth,
                    flags_and_kind: record.flags_and_kind,
                    ..StackRecord::ZERO
                });
            }
        }
        to.raise_count(Region::Frames, self.frames);
        to.raise_count(Region::Stacks, self.stacks);
        true
    }
}

/// Adds an allocation of `size` bytes with `weight` to a stack's totals.
pub fn count_alloc(segment: &Segment, stack: u32, size: u64, weight: u64) {
    // SAFETY: `stack` was interned in this segment; the caller holds the sampler's lock.
    let record = unsafe { &mut *segment.record::<StackRecord>(Region::Stacks, stack) };
    record.alloc_samples += 1;
    record.alloc_objects += weight;
    record.alloc_bytes += bytes(size, weight);
}

/// Adds a free to a stack's totals.
pub fn count_free(segment: &Segment, stack: u32, size: u64, weight: u64) {
    // SAFETY: as above.
    let record = unsafe { &mut *segment.record::<StackRecord>(Region::Stacks, stack) };
    record.free_samples += 1;
    record.free_objects += weight;
    record.free_bytes += bytes(size, weight);
}

/// Counts that a block of `before` has another size in place, and another weight if it grew.
pub fn count_resize(segment: &Segment, before: &LiveRecord, size: u64, weight: u64) {
    // SAFETY: as above.
    let record = unsafe { &mut *segment.record::<StackRecord>(Region::Stacks, before.stack) };
    let (was, is) = (bytes(before.size, before.weight), bytes(size, weight));
    record.alloc_bytes += is.saturating_sub(was);
    record.free_bytes += was.saturating_sub(is);
    // It never stood for so many blocks as its weight said: the larger it is, the more likely was its sample.
    record.alloc_objects -= before.weight - weight;
}

/// Bytes that a sample of `size` bytes and `weight` stands for.
pub fn bytes(size: u64, weight: u64) -> u64 {
    (u128::from(size) * u128::from(weight) / u128::from(OBJECT_ONE)) as u64
}

fn hash(stack: &CapturedStack<'_>) -> u64 {
    let mut hash =
        0x9e37_79b9_7f4a_7c15 ^ stack.epoch ^ u64::from(StackRecord::describe(0, stack.kind, stack.device)) << 48;
    // Two loops: one over both takes more instructions for each frame.
    for &frame in stack.frames {
        hash = (hash.rotate_left(5) ^ frame).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    for &word in stack.label {
        hash = (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    // Murmur3's finisher: the low bits pick the place in the index.
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ hash >> 33
}

/// A stack's return addresses.
pub fn frames(segment: &Segment, stack: u32) -> &[u64] {
    // SAFETY: `stack` was interned in this segment, so its record is committed. What the file says of its frames is
    // only believed if they are.
    unsafe {
        let record = segment.record::<StackRecord>(Region::Stacks, stack).read();
        let end = record.first_frame.saturating_add(record.depth.into());
        if !segment.is_committed(Region::Frames, end) {
            return &[];
        }
        let first = segment.record::<u64>(Region::Frames, record.first_frame);
        core::slice::from_raw_parts(first, usize::from(record.depth))
    }
}
