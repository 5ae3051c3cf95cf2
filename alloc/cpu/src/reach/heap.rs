//! The pool's blocks, as the mark sees them: from an address to a record by the page's descriptor.

use core::sync::atomic::Ordering;

use super::device_library;
use super::interned;
use super::maps::Mapping;
use super::mark::{Blocks, Hit};
use super::roots::{self, Range};
use super::table::Table;
use crate::layout::arena;
use crate::layout::block::BlockPtr;
use crate::layout::slab::{Kind, NO_SLOT, Slab, owner};
use crate::sampler::search::{Recorded, Records};
use crate::script::python;

/// A large block, of which only the first page's descriptor says anything.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Large {
    start: usize,
    end: usize,
    number: u32,
}

/// What a block's first page is said to hold; `None` where it is no page of the pool's.
fn page_owner(block: Recorded) -> Option<usize> {
    Some(arena::page_of(block.address as *mut u8)?.owner.load(Ordering::Relaxed))
}

/// Whether a block's record is one that its thread has not noted in the block's descriptor yet.
fn is_in_flight(number: u32, block: Recorded) -> bool {
    match arena::page_of(block.address as *mut u8) {
        Some(page) if page.owner.load(Ordering::Relaxed) == owner::LARGE => page.live_slot() != number,
        Some(page) => page.owner.load(Ordering::Relaxed) != owner::SAMPLED,
        None => true,
    }
}

/// How many large blocks there are at most.
fn large_spans() -> usize {
    let mut spans = 0;
    arena::for_each_used(|used| {
        let is_large = |page: &usize| used.descriptor(*page).owner.load(Ordering::Relaxed) == owner::LARGE;
        spans += (used.first..used.end).filter(is_large).count();
    });
    spans
}

/// The recorded blocks.
pub struct Heap<'a> {
    records: &'a Records,
    /// Ascending.
    large: Table<Large>,
    /// Memory of arenas that can be read, ascending. A program may close pages of its own blocks.
    readable: Table<Range>,
    /// All arenas lie between these.
    bounds: Range,
    /// Numbers of records whose block is no leak, or that are in flight ([`is_in_flight`]).
    remarkable: Table<u32>,
    /// Blocks of devices' memory, ascending; none where the pools' own words can't be told from the program's.
    of_devices: Table<Large>,
    /// Where the library of these pools lies.
    library: Range,
}

impl<'a> Heap<'a> {
    /// The blocks of `records`. `None` without memory.
    pub fn new(records: &'a Records, mappings: &[Mapping]) -> Option<Self> {
        let mut bounds = (usize::MAX, 0);
        arena::for_each(|from, to| bounds = (bounds.0.min(from), bounds.1.max(to)));
        let mut readable: Table<Range> = Table::new(mappings.len())?;
        for mapping in mappings.iter().filter(|mapping| mapping.readable) {
            if mapping.end <= bounds.0 || mapping.start >= bounds.1 {
                continue;
            }
            match readable.as_mut_slice().last_mut() {
                Some(last) if last.1 == mapping.start => last.1 = mapping.end,
                _ => _ = readable.push((mapping.start, mapping.end)),
            }
        }
        let mut large = Table::new(large_spans())?;
        let mut remarkable = Table::new(records.len() as usize)?;
        // There may be millions: they are gone through once.
        for number in 0..records.len() {
            let mut is_remarkable = records.is_ignored(number);
            if let Some(block) = records.get(number) {
                is_remarkable |= is_in_flight(number, block);
                if page_owner(block) == Some(owner::LARGE) {
                    large.push(Large { start: block.address, end: block.address + block.size.max(1), number });
                }
            }
            if is_remarkable {
                remarkable.push(number);
            }
        }
        large.as_mut_slice().sort_unstable();
        let library = device_library::range(mappings);
        let devices = || (0..records.len()).filter_map(|number| Some((number, records.get_of_device(number)?.0)));
        let is_followed = library.is_some();
        let mut of_devices = Table::new(if is_followed { devices().count() } else { 0 })?;
        for (number, block) in devices().filter(|_| is_followed) {
            of_devices.push(Large { start: block.address, end: block.address + block.size.max(1), number });
        }
        of_devices.as_mut_slice().sort_unstable();
        Some(Heap { records, large, remarkable, readable, bounds, of_devices, library: library.unwrap_or_default() })
    }

    fn find_of_device(&self, address: usize) -> Option<Hit> {
        let blocks = self.of_devices.as_slice();
        let behind = blocks.partition_point(|block| block.start <= address);
        let block = blocks[..behind].last().filter(|block| address < block.end)?;
        Some(Hit { block: block.number, at_start: address == block.start, of_device: true })
    }

    /// Where its own memory lies, which is no root.
    pub fn own_memory(&self) -> [Range; 4] {
        let (large, remarkable) = (self.large.addresses(), self.remarkable.addresses());
        [large, remarkable, self.readable.addresses(), self.of_devices.addresses()]
    }

    /// The block that an address lies in, and its end.
    pub fn around(&self, address: usize) -> Option<(u32, usize)> {
        let hit = self.find(address)?;
        let block = self.records.get(hit.block)?;
        Some((hit.block, block.address + block.size))
    }

    /// Calls `f` with the numbers of blocks that the program has said are no leaks.
    pub fn ignored(&self, f: impl FnMut(u32)) {
        let numbers = self.remarkable.as_slice().iter().copied();
        numbers.filter(|&number| self.records.is_ignored(number)).for_each(f);
    }

    /// Calls `f` with the numbers of records that their threads have not noted in the blocks' descriptors yet.
    pub fn in_flight(&self, f: impl FnMut(u32)) {
        let is_one = |number: &u32| self.records.get(*number).is_some_and(|block| is_in_flight(*number, block));
        self.remarkable.as_slice().iter().copied().filter(is_one).for_each(f);
    }

    /// Calls `f` with each word of the blocks that are not recorded, and where it lies: what the pool allocates by
    /// itself while it records.
    pub fn unrecorded_words(&self, mut f: impl FnMut(usize, usize)) {
        arena::for_each_used(|used| {
            let mut page = used.first;
            while page < used.end {
                let (slab, from) = (used.descriptor(page), used.address(page));
                let tag = slab.owner.load(Ordering::Acquire);
                let seen = slab.look().filter(|seen| seen.kind != Kind::Interior as u8);
                match (tag, seen) {
                    (owner::LARGE, _) if slab.live_slot() == NO_SLOT => {
                        self.words_between(from, from + slab.aux.get(), &mut f);
                    }
                    (owner::NONE | owner::SAMPLED | owner::LARGE, _) | (_, None) => {}
                    (_, Some(seen)) => {
                        self.words_between(from, from + seen.cut_bytes(), &mut f);
                    }
                }
                page += 1;
            }
        });
    }

    /// Passes on the words of what can be read between two addresses, and where each lies.
    pub fn words_between(&self, mut from: usize, to: usize, f: &mut impl FnMut(usize, usize)) {
        let ranges = self.readable.as_slice();
        let first = ranges.partition_point(|range| range.1 <= from);
        for range in &ranges[first..] {
            if range.0 >= to {
                break;
            }
            from = from.max(range.0);
            roots::words(from, to.min(range.1), f);
        }
    }

    #[inline]
    fn in_slab(&self, page: &'static Slab, address: usize) -> Option<u32> {
        let slab = page.head();
        let (base, size) = (slab.address() as usize, slab.class.get().block());
        let index = (address - base) / size;
        if index >= usize::from(slab.carved.get()) {
            return None;
        }
        self.records.of_slab(slab, base + index * size)
    }
}

impl Blocks for Heap<'_> {
    fn len(&self) -> u32 {
        self.records.len()
    }

    fn has(&self, number: u32) -> bool {
        self.records.get(number).is_some()
            || (!self.of_devices.as_slice().is_empty() && self.records.get_of_device(number).is_some())
    }

    fn is_of_device_pool(&self, number: u32) -> bool {
        self.records.frames(number).any(|frame| self.is_in_device_library(frame as usize))
    }

    fn is_in_device_library(&self, place: usize) -> bool {
        (self.library.0..self.library.1).contains(&place)
    }

    #[inline]
    fn find(&self, address: usize) -> Option<Hit> {
        if address.wrapping_sub(self.bounds.0) >= self.bounds.1.wrapping_sub(self.bounds.0) {
            return self.find_of_device(address);
        }
        let Some(page) = arena::page_of(address as *mut u8) else { return self.find_of_device(address) };
        let number = match page.owner.load(Ordering::Relaxed) {
            owner::SAMPLED => self.in_slab(page, address)?,
            _ => {
                let large = self.large.as_slice();
                let behind = large.partition_point(|block| block.start <= address);
                large[..behind].last().filter(|block| address < block.end)?.number
            }
        };
        let block = self.records.get(number)?;
        let offset = address.wrapping_sub(block.address);
        (offset < block.size.max(1)).then_some(Hit { block: number, at_start: offset == 0, of_device: false })
    }

    fn is_interned(&self, number: u32) -> bool {
        let Some((strings, block)) = python::string_type().zip(self.records.get(number)) else { return false };
        let mut words = [0; interned::WORDS];
        let end = block.address + size_of_val(&words).min(block.size);
        self.words_between(block.address, end, &mut |place, word| {
            if let Some(to) = words.get_mut((place - block.address) / size_of::<usize>()) {
                *to = word;
            }
        });
        interned::is_immortal(words, strings)
    }

    #[inline]
    fn fetch_record(&self, number: u32) {
        self.records.fetch(number);
    }

    #[inline]
    fn fetch_words(&self, number: u32) {
        if let Some(block) = self.records.get(number) {
            BlockPtr::new(block.address as *mut u8).prefetch();
        }
    }

    fn words(&self, number: u32, mut f: impl FnMut(usize, usize)) {
        if let Some(block) = self.records.get(number) {
            self.words_between(block.address, block.address + block.size, &mut f);
        } else if let Some((block, true)) = self.records.get_of_device(number) {
            // Pinned memory is the host's, unless the device is a simulated one.
            roots::careful_words(block.address, block.address + block.size, &mut f);
        }
    }
}
