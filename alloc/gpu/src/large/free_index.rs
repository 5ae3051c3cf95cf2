//! The index of free tiles: who may take them, then size, then address.
//!
//! Each owner has bins of sizes, eight to a power of two, and a bit map of those that hold something. A bin has its
//! least entry in place, and seldom others: in recorded traces nine insertions of ten find their bin empty, so that to
//! insert or remove is to write one place and one bit, and the first entry of the first bin is the best fit. The others
//! are sorted: a few are in a vector, in which to insert is to move a cache line or two, and many in a tree, so that a
//! million free tiles of one size cost the logarithm.
//!
//! The bins are those of M. Masmano, I. Ripoll, A. Crespo and J. Real, "TLSF: a new dynamic memory allocator for
//! real-time systems" (ECRTS 2004), which takes any tile of a bin; here it is the smallest that fits,
//! at the lowest address.

use std::collections::BTreeSet;

use super::owner::{CHUNKS, Owner};

/// A tile's place in the table of [tiles](super::tiles).
pub type TileId = u32;

/// A free tile: its size, its address and its number.
pub type Entry = (u64, u64, TileId);

/// Sizes below this share the first bins.
const SMALLEST: u64 = 256;
/// Bins for each power of two, as a power of two.
const STEPS: u32 = 3;
/// What is larger than 2^48 bytes is in the last bin.
const BINS: usize = ((48 - SMALLEST.trailing_zeros()) << STEPS) as usize;
const WORDS: usize = BINS.div_ceil(64);

/// A vector that grows past this becomes a tree, which becomes a vector again at half of it.
const SHORT: usize = 64;

#[inline]
fn bin_of(size: u64) -> usize {
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
struct Bins {
    /// Which bins hold something, and which of them more than one entry.
    filled: [u64; WORDS],
    crowded: [u64; WORDS],
    /// The lowest address in each filled bin; in one with a tree it may be a lower one that is gone.
    lowest: [u64; BINS],
    bins: [Bin; BINS],
}

impl Bins {
    fn new() -> Box<Bins> {
        let bins = std::array::from_fn(|_| Bin::default());
        Box::new(Bins { filled: [0; WORDS], crowded: [0; WORDS], lowest: [0; BINS], bins })
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.filled.iter().fold(0, |all, word| all | word) == 0
    }

    #[inline]
    fn insert(&mut self, entry: Entry) {
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
    fn remove(&mut self, entry: Entry) {
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
    fn best_fit(&self, size: u64, align: u64) -> Option<TileId> {
        let first = self.bins[self.next_filled(bin_of(size))?].first;
        if fits(first, size, align) { Some(first.2) } else { self.least_fit(size, align).map(|(.., tile)| tile) }
    }

    /// The entry at the lowest address that has so many bytes from a multiple of a power of two on. Of a bin with a
    /// tree it knows the first one by size, and of one whose lowest entry is not aligned none: the best fit serves
    /// then.
    #[inline]
    fn first_fit(&self, size: u64, align: u64) -> Option<Entry> {
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
    fn largest_first(&self, least: u64, mut enough: impl FnMut(Entry) -> bool) {
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

    fn find(&self, size: u64, mut wanted: impl FnMut(Entry) -> bool) -> Option<Entry> {
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

/// The index.
pub struct FreeIndex {
    /// Sorted. The first one is [`Owner::ANYONE`]; another one stays when its last tile goes, until one more comes.
    owners: Vec<(Owner, Box<Bins>)>,
    /// Where the owner is whose bins changed last. It is never one of chunks: these always come and go the slow way,
    /// which alone knows of the next.
    last: usize,
    /// The free tiles that are chunks, by address.
    chunks: BTreeSet<(u64, TileId)>,
}

impl Default for FreeIndex {
    fn default() -> FreeIndex {
        FreeIndex { owners: vec![(Owner::ANYONE, Bins::new())], last: 0, chunks: BTreeSet::new() }
    }
}

impl FreeIndex {
    #[inline]
    fn bins(&self, owner: Owner) -> Option<&Bins> {
        match self.owners.get(self.last) {
            Some((known, bins)) if *known == owner => Some(bins),
            _ => self.bins_of_another(owner),
        }
    }

    #[inline(never)]
    fn bins_of_another(&self, owner: Owner) -> Option<&Bins> {
        let at = self.owners.binary_search_by_key(&owner, |(owner, _)| *owner).ok()?;
        Some(&self.owners[at].1)
    }

    /// Finds an owner, or adds it, and makes it the last one.
    #[inline(never)]
    fn turn_to(&mut self, owner: Owner) -> &mut Bins {
        let search = |owners: &[(Owner, Box<Bins>)]| owners.binary_search_by_key(&owner, |(owner, _)| *owner);
        self.last = search(&self.owners).unwrap_or_else(|_| {
            self.owners.retain(|(owner, bins)| *owner == Owner::ANYONE || !bins.is_empty());
            let at = search(&self.owners).unwrap_or_else(|at| at);
            self.owners.insert(at, (owner, Bins::new()));
            at
        });
        &mut self.owners[self.last].1
    }

    #[inline]
    pub fn insert(&mut self, owner: Owner, entry: Entry) {
        match self.owners.get_mut(self.last) {
            Some((known, bins)) if *known == owner => bins.insert(entry),
            _ => self.insert_of_another(owner, entry.0, entry.1, entry.2),
        }
    }

    #[inline(never)]
    fn insert_of_another(&mut self, owner: Owner, size: u64, address: u64, tile: TileId) {
        self.turn_to(owner).insert((size, address, tile));
        if owner.pool() == CHUNKS {
            self.last = 0;
            self.chunks.insert((address, tile));
        }
    }

    /// Removes an entry that is there.
    #[inline]
    pub fn remove(&mut self, owner: Owner, entry: Entry) {
        match self.owners.get_mut(self.last) {
            Some((known, bins)) if *known == owner => bins.remove(entry),
            _ => self.remove_of_another(owner, entry.0, entry.1, entry.2),
        }
    }

    #[inline(never)]
    fn remove_of_another(&mut self, owner: Owner, size: u64, address: u64, tile: TileId) {
        self.turn_to(owner).remove((size, address, tile));
        if owner.pool() == CHUNKS {
            self.last = 0;
            self.chunks.remove(&(address, tile));
        }
    }

    /// Whether there is nothing that everyone may take.
    #[inline]
    pub fn has_nothing_for_anyone(&self) -> bool {
        self.owners.first().is_some_and(|(_, bins)| bins.is_empty())
    }

    /// The first of an owner's tiles, by size and address, that has so many bytes from a multiple of a power of two on.
    #[inline]
    pub fn best_fit(&self, owner: Owner, size: u64, align: u64) -> Option<TileId> {
        self.bins(owner)?.best_fit(size, align)
    }

    /// The tile of an owner's at the lowest address that has so many bytes from a multiple of a power of two on.
    #[inline]
    pub fn first_fit(&self, owner: Owner, size: u64, align: u64) -> Option<TileId> {
        self.bins(owner)?.first_fit(size, align).map(|(.., tile)| tile)
    }

    /// Shows all of an owner's tiles that have at least so many bytes, by size and address.
    pub fn for_each(&self, owner: Owner, size: u64, mut show: impl FnMut(Entry)) {
        let mut shown = |entry| {
            show(entry);
            false
        };
        let none = self.bins(owner).and_then(|bins| bins.find(size, &mut shown));
        debug_assert!(none.is_none());
    }

    /// Shows an owner's tiles of at least so many bytes until enough: the largest first, and the lowest of one size.
    pub fn largest_first(&self, owner: Owner, least: u64, enough: impl FnMut(Entry) -> bool) {
        if let Some(bins) = self.bins(owner) {
            bins.largest_first(least, enough);
        }
    }

    /// Free chunks from an address on, from the lowest to the highest.
    pub fn chunks_from(&self, address: u64) -> impl Iterator<Item = TileId> + '_ {
        self.chunks.range((address, 0)..).map(|&(_, tile)| tile)
    }

    /// Who has free tiles, in order.
    pub fn owners(&self) -> impl Iterator<Item = Owner> + '_ {
        self.owners.iter().filter(|(_, bins)| !bins.is_empty()).map(|(owner, _)| *owner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::{Entry, FreeIndex, Owner, SHORT, STEPS, bin_of};

    #[test]
    fn bins_rise_with_the_size() {
        let sizes = (0..50).flat_map(|power| [0, 1, 2, 3].map(|step| (1u64 << power) + (step << power >> 2)));
        let bins: Vec<_> = sizes.map(bin_of).collect();
        assert!(bins.is_sorted());
        assert_eq!((bin_of(0), bin_of(256), bin_of(288), bin_of(512)), (0, 0, 1, 1 << STEPS));
    }

    proptest! {
        #[test]
        fn it_finds_what_a_sorted_set_finds(
            steps in prop::collection::vec((0..3u32, 0..12u64, 0..40u64, any::<bool>()), 1..400)
        ) {
            let mut index = FreeIndex::default();
            let mut model: BTreeSet<(Owner, Entry)> = BTreeSet::new();
            for (lane, size, address, insert) in steps {
                let owner = Owner::lane(0, lane);
                // Sizes that fall on the edges of bins, and many addresses of one size.
                let entry = ((256 << (size / 3)) + 64 * (size % 3), address << 8, address as u32);
                if insert && model.insert((owner, entry)) {
                    index.insert(owner, entry);
                } else if model.remove(&(owner, entry)) {
                    index.remove(owner, entry);
                }
                let size = entry.0;
                for align in [256, 1024] {
                    let fits = |(have, address, _): &Entry| address.next_multiple_of(align) - address + size <= *have;
                    let expected = model.range((owner, (entry.0, 0, 0))..).filter(|(other, _)| *other == owner);
                    let expected = expected.map(|(_, entry)| *entry).find(fits);
                    prop_assert_eq!(index.best_fit(owner, entry.0, align), expected.map(|(.., tile)| tile));
                    let all = model.range((owner, (entry.0, 0, 0))..).filter(|(other, _)| *other == owner);
                    let all: Vec<_> = all.map(|(_, entry)| *entry).filter(fits).collect();
                    let first = index.first_fit(owner, entry.0, align);
                    prop_assert_eq!(first.is_some(), !all.is_empty());
                    if align == 256 {
                        let lowest = all.iter().min_by_key(|(_, address, _)| *address);
                        prop_assert_eq!(first, lowest.map(|(.., tile)| *tile));
                    }
                }
            }
            let mut all = Vec::new();
            for owner in index.owners() {
                index.for_each(owner, 0, |entry| all.push((owner, entry)));
            }
            prop_assert_eq!(&all, &model.into_iter().collect::<Vec<_>>());
            for owner in index.owners() {
                let of_owner = all.iter().filter(|(known, _)| *known == owner);
                let mut expected: Vec<_> = of_owner.map(|(_, entry)| *entry).collect();
                expected.sort_unstable_by_key(|(size, address, _)| (std::cmp::Reverse(*size), *address));
                for least in [0, 512, 1088, 1 << 40] {
                    let mut shown = Vec::new();
                    index.largest_first(owner, least, |entry| {
                        shown.push(entry);
                        false
                    });
                    let expected: Vec<_> = expected.iter().filter(|(size, ..)| *size >= least).copied().collect();
                    prop_assert_eq!(shown, expected);
                }
            }
        }
    }

    #[test]
    fn a_bin_becomes_long_and_short_again() {
        let mut index = FreeIndex::default();
        let entry = |at: u64| (4096, at << 12, at as u32);
        for at in (0..10 * SHORT as u64).rev() {
            index.insert(Owner::ANYONE, entry(at));
        }
        for at in 0..10 * SHORT as u64 {
            assert_eq!(index.best_fit(Owner::ANYONE, 1, 1), Some(at as u32));
            assert_eq!(index.first_fit(Owner::ANYONE, 1, 1), Some(at as u32));
            index.remove(Owner::ANYONE, entry(at));
        }
        assert_eq!(index.best_fit(Owner::ANYONE, 1, 1), None);
        assert_eq!(index.owners().count(), 0);
    }
}
