//! The index of free tiles: who may take them, then size, then address.
//!
//! Each owner has bins of sizes, eight to a power of two, and a bit map of those that hold something. A bin is sorted, so that
//! the first tile that fits is the best fit: a short one is a vector, in which to insert is to move a cache line or two, and a
//! long one a tree, so that a million free tiles of one size cost the logarithm.
//!
//! The bins are those of M. Masmano, I. Ripoll, A. Crespo and J. Real, "TLSF: a new dynamic memory allocator for real-time
//! systems" (ECRTS 2004), which takes any tile of a bin; here it is the smallest that fits, at the lowest address.

use std::collections::BTreeSet;

use super::tiles::{Owner, TileId};

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

fn bin_of(size: u64) -> usize {
    let size = size.max(SMALLEST);
    let power = size.ilog2();
    let step = (size >> (power - STEPS)) & ((1 << STEPS) - 1);
    let bin = (u64::from(power - SMALLEST.trailing_zeros()) << STEPS) + step;
    (bin as usize).min(BINS - 1)
}

/// Where an entry is in sorted ones, or would be. Size and address are compared as one number, without a branch.
fn place(entries: &[Entry], entry: Entry) -> usize {
    let key = |(size, address, _): Entry| u128::from(size) << 64 | u128::from(address);
    let wanted = key(entry);
    entries.partition_point(|known| key(*known) < wanted)
}

enum Bin {
    Short(Vec<Entry>),
    Long(BTreeSet<Entry>),
}

impl Bin {
    fn insert(&mut self, entry: Entry) {
        match self {
            Bin::Short(entries) if entries.len() < SHORT => {
                entries.insert(place(entries, entry), entry);
            }
            Bin::Short(entries) => {
                let mut tree: BTreeSet<_> = entries.drain(..).collect();
                tree.insert(entry);
                *self = Bin::Long(tree);
            }
            Bin::Long(tree) => {
                tree.insert(entry);
            }
        }
    }

    fn remove(&mut self, entry: Entry) {
        match self {
            Bin::Short(entries) => {
                let at = place(entries, entry);
                if entries.get(at) == Some(&entry) {
                    entries.remove(at);
                }
            }
            Bin::Long(tree) => {
                tree.remove(&entry);
                if tree.len() <= SHORT / 2 {
                    *self = Bin::Short(tree.iter().copied().collect());
                }
            }
        }
    }

    fn is_empty(&self) -> bool {
        matches!(self, Bin::Short(entries) if entries.is_empty())
    }

    fn find(&self, size: u64, mut wanted: impl FnMut(Entry) -> bool) -> Option<Entry> {
        match self {
            Bin::Short(entries) => {
                let from = entries.partition_point(|(have, ..)| *have < size);
                entries.get(from..)?.iter().copied().find(|entry| wanted(*entry))
            }
            Bin::Long(tree) => tree.range((size, 0, 0)..).copied().find(|entry| wanted(*entry)),
        }
    }
}

/// The free tiles of one owner.
struct Bins {
    filled: [u64; WORDS],
    bins: Box<[Bin]>,
}

impl Bins {
    fn new() -> Bins {
        Bins { filled: [0; WORDS], bins: (0..BINS).map(|_| Bin::Short(Vec::new())).collect() }
    }

    fn is_empty(&self) -> bool {
        self.filled == [0; WORDS]
    }

    /// The first bin from this one on that holds something.
    fn next_filled(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut bits = self.filled.get(word)? & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            bits = *self.filled.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    fn find(&self, size: u64, mut wanted: impl FnMut(Entry) -> bool) -> Option<Entry> {
        let mut next = self.next_filled(bin_of(size));
        while let Some(bin) = next {
            if let Some(entry) = self.bins[bin].find(size, &mut wanted) {
                return Some(entry);
            }
            next = self.next_filled(bin + 1);
        }
        None
    }
}

/// The index.
#[derive(Default)]
pub struct FreeIndex {
    /// Sorted. An owner stays when its last tile goes, until another one comes.
    owners: Vec<(Owner, Bins)>,
    /// Where the owner is whose bins changed last.
    last: usize,
}

impl FreeIndex {
    fn bins(&self, owner: Owner) -> Option<&Bins> {
        if let Some((last, bins)) = self.owners.get(self.last)
            && *last == owner
        {
            return Some(bins);
        }
        let at = self.owners.binary_search_by_key(&owner, |(owner, _)| *owner).ok()?;
        Some(&self.owners[at].1)
    }

    fn bins_mut(&mut self, owner: Owner) -> &mut Bins {
        if self.owners.get(self.last).is_some_and(|(last, _)| *last == owner) {
            return &mut self.owners[self.last].1;
        }
        let search = |owners: &[(Owner, Bins)]| owners.binary_search_by_key(&owner, |(owner, _)| *owner);
        let at = search(&self.owners).unwrap_or_else(|_| {
            self.owners.retain(|(_, bins)| !bins.is_empty());
            let at = search(&self.owners).unwrap_or_else(|at| at);
            self.owners.insert(at, (owner, Bins::new()));
            at
        });
        self.last = at;
        &mut self.owners[at].1
    }

    pub fn insert(&mut self, owner: Owner, entry: Entry) {
        let bins = self.bins_mut(owner);
        let bin = bin_of(entry.0);
        bins.bins[bin].insert(entry);
        bins.filled[bin / 64] |= 1 << (bin % 64);
    }

    pub fn remove(&mut self, owner: Owner, entry: Entry) {
        let bins = self.bins_mut(owner);
        let bin = bin_of(entry.0);
        bins.bins[bin].remove(entry);
        if bins.bins[bin].is_empty() {
            bins.filled[bin / 64] &= !(1 << (bin % 64));
        }
    }

    /// The first of an owner's tiles, by size and address, that has at least so many bytes and is wanted.
    pub fn find(&self, owner: Owner, size: u64, wanted: impl FnMut(Entry) -> bool) -> Option<Entry> {
        self.bins(owner)?.find(size, wanted)
    }

    /// Shows all of an owner's tiles that have at least so many bytes, by size and address.
    pub fn for_each(&self, owner: Owner, size: u64, mut show: impl FnMut(Entry)) {
        let none = self.find(owner, size, |entry| {
            show(entry);
            false
        });
        debug_assert!(none.is_none());
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
                let wanted = |entry: &Entry| !entry.1.is_multiple_of(3 << 8);
                let expected = model.range((owner, (entry.0, 0, 0))..).filter(|(other, _)| *other == owner);
                let expected = expected.map(|(_, entry)| *entry).find(wanted);
                prop_assert_eq!(index.find(owner, entry.0, |entry| wanted(&entry)), expected);
            }
            let mut all = Vec::new();
            for owner in index.owners() {
                index.for_each(owner, 0, |entry| all.push((owner, entry)));
            }
            prop_assert_eq!(all, model.into_iter().collect::<Vec<_>>());
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
            assert_eq!(index.find(Owner::ANYONE, 1, |_| true), Some(entry(at)));
            index.remove(Owner::ANYONE, entry(at));
        }
        assert_eq!(index.find(Owner::ANYONE, 0, |_| true), None);
        assert_eq!(index.owners().count(), 0);
    }
}
