//! The index of free tiles: who may take them, then size, then address.
//!
//! Each owner has [bins of sizes](bins). Streams that work in turns have free tiles and have none all the time, so bins
//! outlast their tiles.

mod bins;

use std::collections::BTreeSet;

use super::owner::{CHUNKS, Owner};
use bins::Bins;
pub use bins::{Entry, TileId};

/// Owners whose bins are kept although they are empty: 13 KiB each.
const OWNERS: usize = 32;

/// The index.
pub struct FreeIndex {
    /// Sorted. The first one is [`Owner::ANYONE`]; another one stays when its last tile goes, since streams that work in
    /// turns come and go all the time: its bins are a later owner's as soon as there are [`OWNERS`].
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
        let found = self.owners.binary_search_by_key(&owner, |(owner, _)| *owner);
        self.last = found.unwrap_or_else(|_| self.add(owner));
        &mut self.owners[self.last].1
    }

    /// Adds an owner, and tells where it is.
    #[cold]
    fn add(&mut self, owner: Owner) -> usize {
        let mut bins = None;
        if self.owners.len() >= OWNERS {
            bins = (1..self.owners.len()).find(|&at| self.owners[at].1.is_empty()).map(|at| self.owners.remove(at).1);
        }
        if self.owners.len() > OWNERS {
            self.owners.retain(|(owner, bins)| *owner == Owner::ANYONE || !bins.is_empty());
        }
        let at = self.owners.partition_point(|(known, _)| *known < owner);
        self.owners.insert(at, (owner, bins.unwrap_or_else(Bins::new)));
        at
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

    use super::bins::{SHORT, STEPS, bin_of};
    use super::{Entry, FreeIndex, OWNERS, Owner};

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

    #[test]
    fn owners_without_tiles_leave_their_bins_to_others() {
        let mut index = FreeIndex::default();
        let entry = |lane: u32| (u64::from(lane) * 300, 256 << 10, lane);
        let many = 4 * OWNERS as u32;
        for lane in 1..=many {
            let owner = Owner::lane(0, lane);
            assert_eq!(index.best_fit(owner, 1, 1), None);
            index.insert(owner, entry(lane));
            assert_eq!(index.best_fit(owner, 1, 1), Some(lane));
            index.remove(owner, entry(lane));
        }
        assert_eq!(index.owners.len(), OWNERS);
        let all: Vec<_> = (1..=many).map(|lane| Owner::lane(0, lane)).collect();
        for (lane, owner) in (1..).zip(&all) {
            index.insert(*owner, entry(lane));
        }
        assert!(index.owners().eq(all.iter().copied()));
        for (lane, owner) in (1..).zip(&all) {
            assert_eq!(index.best_fit(*owner, 1, 1), Some(lane));
            index.remove(*owner, entry(lane));
        }
        index.insert(Owner::lane(0, many + 1), entry(1));
        assert!(index.owners.len() <= OWNERS, "{} owners are kept", index.owners.len());
    }
}
