//! Distinct call stacks and their totals, in the segment.

use poolscope_capture::MAX_DEPTH;
use poolscope_wire::label::LABEL_WORDS;
use poolscope_wire::outer::{Outer, RUNS_MAX, WORDS_MAX};
use poolscope_wire::{LiveRecord, OBJECT_ONE, Region, StackRecord, flags, kind, stack_flags};

use super::recent_stacks::{Common, NO_SHELF, RecentStacks};
use crate::kernel::os;
use crate::segment::Segment;

/// The stack of samples for which the table had no room: it has no frames.
pub const UNKNOWN: u32 = 0;

/// The most words of a stack: frames, and a label.
pub const WORDS: usize = MAX_DEPTH + LABEL_WORDS;
const _: () = assert!(WORDS <= WORDS_MAX);

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
    recent: RecentStacks,
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
    /// Words that it has.
    pub fn len(&self) -> usize {
        self.frames.len() + self.label.len()
    }

    /// The frames and the label, without so many words at their end.
    pub fn without_last(&self, words: usize) -> (&[u64], &[u64]) {
        let label = self.label.len().saturating_sub(words);
        let frames = self.frames.len().saturating_sub(words.saturating_sub(self.label.len()));
        (self.frames.get(..frames).unwrap_or_default(), self.label.get(..label).unwrap_or_default())
    }

    /// Writes the words to an array that has room for them.
    pub fn copy_to(&self, words: &mut [u64]) {
        if let Some((frames, rest)) = words.split_at_mut_checked(self.frames.len())
            && let Some(label) = rest.get_mut(..self.label.len())
        {
            frames.copy_from_slice(self.frames);
            label.copy_from_slice(self.label);
        }
    }
}

impl StackTable {
    /// Before [`StackTable::start`].
    pub const fn new() -> Self {
        StackTable { index: core::ptr::null_mut(), index_len: 0, stacks: 0, frames: 0, recent: RecentStacks::new() }
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
        if segment.header().flags & flags::EXACT != 0 {
            self.recent.by_thread();
        }
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

    /// The index of a stack, added if it is new; [`UNKNOWN`] if there is no room. `shelf` says which stacks a new one is
    /// compared with.
    pub fn intern(&mut self, segment: &Segment, stack: &CapturedStack<'_>, shelf: impl FnOnce() -> usize) -> u32 {
        let hash = hash(stack);
        self.find(segment, hash, stack.len()).unwrap_or_else(|| self.insert(segment, stack, hash, shelf))
    }

    /// The index of the stack of this hash that has so many words.
    #[inline(always)]
    pub fn find(&self, segment: &Segment, hash: u64, len: usize) -> Option<u32> {
        let mut at = hash as usize & (self.index_len - 1);
        loop {
            // SAFETY: `at` is below the index's length.
            let number = unsafe { *self.index.add(at) }.checked_sub(1)?;
            // SAFETY: entries are indices of committed records.
            let record = unsafe { &*segment.record::<StackRecord>(Region::Stacks, number) };
            if record.hash == hash && usize::from(record.depth) == len {
                return Some(number);
            }
            at = (at + 1) & (self.index_len - 1);
        }
    }

    /// Adds a stack that is not there; its index, or [`UNKNOWN`] if there is no room.
    #[inline(always)]
    pub fn insert(
        &mut self,
        segment: &Segment,
        stack: &CapturedStack<'_>,
        hash: u64,
        shelf: impl FnOnce() -> usize,
    ) -> u32 {
        let added = if self.has_room(segment) { self.add(segment, stack, hash, shelf()) } else { None };
        let Some(id) = added else {
            segment.header().dropped_stacks += 1;
            return UNKNOWN;
        };
        let place = self.free_place(hash);
        // SAFETY: a place of the index.
        unsafe { *self.index.add(place) = id + 1 };
        id
    }

    /// The number of a function of Python's by its words, added if it is new. `None` if there is no room.
    pub fn intern_function(&mut self, segment: &Segment, words: &[u64]) -> Option<u32> {
        let label = &[];
        let function = CapturedStack { frames: words, label, flags: 0, kind: kind::FUNCTION, device: 0, epoch: 0 };
        let hash = hash(&function);
        let known = self.find(segment, hash, words.len());
        let number = known.unwrap_or_else(|| self.insert(segment, &function, hash, || NO_SHELF));
        (number != UNKNOWN).then_some(number)
    }

    #[cold]
    #[inline(never)]
    fn add(&mut self, segment: &Segment, stack: &CapturedStack<'_>, hash: u64, shelf: usize) -> Option<u32> {
        let id = self.stacks;
        let first_frame = self.frames;
        let outer = self.recent.common(shelf, stack).and_then(|common| outer(segment, common, stack.len()));
        let (inner, tail) = outer.map_or((stack.len(), 0), |outer| (outer.inner.into(), outer.tail.into()));
        let frames_after = first_frame.checked_add((inner + tail) as u32 + u32::from(outer.is_some()))?;
        if !segment.commit(Region::Frames, frames_after) || !segment.commit(Region::Stacks, id + 1) {
            return None;
        }
        // SAFETY: both ranges were just committed and nobody reads them before the counts are raised.
        unsafe {
            let mut to = segment.record::<u64>(Region::Frames, first_frame);
            if let Some(outer) = outer {
                to.write(outer.word());
                to = to.add(1);
            }
            let (frames, label) = stack.without_last(stack.len() - inner);
            core::ptr::copy_nonoverlapping(frames.as_ptr(), to, frames.len());
            core::ptr::copy_nonoverlapping(label.as_ptr(), to.add(frames.len()), label.len());
            let last = stack.frames.iter().chain(stack.label).skip(stack.len() - tail);
            last.enumerate().for_each(|(at, word)| to.add(inner + at).write(*word));
            segment.record::<StackRecord>(Region::Stacks, id).write(StackRecord {
                hash,
                first_frame,
                depth: stack.len() as u16,
                flags_and_kind: StackRecord::describe(
                    stack.flags | if outer.is_some() { stack_flags::SHARED } else { 0 },
                    stack.kind,
                    stack.device,
                ),
                ..StackRecord::ZERO
            });
        }
        self.recent.keep(shelf, id, stack, tail);
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

/// The hash of a stack, with what is to be told apart by more than its words.
#[inline(always)]
pub fn hash(stack: &CapturedStack<'_>) -> u64 {
    let mut hash =
        0x9e37_79b9_7f4a_7c15 ^ stack.epoch ^ u64::from(StackRecord::describe(0, stack.kind, stack.device)) << 48;
    // Loops of their own: one over all takes more instructions for each frame.
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

/// A stack's return addresses, and its label's words behind them.
pub fn frames(segment: &Segment, stack: u32) -> Frames<'_> {
    // SAFETY: `stack` was interned in this segment, so its record is committed.
    let depth = unsafe { (*segment.record::<StackRecord>(Region::Stacks, stack)).depth };
    let (run, outer) = inner(segment, stack);
    let depth = usize::from(depth);
    let tail = outer.map_or(&[][..], |outer| tail(segment, stack, outer));
    let tail = if tail.len() <= depth { tail } else { &[] };
    Frames { segment, run, outer, left: depth - tail.len(), tail }
}

/// The same as an array, and how many they are.
pub fn words(segment: &Segment, stack: u32) -> ([u64; WORDS], usize) {
    let mut words = [0; WORDS];
    let copied = words.iter_mut().zip(frames(segment, stack)).map(|(to, word)| *to = word).count();
    (words, copied)
}

/// The words of a stack, from the innermost frame on.
pub struct Frames<'a> {
    segment: &'a Segment,
    /// The next ones, as far as one stack has them of its own.
    run: &'a [u64],
    outer: Option<Outer>,
    /// How many there are before the tail.
    left: usize,
    tail: &'a [u64],
}

impl Iterator for Frames<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let Some(left) = self.left.checked_sub(1) else {
            let (first, rest) = self.tail.split_first()?;
            self.tail = rest;
            return Some(*first);
        };
        self.left = left;
        if self.run.is_empty() {
            let outer = self.outer.take()?;
            (self.run, self.outer) = inner(self.segment, outer.stack);
            self.run = self.run.get(outer.from.into()..)?;
        }
        let (first, rest) = self.run.split_first()?;
        self.run = rest;
        Some(*first)
    }
}

/// So many words of the region, from one on; none if the file does not have them.
fn stored(segment: &Segment, first: u32, count: u32) -> Option<&[u64]> {
    let is_there = segment.is_committed(Region::Frames, first.saturating_add(count));
    // SAFETY: the words are committed, and those of a stack never change.
    is_there
        .then(|| unsafe { core::slice::from_raw_parts(segment.record::<u64>(Region::Frames, first), count as usize) })
}

/// The words of a function of Python's.
pub fn function(segment: &Segment, number: u32) -> Option<&[u64]> {
    let (words, outer) = inner(segment, number);
    (!words.is_empty() && outer.is_none()).then_some(words)
}

/// The inner words that a stack has of its own, and where it goes on. What the file says is only believed if it is so.
fn inner(segment: &Segment, stack: u32) -> (&[u64], Option<Outer>) {
    if !segment.is_committed(Region::Stacks, stack.saturating_add(1)) {
        return (&[], None);
    }
    // SAFETY: the record is committed.
    let record = unsafe { segment.record::<StackRecord>(Region::Stacks, stack).read() };
    if record.flags() & stack_flags::SHARED == 0 {
        return (stored(segment, record.first_frame, record.depth.into()).unwrap_or_default(), None);
    }
    let outer = stored(segment, record.first_frame, 1).and_then(<[u64]>::first).map(|word| Outer::of_word(*word));
    // Each is of a stack that was there before, so that no stack leads back to itself.
    let outer = outer.filter(|outer| outer.stack < stack);
    let first = record.first_frame.saturating_add(1);
    let inner = outer.and_then(|outer| stored(segment, first, outer.inner.into()));
    (inner.unwrap_or_default(), outer)
}

/// The outermost words that a stack has of its own, where `outer` says where it goes on.
fn tail(segment: &Segment, stack: u32, outer: Outer) -> &[u64] {
    // SAFETY: the stack was interned in this segment, so its record is committed.
    let first = unsafe { (*segment.record::<StackRecord>(Region::Stacks, stack)).first_frame };
    stored(segment, first.saturating_add(1 + u32::from(outer.inner)), outer.tail.into()).unwrap_or_default()
}

/// Where a new stack of `len` words goes on in those that it has in common with one that was there before: in a stack
/// that has the first of them among its inner ones. `None` if they are spread over too many.
fn outer(segment: &Segment, common: Common, len: usize) -> Option<Outer> {
    let Common { mut stack, mut at, mut count, tail } = common;
    let mut first = None;
    let mut runs = 1;
    while runs < RUNS_MAX {
        let (words, next) = inner(segment, stack);
        if at < words.len() {
            first = first.or(Some((stack, at)));
            let here = words.len() - at;
            if here >= count {
                let (stack, from) = first?;
                let inner = (len - common.count - tail) as u16;
                return Some(Outer { inner, tail: tail as u8, stack, from: u8::try_from(from).ok()? });
            }
            (at, count, runs) = (words.len(), count - here, runs + 1);
        }
        let next = next?;
        (stack, at) = (next.stack, at - words.len() + usize::from(next.from));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Identity;

    fn new_table() -> (StackTable, Segment) {
        let segment = Segment::in_memory(Identity { generation: 1, exact: true, forked: false }).expect("has memory");
        let mut table = StackTable::new();
        assert!(table.start(&segment));
        (table, segment)
    }

    /// Numbers as they come by chance.
    struct Chance(u64);

    impl Chance {
        fn below(&mut self, most: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % most
        }
    }

    /// A thread that calls and returns: its stack, outermost frame first.
    struct Program {
        chance: Chance,
        calls: Vec<u64>,
        deepest: usize,
    }

    impl Program {
        /// What it allocates next, of which at most `most` frames are captured.
        fn next(&mut self, most: usize) -> (Vec<u64>, u16) {
            for _ in 0..self.chance.below(8) {
                let returns = self.chance.below(2) == 0 || self.calls.len() >= self.deepest;
                if returns && self.calls.len() > 3 {
                    self.calls.pop();
                } else {
                    self.calls.push(0x40_0000 + self.chance.below(40) * 16);
                }
            }
            let frames: Vec<u64> = self.calls.iter().rev().copied().take(most).collect();
            (frames, if self.calls.len() > most { stack_flags::TRUNCATED } else { 0 })
        }
    }

    /// The stacks of two threads, of which one has a label; each with its shelf.
    fn stacks(seed: u64, count: usize) -> Vec<(usize, Vec<u64>, &'static [u64], u16)> {
        let label: &[u64] = &[0x6c61_6265_6c21, 0x4c61_6265_0000_0006];
        let program = |seed, deepest| Program { chance: Chance(seed), calls: vec![1, 2, 3], deepest };
        let mut programs = [program(seed, 60), program(seed + 1, 160)];
        let mut chance = Chance(seed + 2);
        let all = (0..count).map(|_| {
            let thread = chance.below(2) as usize;
            let (frames, flags) = programs[thread].next(MAX_DEPTH);
            (thread, frames, if chance.below(3) == 0 { label } else { &[] }, flags)
        });
        all.collect()
    }

    fn captured<'a>(frames: &'a [u64], label: &'a [u64], flags: u16) -> CapturedStack<'a> {
        CapturedStack { frames, label, flags, kind: kind::HOST, device: 0, epoch: 0 }
    }

    fn runs(segment: &Segment, stack: u32) -> usize {
        let mut frames = frames(segment, stack);
        let mut runs = 1;
        let mut rest = frames.run.len();
        while frames.left > 0 && frames.next().is_some() {
            if frames.run.len() + 1 != rest {
                runs += 1;
            }
            rest = frames.run.len();
        }
        runs
    }

    #[test]
    fn each_stack_reads_as_it_was_taken_in_a_fraction_of_its_words() {
        for seed in [1, 77, 4_711] {
            let (mut table, segment) = new_table();
            let all = stacks(seed, 8_000);
            let intern = |table: &mut StackTable, (shelf, frames, label, flags): &(usize, Vec<u64>, &[u64], u16)| {
                table.intern(&segment, &captured(frames, label, *flags), || *shelf)
            };
            let ids: Vec<u32> = all.iter().map(|stack| intern(&mut table, stack)).collect();
            for (id, (_, of_stack, label, _)) in ids.iter().zip(&all) {
                let (words, len) = words(&segment, *id);
                assert_eq!(words[..len], [of_stack, *label].concat());
                assert!(runs(&segment, *id) <= RUNS_MAX);
            }
            // Known ones are found again, and nothing is added.
            let (stacks, taken) = (table.stacks, table.frames as usize);
            assert_eq!(all.iter().map(|stack| intern(&mut table, stack)).collect::<Vec<_>>(), ids);
            assert_eq!((table.stacks, table.frames as usize), (stacks, taken));
            let whole: usize = (1..stacks).map(|id| frames(&segment, id).count()).sum();
            assert!(5 * taken < 2 * whole, "{taken} words for {whole}");

            // A forked child has them all, and goes on with its own.
            let (_, child) = new_table();
            assert!(table.copy_to(&segment, &child));
            let (more, flags) = (vec![5; 30], 0);
            let new = table.intern(&child, &captured(&more, &[], flags), || 0);
            assert_eq!(frames(&child, new).collect::<Vec<_>>(), more);
            for id in 1..stacks {
                assert!(frames(&child, id).eq(frames(&segment, id)));
            }
        }
    }

    #[test]
    fn a_file_that_somebody_else_changed_leads_nowhere() {
        let (mut table, segment) = new_table();
        let frames_of: Vec<u64> = (1..40).collect();
        let first = table.intern(&segment, &captured(&frames_of, &[], 0), || 0);
        let second = table.intern(&segment, &captured(&[&[99], &frames_of[1..]].concat(), &[], 0), || 0);
        let word = |to: Outer| {
            // SAFETY: the words of the second stack are committed, and nobody else has the segment.
            unsafe {
                let record = segment.record::<StackRecord>(Region::Stacks, second).read();
                segment.record::<u64>(Region::Frames, record.first_frame).write(to.word());
            }
        };
        assert_eq!(frames(&segment, second).count(), 39);
        for to in [
            Outer { inner: 1, tail: 0, stack: second, from: 0 },
            Outer { inner: 1, tail: 0, stack: u32::MAX, from: 0 },
            Outer { inner: u16::MAX, tail: 0, stack: first, from: 0 },
            Outer { inner: 1, tail: 0, stack: first, from: 39 },
            Outer { inner: 1, tail: u8::MAX, stack: first, from: 0 },
            Outer { inner: 0, tail: 0, stack: UNKNOWN, from: 0 },
        ] {
            word(to);
            assert!(frames(&segment, second).count() <= 39, "{to:?}");
        }
        word(Outer { inner: 1, tail: 0, stack: first, from: 30 });
        assert_eq!(frames(&segment, second).count(), 10);
    }
}
