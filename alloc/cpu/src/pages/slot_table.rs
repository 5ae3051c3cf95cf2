//! Records of 64 bytes in slots with numbers, in memory of their own, of which goes back what nobody needs any more.
//!
//! A new record takes the lowest free slot, so that a table that was large once empties from its end. Which slots are
//! taken is said by a tree of words: at the bottom a bit for each slot, above that a bit for each word that is full. A
//! free slot holds nothing, not even a link to the next one: so the memory of a page of 64 free slots can go back to
//! the system, as that of free spans does, by a smooth decay ([`crate::pages::decay`]). Such a page reads as zero,
//! and may be read at any time.

use core::ptr::null_mut;

use crate::kernel::os;
use crate::pages::decay::Decay;
use crate::segment::counters::{self, TierCounter};

/// Bytes of a record.
pub const RECORD: usize = 64;
/// Slots of a page of memory, and bits of a word.
pub const PAGE_SLOTS: u32 = 64;
const PAGE: usize = RECORD * PAGE_SLOTS as usize;

/// Levels of the tree, for 2^30 slots.
const LEVELS: usize = 5;
/// Slots whose memory is made usable at first; it doubles with each time.
const FIRST: u32 = 256;
/// Pages of one run that goes back.
const RUN: u32 = 256;

/// The table.
pub struct SlotTable {
    records: *mut u8,
    /// Slots that there are addresses for.
    capacity: u32,
    /// Slots whose memory is usable: a multiple of a page's.
    usable: u32,
    /// Slots below this were taken at some time.
    high: u32,
    /// The tree, bottom first.
    levels: [*mut u64; LEVELS],
    depth: usize,
    /// No slot of the pages before this one is free.
    low: u32,
    /// A bit for each page that may have memory behind it.
    present: *mut u64,
    /// Pages before this one were present at some time.
    seen: u32,
    /// Pages that are present, and of which no slot is taken.
    empty: u32,
    /// What belongs to the pages elsewhere can't go back, so nothing does.
    stuck: bool,
    decay: Decay,
}

/// Words of a bit each for `n` things.
fn words(n: usize) -> usize {
    n.div_ceil(PAGE_SLOTS as usize)
}

impl SlotTable {
    /// Before [`SlotTable::start`].
    pub const fn new() -> Self {
        SlotTable {
            records: null_mut(),
            capacity: 0,
            usable: 0,
            high: 0,
            levels: [null_mut(); LEVELS],
            depth: 0,
            low: 0,
            present: null_mut(),
            seen: 0,
            empty: 0,
            stuck: false,
            decay: Decay::new(),
        }
    }

    /// Reserves addresses for `capacity` slots, a multiple of a page's and at most 2^30. False without address space.
    pub fn start(&mut self, capacity: u32) -> bool {
        let pages = words(capacity as usize);
        let mut above = [0; LEVELS];
        let mut depth = 1;
        above[0] = pages;
        while above[depth - 1] > 1 && depth < LEVELS {
            above[depth] = words(above[depth - 1]);
            depth += 1;
        }
        // What is above the bottom is small, and usable from the start.
        let small = (words(pages) + above[1..].iter().sum::<usize>()) * size_of::<u64>();
        let small = small.next_multiple_of(4096);
        let tree = os::reserve(small + pages * size_of::<u64>());
        if tree.is_null() {
            return false;
        }
        let records = os::reserve(capacity as usize * RECORD);
        // SAFETY: the range was just reserved.
        if records.is_null() || !unsafe { os::commit(tree, small) } {
            // SAFETY: as above; nobody knows of it.
            unsafe { os::unmap(tree, small + pages * size_of::<u64>()) };
            return false;
        }
        counters::add(TierCounter::MetadataBytes, small as u64);
        self.present = tree.cast();
        // SAFETY: the parts follow each other in the reserved range.
        unsafe {
            let mut at = self.present.add(words(pages));
            for (level, words) in self.levels.iter_mut().zip(above).skip(1) {
                *level = at;
                at = at.add(words);
            }
            self.levels[0] = tree.add(small).cast();
        }
        (self.records, self.capacity, self.depth) = (records, capacity, depth);
        true
    }

    /// Gives back the addresses of all slots from `capacity` on, as far as their memory is not usable yet.
    pub fn fit(&mut self, capacity: u32) {
        let keep = capacity.next_multiple_of(PAGE_SLOTS).max(self.usable);
        if keep >= self.capacity {
            return;
        }
        let bottom = |slots: u32| (words(slots as usize) * size_of::<u64>()).next_multiple_of(4096);
        // SAFETY: nothing behind the usable slots is in use.
        unsafe {
            os::unmap(self.records.add(keep as usize * RECORD), (self.capacity - keep) as usize * RECORD);
            let (kept, all) = (bottom(keep), bottom(self.capacity));
            if kept < all {
                os::unmap(self.levels[0].cast::<u8>().add(kept), all - kept);
            }
        }
        self.capacity = keep;
    }

    /// Where the records lie: the first address and the one behind the last.
    pub fn addresses(&self) -> (usize, usize) {
        (self.records as usize, self.records as usize + self.capacity as usize * RECORD)
    }

    /// Slots that were ever taken are below this.
    pub fn high(&self) -> u32 {
        self.high
    }

    /// Slots whose memory is usable.
    pub fn usable(&self) -> u32 {
        self.usable
    }

    /// Pages that were ever present are below this.
    pub fn seen(&self) -> u32 {
        self.seen
    }

    /// Where a slot's record lies. It can be read if the slot is below [`SlotTable::usable`].
    #[inline]
    pub fn place<T>(&self, slot: u32) -> *mut T {
        const { assert!(size_of::<T>() == RECORD) };
        self.records.wrapping_add(slot as usize * RECORD).cast()
    }

    /// The word of a page: a bit for each slot that is taken.
    #[inline(always)]
    fn word(&mut self, page: u32) -> &mut u64 {
        // SAFETY: there is a word for each usable page.
        unsafe { &mut *self.levels[0].add(page as usize) }
    }

    /// The lowest free slot; `None` if all are taken. It need not be usable yet.
    #[inline]
    pub fn lowest(&mut self) -> Option<u32> {
        if self.low < self.usable / PAGE_SLOTS {
            let word = *self.word(self.low);
            if word != u64::MAX {
                return Some(self.low * PAGE_SLOTS + word.trailing_ones());
            }
        }
        self.search()
    }

    #[cold]
    #[inline(never)]
    fn search(&mut self) -> Option<u32> {
        let (mut index, mut lowest) = (0, self.usable);
        for level in (0..self.depth).rev() {
            // What lies behind the usable slots is free, and not to be read.
            if index << (6 * (level + 1)) >= self.usable as usize {
                break;
            }
            // SAFETY: the word is of a usable slot.
            let word = unsafe { *self.levels[level].add(index) };
            index = index * 64 + word.trailing_ones() as usize;
            if level == 0 {
                lowest = index as u32;
            }
        }
        self.low = lowest / PAGE_SLOTS;
        Some(lowest).filter(|slot| *slot < self.capacity)
    }

    /// Notes above the bottom that a page has become full, or is so no more.
    #[cold]
    #[inline(never)]
    fn pass_on(&mut self, page: u32, is_full: bool) {
        let mut index = page as usize;
        for level in 1..self.depth {
            // SAFETY: there is a bit for each word of a usable slot.
            let word = unsafe { &mut *self.levels[level].add(index / 64) };
            let (before, bit) = (*word, 1 << (index % 64));
            *word = if is_full { before | bit } else { before & !bit };
            let goes_on = if is_full { *word } else { before } == u64::MAX;
            if !goes_on {
                break;
            }
            index /= 64;
        }
    }

    /// Makes more slots usable. False without memory, or when there are no more.
    pub fn grow(&mut self) -> bool {
        let wanted = (self.usable * 2).max(FIRST).min(self.capacity);
        if wanted == self.usable {
            return false;
        }
        let bottom = |slots: u32| (words(slots as usize) * size_of::<u64>()).next_multiple_of(4096);
        let (before, after) = (bottom(self.usable), bottom(wanted));
        // SAFETY: the ranges were reserved for this.
        let done = unsafe {
            (before == after || os::commit(self.levels[0].cast(), after))
                && os::commit(self.records, wanted as usize * RECORD)
        };
        if done {
            counters::add(TierCounter::MetadataBytes, (after - before) as u64);
            self.usable = wanted;
        }
        done
    }

    /// Takes a free slot, which is usable. Its record is the caller's to write.
    #[inline]
    pub fn take(&mut self, slot: u32) {
        debug_assert!(slot < self.usable);
        self.high = self.high.max(slot + 1);
        let page = slot / PAGE_SLOTS;
        let word = self.word(page);
        let before = *word;
        let after = before | 1 << (slot % PAGE_SLOTS);
        *word = after;
        if before == 0 && self.is_present(page) {
            self.empty -= 1;
        }
        if after == u64::MAX {
            self.pass_on(page, true);
        }
    }

    /// Gives a slot back. Its record is nobody's from here on.
    #[inline]
    pub fn give(&mut self, slot: u32) {
        let page = slot / PAGE_SLOTS;
        self.low = self.low.min(page);
        let word = self.word(page);
        let before = *word;
        let after = before & !(1 << (slot % PAGE_SLOTS));
        *word = after;
        if after == 0 && before != 0 && self.is_present(page) {
            self.empty += 1;
        }
        if before == u64::MAX {
            self.pass_on(page, false);
        }
    }

    /// Whether a page may have memory behind it.
    #[inline]
    pub fn is_present(&self, page: u32) -> bool {
        // SAFETY: there is a bit for each page that there are addresses for.
        page < self.seen && unsafe { *self.present.add(page as usize / 64) } >> (page % 64) & 1 != 0
    }

    /// Notes that the pages before `pages`, which are usable,
    /// have memory behind them or may come to it by being touched.
    pub fn see(&mut self, pages: u32) {
        let first = self.seen;
        self.seen = first.max(pages);
        for page in first..pages {
            self.make_present(page);
        }
    }

    /// Begins anew with what is present: the pages before `pages` are, and no others.
    pub fn see_only(&mut self, pages: u32) {
        for word in 0..words(self.seen as usize) {
            // SAFETY: there is a bit for each page that was seen.
            let pages = unsafe { self.present.add(word).replace(0) }.count_ones();
            counters::sub(TierCounter::MetadataBytes, u64::from(pages) * PAGE as u64);
        }
        (self.seen, self.empty, self.stuck) = (0, 0, false);
        self.see(pages);
    }

    /// Absent pages from `page` on, one after the other, at most `most`.
    pub fn absent_from(&self, page: u32, most: u32) -> u32 {
        let end = self.seen.min(page + most);
        (page..end).take_while(|page| !self.is_present(*page)).count() as u32
    }

    /// Notes that absent pages may be touched again.
    pub fn restore(&mut self, page: u32, pages: u32) {
        for page in page..page + pages {
            self.make_present(page);
        }
    }

    fn make_present(&mut self, page: u32) {
        // SAFETY: there is a bit for each page that there are addresses for.
        unsafe { *self.present.add(page as usize / 64) |= 1 << (page % 64) };
        if self.is_free(page) {
            self.empty += 1;
        }
        counters::add(TierCounter::MetadataBytes, PAGE as u64);
    }

    /// Whether no slot of a page is taken.
    fn is_free(&self, page: u32) -> bool {
        // SAFETY: pages that were seen are usable.
        unsafe { *self.levels[0].add(page as usize) == 0 }
    }

    /// Bytes of pages that nobody needs, and that can go back.
    pub fn empty_bytes(&self) -> usize {
        if self.stuck { 0 } else { self.empty as usize * PAGE }
    }

    /// Of these, how many may stay for now: fewer as time goes by.
    pub fn allowed(&mut self, now_ms: u64, delay_ms: u64) -> usize {
        let empty = self.empty_bytes();
        if empty == 0 { 0 } else { self.decay.allowed(now_ms, delay_ms, empty) }
    }

    /// Gives the memory of pages back that nobody needs, from the end on, until no more than `allowed` bytes are left,
    /// or one run has gone. `also` is told the run's first slot and how many it has, and gives back what belongs to
    /// them elsewhere; where it can't, all stays. Whether there is more to do.
    pub fn release(&mut self, allowed: usize, also: impl FnOnce(u32, u32) -> bool) -> bool {
        let most = self.empty_bytes().saturating_sub(allowed).div_ceil(PAGE) as u32;
        if most == 0 {
            return false;
        }
        let Some((first, pages)) = self.last_empty(most.min(RUN)) else { return false };
        if !also(first * PAGE_SLOTS, pages * PAGE_SLOTS) {
            self.stuck = true;
            return false;
        }
        for page in first..first + pages {
            // SAFETY: as in `is_present`.
            unsafe { *self.present.add(page as usize / 64) &= !(1 << (page % 64)) };
        }
        self.empty -= pages;
        let bytes = pages as usize * PAGE;
        counters::add(TierCounter::SystemCalls, 1);
        counters::sub(TierCounter::MetadataBytes, bytes as u64);
        // SAFETY: the pages are this table's, and their slots are free. Were the kernel to refuse,
        // they would only stay.
        let _ = unsafe { os::decommit(self.records.add(first as usize * PAGE), bytes) };
        pages < most
    }

    /// The last run of pages that are present and free, at most `most` of them: its first page, and how many.
    fn last_empty(&self, most: u32) -> Option<(u32, u32)> {
        let mut end = None;
        let mut page = self.seen;
        while page > 0 {
            page -= 1;
            // SAFETY: as in `is_present`.
            let absent = unsafe { *self.present.add(page as usize / 64) } == 0;
            if !absent && self.is_present(page) && self.is_free(page) {
                let end = *end.get_or_insert(page + 1);
                if end - page == most {
                    return Some((page, most));
                }
                continue;
            }
            if let Some(end) = end {
                return Some((page + 1, end - page - 1));
            }
            if absent {
                page -= page % 64;
            }
        }
        end.map(|end| (0, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::budget::random;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    fn table(capacity: u32) -> SlotTable {
        let mut table = SlotTable::new();
        assert!(table.start(capacity));
        table
    }

    /// Takes the lowest slot and writes its number there.
    fn insert(table: &mut SlotTable) -> Option<u32> {
        let slot = table.lowest()?;
        if slot >= table.usable() {
            assert!(table.grow());
            table.see(table.usable() / PAGE_SLOTS);
        }
        if !table.is_present(slot / PAGE_SLOTS) {
            table.restore(slot / PAGE_SLOTS, 1);
        }
        table.take(slot);
        // SAFETY: the slot is usable and just taken.
        unsafe { table.place::<[u64; 8]>(slot).write([u64::from(slot); 8]) };
        Some(slot)
    }

    #[test]
    fn the_lowest_free_slot_is_taken_whatever_came_and_went() {
        for capacity in [64, 4096, 64 * 64 * 3, 64 * 64 * 64 + 64] {
            let mut table = table(capacity);
            let (mut taken, mut state) = (BTreeSet::new(), 42 + u64::from(capacity));
            let mut free: BTreeSet<u32> = (0..capacity).collect();
            for round in 0..60_000u32 {
                let grows = (round / 8000).is_multiple_of(2);
                if random(&mut state) % 4 < if grows { 3 } else { 1 } {
                    let lowest = free.pop_first();
                    assert_eq!(insert(&mut table), lowest);
                    taken.extend(lowest);
                } else if let Some(&slot) = taken.range(random(&mut state) as u32 % (taken.len() as u32 + 64)..).next()
                {
                    // SAFETY: the slot is taken, so its record is there.
                    assert_eq!(unsafe { table.place::<[u64; 8]>(slot).read() }, [u64::from(slot); 8]);
                    table.give(slot);
                    taken.remove(&slot);
                    free.insert(slot);
                }
                if random(&mut state).is_multiple_of(512) {
                    while table.release(0, |_, _| true) {}
                    assert_eq!(table.empty_bytes(), 0);
                }
            }
            let pages: BTreeSet<u32> = taken.iter().map(|slot| slot / PAGE_SLOTS).collect();
            let present = (0..table.seen()).filter(|page| table.is_present(*page)).count();
            assert_eq!(present * PAGE - table.empty_bytes(), pages.len() * PAGE);
        }
    }

    #[test]
    fn pages_without_a_record_go_back_and_read_as_nothing() {
        let mut table = table(1 << 16);
        let slots: Vec<u32> = (0..1 << 16).map(|_| insert(&mut table).unwrap()).collect();
        assert_eq!(insert(&mut table), None, "it is full");
        // One record of each hundredth page stays.
        let stays = |slot: &u32| slot % (100 * PAGE_SLOTS) == 7;
        slots.iter().filter(|slot| !stays(slot)).for_each(|slot| table.give(*slot));
        let mut released = BTreeSet::new();
        while table.release(0, |first, slots| {
            released.extend(first..first + slots);
            true
        }) {}
        assert_eq!(table.empty_bytes(), 0);
        for slot in slots {
            // SAFETY: usable slots can be read, whether they are taken or not.
            let record = unsafe { table.place::<[u64; 8]>(slot).read() };
            let gone = released.contains(&slot);
            assert_eq!(gone, !(slot / PAGE_SLOTS).is_multiple_of(100));
            assert_eq!(record, if gone { [0; 8] } else { [u64::from(slot); 8] });
        }
        assert_eq!(insert(&mut table), Some(0));
    }

    #[test]
    fn empty_pages_stay_for_a_while_and_go_from_the_end() {
        let mut table = table(1 << 16);
        (0..1 << 16).for_each(|_| assert!(insert(&mut table).is_some()));
        (0..1 << 16).for_each(|slot| table.give(slot));
        assert_eq!(table.empty_bytes(), 4 << 20);
        for step in 0..30 {
            let allowed = table.allowed(1000 + step * 200, 10_000);
            while table.release(allowed, |_, _| true) {}
            assert!(table.empty_bytes() <= allowed && table.empty_bytes() + PAGE > allowed);
        }
        assert!((1 << 20..2 << 20).contains(&table.empty_bytes()) && table.is_present(0));
        assert!(!table.is_present(table.seen() - 1));
        assert_eq!(table.allowed(60_000, 10_000), 0);
    }

    #[test]
    fn nothing_goes_where_what_belongs_to_it_has_to_stay() {
        let mut table = table(1 << 10);
        (0..1 << 10).for_each(|_| assert!(insert(&mut table).is_some()));
        (0..1 << 10).for_each(|slot| table.give(slot));
        assert!(!table.release(0, |_, _| false));
        assert!(table.is_present(15) && table.empty_bytes() == 0);
        table.see_only(16);
        assert_eq!(table.empty_bytes(), 64 << 10);
    }

    #[test]
    fn addresses_of_unused_slots_go_back() {
        let mut table = table(1 << 20);
        assert_eq!(insert(&mut table), Some(0));
        table.fit(4096);
        (1..4096).for_each(|slot| assert_eq!(insert(&mut table), Some(slot)));
        assert_eq!(insert(&mut table), None);
    }
}
