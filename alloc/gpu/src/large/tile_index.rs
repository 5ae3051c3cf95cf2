//! Where tiles are found that something may be made of: free memory and unmapped addresses,
//! each in an order of its own.
//!
//! [Free tiles](super::free_index) are ordered by who may take them, then by size, then by address: the best fit for an
//! owner is one look-up. The address is the tie-break, so that blocks gather at low addresses and the high ends fall
//! idle. Free chunks are also ordered by address alone: the lowest that may be had at once is taken. Unmapped ones are
//! ordered by size and address. What a tile is, and who its neighbours are, is the [tiling](super::tiles)'s business.

use std::collections::BTreeSet;

use super::free_index::{Entry, FreeIndex, TileId};
use super::owner::{Owner, PoolId};

/// The tiles that are free or unmapped.
#[derive(Default)]
pub struct TileIndex {
    free: FreeIndex,
    unmapped: BTreeSet<Entry>,
    free_bytes: u64,
}

impl TileIndex {
    /// Adds a free tile.
    #[inline]
    pub fn insert_free(&mut self, owner: Owner, tile: Entry) {
        self.free_bytes += tile.0;
        self.free.insert(owner, tile);
    }

    /// Takes a free tile out, with the owner and the entry that it came with.
    #[inline]
    pub fn remove_free(&mut self, owner: Owner, tile: Entry) {
        self.free_bytes -= tile.0;
        self.free.remove(owner, tile);
    }

    /// Adds an unmapped tile.
    #[cold]
    pub fn insert_unmapped(&mut self, tile: Entry) {
        self.unmapped.insert(tile);
    }

    /// Takes an unmapped tile out.
    #[cold]
    pub fn remove_unmapped(&mut self, tile: Entry) {
        self.unmapped.remove(&tile);
    }

    /// Bytes in free tiles.
    pub fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// Bytes in free tiles that have at least so many.
    pub fn free_bytes_from(&self, size: u64) -> u64 {
        let mut bytes = 0;
        self.free.owners().for_each(|owner| self.free.for_each(owner, size, |(have, ..)| bytes += have));
        bytes
    }

    /// Whether no free tile is everyone's.
    #[inline]
    pub fn has_nothing_for_anyone(&self) -> bool {
        self.free.has_nothing_for_anyone()
    }

    /// The smallest free tile of an owner's that has room for `size` bytes at a multiple of `align`, a power of two.
    #[inline]
    pub fn best_fit(&self, owner: Owner, size: u64, align: u64) -> Option<TileId> {
        self.free.best_fit(owner, size, align)
    }

    /// The free tile of an owner's at the lowest address that has room for so much.
    #[inline]
    pub fn first_fit(&self, owner: Owner, size: u64, align: u64) -> Option<TileId> {
        self.free.first_fit(owner, size, align)
    }

    /// An owner's free tiles.
    pub fn owned_by(&self, owner: Owner) -> Vec<TileId> {
        let mut found = Vec::new();
        self.free.for_each(owner, 0, |(.., id)| found.push(id));
        found
    }

    /// Who has free tiles of the common pool.
    fn common_owners(&self) -> impl Iterator<Item = Owner> + '_ {
        self.free.owners().take_while(|owner| owner.is_common())
    }

    /// The best fits of all owners of the common pool.
    pub fn best_fits(&self, size: u64, align: u64) -> Vec<TileId> {
        self.common_owners().filter_map(|owner| self.best_fit(owner, size, align)).collect()
    }

    /// The free tiles of the common pool that have at least so many bytes.
    pub fn free_from(&self, size: u64) -> Vec<TileId> {
        let mut found = Vec::new();
        self.common_owners().for_each(|owner| self.free.for_each(owner, size, |(.., id)| found.push(id)));
        found
    }

    /// Shows the free tiles of each of some owners, the largest first and of one size the lowest, until what `show`
    /// returns is as much as is wanted.
    pub fn largest_first(
        &self,
        is_one: impl Fn(Owner) -> bool,
        least: u64,
        wanted: usize,
        mut show: impl FnMut(TileId) -> usize,
    ) {
        for owner in self.free.owners().filter(|owner| is_one(*owner)) {
            let mut have = 0;
            self.free.largest_first(owner, least, |(.., id)| {
                have += show(id);
                have >= wanted
            });
        }
    }

    /// The free tiles of a pool.
    pub fn free_of(&self, pool: PoolId) -> Vec<TileId> {
        let mut found = Vec::new();
        let owners = self.free.owners().filter(|owner| owner.pool() == pool);
        owners.for_each(|owner| self.free.for_each(owner, 0, |(.., id)| found.push(id)));
        found
    }

    /// Free chunks from an address on, from the lowest to the highest.
    pub fn chunks_from(&self, address: u64) -> impl Iterator<Item = TileId> + '_ {
        self.free.chunks_from(address)
    }

    /// Unmapped tiles from the smallest to the largest that have at least so many bytes.
    pub fn unmapped_from(&self, size: u64) -> impl DoubleEndedIterator<Item = TileId> + '_ {
        self.unmapped.range((size, 0, 0)..).map(|&(.., id)| id)
    }
}
