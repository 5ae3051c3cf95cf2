//! The free tiles of one owner, by size and address.
//!
//! There are eight bins to a power of two, and a bit map of those that hold something. A bin has its least entry in
//! place, and seldom others: in recorded traces nine insertions of ten find their bin empty, so that to insert or remove
//! is to write one place and one bit, and the first entry of the first bin is the best fit. The others are sorted: a few
//! are in a vector, in which to insert is to move a cache line or two, and many in a tree, so that a million free tiles
//! of one size cost the logarithm.
//!
//! The bins are those of M. Masmano, I. Ripoll, A. Crespo and J. Real, "TLSF: a new dynamic memory allocator for
//! real-time systems" (ECRTS 2004), which takes any tile of a bin; here it is the smallest that fits, at the lowest
//! address.

use std::collections::BTreeSet;

/// A tile's place in the table of [tiles](super::super::tiles).
pub type TileId = u32;

/// A free tile: its size, its address and its number.
pub type Entry = (u64, u64, TileId);

/// Sizes below this share the first bins.
const SMALLEST: u64 = 256;
/// Bins for each power of two, as a power of two.
pub(super) const STEPS: u32 = 3;
/// What is larger than 2^48 bytes is in the last bin.
const BINS: usize = ((48 - SMALLEST.trailing_zeros()) << STEPS) as usize;
const WORDS: usize = BINS.div_ceil(64);

/// A vector that grows past this becomes a tree, which becomes a vector again at half of it.
pub(super) const SHORT: usize = 64;

#[inline]
pub(super) fn bin_of(size: u64) -> usize {
    const FIRST: u64 = ((SMALLEST.trailing_zeros() - STEPS + 1) << STEPS) as u64;
    let size = size.max(SMALLEST);
    // The logarithm, in the form that is one instruction.
    let power = size.leading_zeros() ^ 63;
    let shift = power - STEPS;
    // The highest bit is still there, and counts for the power.
    let bin = (u64::from(shift) << STEPS) + (size >> shift) - FIRST;
    (bin as usize).min(BINS - 1)
}

/// Size and address as one number, to be compared without a branch.
#[inline]
fn rank((size, address, _): Entry) -> u128 {
    u128::from(size) << 64 | u128::from(address)
}

/// Whether an entry has room for so many bytes at a multiple of a power of two.
#[inline]
fn fits((have, address, _): Entry, size: u64, align: u64) -> bool {
    (address.wrapping_neg() & (align - 1)) + size <= have
}

/// Where an entry is in sorted ones, or would be.
fn place(entries: &[Entry], entry: Entry) -> usize {
    let wanted = rank(entry);
    entries.partition_point(|known| rank(*known) < wanted)
}

/// Sorted entries.
enum Sorted {
    Short(Vec<Entry>),
    Long(BTreeSet<Entry>),
}

impl Default for Sorted {
    fn default() -> Sorted {
        Sorted::Short(Vec::new())
    }
}

impl Sorted {
    fn is_empty(&self) -> bool {
        matches!(self, Sorted::Short(entries) if entries.is_empty())
    }

    fn insert(&mut self, entry: Entry) {
        match self {
            Sorted::Short(entries) if entries.len() < SHORT => {
                entries.insert(place(entries, entry), entry);
            }
            Sorted::Short(entries) => {
                let mut tree: BTreeSet<_> = entries.drain(..).collect();
                tree.insert(entry);
                *self = Sorted::Long(tree);
            }
            Sorted::Long(tree) => {
                tree.insert(entry);
            }
        }
    }

    fn remove(&mut self, entry: Entry) {
        match self {
            Sorted::Short(entries) => {
                let at = place(entries, entry);
                if entries.get(at) == Some(&entry) {
                    entries.remove(at);
                }
            }
            Sorted::Long(tree) => {
                tree.remove(&entry);
                if tree.len() <= SHORT / 2 {
                    *self = Sorted::Short(tree.iter().copied().collect());
                }
            }
        }
    }

    fn pop_first(&mut self) -> Option<Entry> {
        let first = match self {
            Sorted::Short(entries) => entries.first().copied(),
            Sorted::Long(tree) => tree.first().copied(),
        }?;
        self.remove(first);
        Some(first)
    }

    /// Shows entries until enough: the largest first, and the lowest of one size.
    fn largest_first(&self, mut enough: impl FnMut(Entry) -> bool) -> bool {
        let mut end = (u64::MAX, 0, 0);
        loop {
            let last = match self {
                Sorted::Short(entries) => entries[..place(entries, end)].last(),
                Sorted::Long(tree) => tree.range(..end).next_back(),
            };
            let Some(&(size, ..)) = last else { return false };
            let start = (size, 0, 0);
            let shown = match self {
                Sorted::Short(entries) => {
                    entries[place(entries, start)..place(entries, end)].iter().any(|entry| enough(*entry))
                }
                Sorted::Long(tree) => tree.range(start..end).any(|entry| enough(*entry)),
            };
            if shown {
                return true;
            }
            end = start;
        }
    }

    fn find(&self, size: u64, mut wanted: impl FnMut(Entry) -> bool) -> Option<Entry> {
        match self {
            Sorted::Short(entries) => {
                let from = entries.partition_point(|(have, ..)| *have < size);
                entries.get(from..)?.iter().copied().find(|entry| wanted(*entry))
            }
            Sorted::Long(tree) => tree.range((size, 0, 0)..).copied().find(|entry| wanted(*entry)),
        }
    }
}

/// The free tiles of some sizes.
#[derive(Default)]
struct Bin {
    /// The least one, if the bin is filled.
    first: Entry,
    /// The others, if the bin is crowded. It stays where it is when the last one goes: the next one is not far.
    others: Option<Box<Sorted>>,
}

/// The free tiles of one owner.
///
/// What is seldom needed is behind a call that ends the function, with the parts of an entry as its arguments: so the
/// usual case neither saves registers nor writes the entry to the stack.
pub struct Bins {
    /// Which bins hold something, and which of them more than one entry.
    filled: [u64; WORDS],
    crowded: [u64; WORDS],
    /// The lowest address in each filled bin; in one with a tree it may be a lower one that is gone.
    lowest: [u64; BINS],
    bins: [Bin; BINS],
}

impl Bins {
    pub fn new() -> Box<Bins> {
        let bins = std::array::from_fn(|_| Bin::default());
        Box::new(Bins { filled: [0; WORDS], crowded: [0; WORDS], lowest: [0; BINS], bins })
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.filled.iter().fold(0, |all, word| all | word) == 0
    }

    #[inline]
    pub fn insert(&mut self, entry: Entry) {
        let at = bin_of(entry.0);
        let (word, bit) = (at / 64, 1 << (at % 64));
        if self.filled[word] & bit != 0 {
            return self.insert_beside(at, entry.0, entry.1, entry.2);
        }
        self.bins[at].first = entry;
        self.lowest[at] = entry.1;
        self.filled[word] |= bit;
    }

    #[inline(never)]
    fn insert_beside(&mut self, at: usize, size: u64, address: u64, tile: TileId) {
        let bin = &mut self.bins[at];
        self.lowest[at] = self.lowest[at].min(address);
        let mut greater = (size, address, tile);
        if rank(greater) < rank(bin.first) {
            std::mem::swap(&mut greater, &mut bin.first);
        }
        bin.others.get_or_insert_default().insert(greater);
        self.crowded[at / 64] |= 1 << (at % 64);
    }

    #[inline]
    pub fn remove(&mut self, entry: Entry) {
        let at = bin_of(entry.0);
        let (word, bit) = (at / 64, 1 << (at % 64));
        if self.crowded[word] & bit != 0 {
            return self.remove_beside(at, entry.0, entry.1, entry.2);
        }
        debug_assert!(self.filled[word] & bit != 0 && self.bins[at].first == entry);
        self.filled[word] &= !bit;
    }

    #[inline(never)]
    fn remove_beside(&mut self, at: usize, size: u64, address: u64, tile: TileId) {
        let Bin { first, others: Some(others) } = &mut self.bins[at] else { return };
        let entry = (size, address, tile);
        let was_long = matches!(**others, Sorted::Long(_));
        if *first == entry {
            *first = others.pop_first().unwrap_or(*first);
        } else {
            others.remove(entry);
        }
        if (was_long || self.lowest[at] == address)
            && let Sorted::Short(entries) = &**others
        {
            self.lowest[at] = entries.iter().fold(first.1, |lowest, entry| lowest.min(entry.1));
        }
        if others.is_empty() {
            self.crowded[at / 64] &= !(1 << (at % 64));
        }
    }

    /// The first bin from this one on that holds something.
    #[inline]
    fn next_filled(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut bits = self.filled.get(word)? & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            bits = *self.filled.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    /// The least entry that has so many bytes from a multiple of a power of two on.
    #[inline]
    pub fn best_fit(&self, size: u64, align: u64) -> Option<TileId> {
        let first = self.bins[self.next_filled(bin_of(size))?].first;
        if fits(first, size, align) { Some(first.2) } else { self.least_fit(size, align).map(|(.., tile)| tile) }
    }

    /// The entry at the lowest address that has so many bytes from a multiple of a power of two on. Of a bin with a
    /// tree it knows the first one by size, and of one whose lowest entry is not aligned none: the best fit serves
    /// then.
    #[inline]
    pub fn first_fit(&self, size: u64, align: u64) -> Option<Entry> {
        let own = bin_of(size);
        let found = self.lowest_in(own, size, align);
        let mut least = found.map_or(u64::MAX, |(_, address, _)| address);
        let mut lowest = BINS;
        // Those of the first word that are longer than `size` in any case.
        let mut wanted = (u64::MAX - 1) << (own % 64);
        for (word, filled) in self.filled.iter().enumerate().skip(own / 64) {
            let mut bits = filled & wanted;
            wanted = u64::MAX;
            while bits != 0 {
                let at = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if self.lowest[at] < least {
                    (least, lowest) = (self.lowest[at], at);
                }
            }
        }
        let found = if lowest < BINS { self.entry_at(lowest, least) } else { found };
        found.filter(|entry| fits(*entry, size, align)).or_else(|| self.least_fit(size, align))
    }

    #[inline(never)]
    fn least_fit(&self, size: u64, align: u64) -> Option<Entry> {
        self.find(size, |entry| fits(entry, size, align))
    }

    /// The lowest entry of a bin that fits, of those that may be too short.
    #[inline]
    fn lowest_in(&self, at: usize, size: u64, align: u64) -> Option<Entry> {
        let (word, bit) = (at / 64, 1 << (at % 64));
        if self.filled[word] & bit == 0 {
            return None;
        }
        let first = Some(self.bins[at].first).filter(|entry| fits(*entry, size, align));
        if self.crowded[word] & bit == 0 { first } else { self.lowest_beside(first, at, size, align) }
    }

    #[inline(never)]
    fn lowest_beside(&self, first: Option<Entry>, at: usize, size: u64, align: u64) -> Option<Entry> {
        let other = match self.bins[at].others.as_deref() {
            Some(Sorted::Short(entries)) => {
                let fit = entries.iter().filter(|entry| fits(**entry, size, align));
                fit.min_by_key(|(_, address, _)| *address).copied()
            }
            Some(long) => long.find(size, |entry| fits(entry, size, align)),
            None => None,
        };
        first.into_iter().chain(other).min_by_key(|(_, address, _)| *address)
    }

    /// The entry of a bin at an address; in a bin with a tree, the first one if it is not that.
    #[inline]
    fn entry_at(&self, at: usize, address: u64) -> Option<Entry> {
        let first = self.bins[at].first;
        if first.1 == address { Some(first) } else { self.entry_beside(at, address) }
    }

    #[inline(never)]
    fn entry_beside(&self, at: usize, address: u64) -> Option<Entry> {
        let Bin { first, others } = &self.bins[at];
        match others.as_deref() {
            Some(Sorted::Short(entries)) => entries.iter().copied().find(|entry| entry.1 == address),
            _ => Some(*first),
        }
    }

    /// Shows entries of at least so many bytes until enough: the largest first, and the lowest of one size.
    pub fn largest_first(&self, least: u64, mut enough: impl FnMut(Entry) -> bool) {
        let filled = |at: &usize| self.filled[at / 64] & 1 << (at % 64) != 0;
        for at in (bin_of(least)..BINS).rev().filter(filled) {
            let Bin { first, others } = &self.bins[at];
            let mut is_next = true;
            let mut show = |entry: Entry| {
                // The first one is the lowest of the least size.
                let first_now = is_next && entry.0 == first.0;
                is_next &= !first_now;
                entry.0 >= least && ((first_now && enough(*first)) || enough(entry))
            };
            if others.as_ref().is_some_and(|others| others.largest_first(&mut show)) {
                return;
            }
            if is_next && first.0 >= least && enough(*first) {
                return;
            }
        }
    }

    pub fn find(&self, size: u64, mut wanted: impl FnMut(Entry) -> bool) -> Option<Entry> {
        let mut next = self.next_filled(bin_of(size));
        while let Some(at) = next {
            let first = self.bins[at].first;
            if first.0 >= size && wanted(first) {
                return Some(first);
            }
            if self.crowded[at / 64] & 1 << (at % 64) != 0
                && let Some(others) = &self.bins[at].others
                && let Some(entry) = others.find(size, &mut wanted)
            {
                return Some(entry);
            }
            next = self.next_filled(at + 1);
        }
        None
    }
}
