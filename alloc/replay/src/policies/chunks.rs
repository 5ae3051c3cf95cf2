//! Pieces of regions, each with its neighbours, so that splitting and joining are constant-time;
//! and the free ones in order.
//!
//! Free pieces of a stream are ordered by size and address, which is what the bins of other allocators come to when
//! they are searched upwards: the first that fits is the best fit.

use std::collections::{BTreeSet, HashMap};

use super::owners::Owner;

/// A piece's place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(u32);

const NONE: Place = Place(u32::MAX);

#[derive(Clone, Copy, Debug)]
struct Chunk {
    address: u64,
    bytes: u64,
    before: Place,
    behind: Place,
    /// Whose free memory it is; `None`: it is a block.
    owner: Option<Owner>,
}

/// Pieces of all regions.
#[derive(Default)]
pub struct Chunks {
    table: Vec<Chunk>,
    vacant: Vec<Place>,
    /// Blocks by address.
    blocks: HashMap<u64, Place>,
    /// Free pieces of nobody, then those of each owner.
    free: Vec<BTreeSet<(u64, u64, Place)>>,
}

fn list(owner: Owner) -> usize {
    if owner == Owner::NOBODY { 0 } else { owner.at() + 1 }
}

impl Chunks {
    fn get(&self, place: Place) -> &Chunk {
        &self.table[place.0 as usize]
    }

    fn get_mut(&mut self, place: Place) -> &mut Chunk {
        &mut self.table[place.0 as usize]
    }

    fn enter(&mut self, chunk: Chunk) -> Place {
        if let Some(place) = self.vacant.pop() {
            *self.get_mut(place) = chunk;
            return place;
        }
        self.table.push(chunk);
        Place(self.table.len() as u32 - 1)
    }

    fn list_free(&mut self, place: Place, owner: Owner) {
        let Chunk { address, bytes, .. } = *self.get(place);
        self.get_mut(place).owner = Some(owner);
        if self.free.len() <= list(owner) {
            self.free.resize_with(list(owner) + 1, BTreeSet::new);
        }
        self.free[list(owner)].insert((bytes, address, place));
    }

    fn unlist(&mut self, place: Place) {
        let Chunk { address, bytes, owner, .. } = *self.get(place);
        if let Some(owner) = owner {
            self.free[list(owner)].remove(&(bytes, address, place));
        }
    }

    /// A new region, free memory of an owner.
    pub fn add_region(&mut self, address: u64, bytes: u64, owner: Owner) {
        let place = self.enter(Chunk { address, bytes, before: NONE, behind: NONE, owner: None });
        self.list_free(place, owner);
    }

    /// The best fit among the free pieces of an owner.
    pub fn fit(&self, owner: Owner, bytes: u64) -> Option<(u64, Place)> {
        let (have, _, place) = self.free.get(list(owner))?.range((bytes, 0, Place(0))..).next()?;
        Some((*have, *place))
    }

    /// Whether an owner has free pieces.
    pub fn has_free(&self, owner: Owner) -> bool {
        self.free.get(list(owner)).is_some_and(|free| !free.is_empty())
    }

    /// Makes a block of a free piece. If `keep` bytes are enough of it, the rest stays free, its owner's as before.
    /// Returns the block's address and its bytes.
    pub fn take(&mut self, place: Place, keep: Option<u64>) -> (u64, u64) {
        self.unlist(place);
        let owner = self.get(place).owner;
        if let (Some(keep), Some(owner)) = (keep, owner) {
            let Chunk { address, bytes, behind, .. } = *self.get(place);
            let rest =
                self.enter(Chunk { address: address + keep, bytes: bytes - keep, before: place, behind, owner: None });
            if behind != NONE {
                self.get_mut(behind).before = rest;
            }
            let chunk = self.get_mut(place);
            chunk.bytes = keep;
            chunk.behind = rest;
            self.list_free(rest, owner);
        }
        let chunk = self.get_mut(place);
        chunk.owner = None;
        let (address, bytes) = (chunk.address, chunk.bytes);
        self.blocks.insert(address, place);
        (address, bytes)
    }

    /// Frees a block for an owner, and joins it with its neighbours of the same owner or of nobody. Returns its bytes.
    pub fn free(&mut self, address: u64, owner: Owner) -> Option<u64> {
        let place = self.blocks.remove(&address)?;
        let bytes = self.get(place).bytes;
        self.settle(place, owner);
        Some(bytes)
    }

    /// Lists a piece that is in no list as an owner's, joined with what it may be joined with.
    fn settle(&mut self, mut place: Place, owner: Owner) {
        let joins = |other: Option<Owner>| other == Some(owner) || other == Some(Owner::NOBODY);
        let Chunk { before, behind, .. } = *self.get(place);
        if behind != NONE && joins(self.get(behind).owner) {
            self.unlist(behind);
            self.swallow(place, behind);
        }
        if before != NONE && joins(self.get(before).owner) {
            self.unlist(before);
            self.swallow(before, place);
            place = before;
        }
        self.list_free(place, owner);
    }

    /// Makes one piece of two neighbours.
    fn swallow(&mut self, first: Place, second: Place) {
        let Chunk { bytes, behind, .. } = *self.get(second);
        let chunk = self.get_mut(first);
        chunk.bytes += bytes;
        chunk.behind = behind;
        if behind != NONE {
            self.get_mut(behind).before = first;
        }
        self.get_mut(second).owner = None;
        self.vacant.push(second);
    }

    /// Gives all free pieces of an owner to another one.
    pub fn give(&mut self, from: Owner, to: Owner) {
        let pieces = self.free.get_mut(list(from)).map(std::mem::take).unwrap_or_default();
        let places: Vec<Place> = pieces.iter().map(|(.., place)| *place).collect();
        self.free[list(from)] = pieces;
        for place in places {
            self.unlist(place);
            self.settle(place, to);
        }
    }

    /// Takes out the regions that are free as a whole: address, bytes and owner of each.
    pub fn take_free_regions(&mut self) -> Vec<(u64, u64, Owner)> {
        let is_whole = |place: Place| self.get(place).before == NONE && self.get(place).behind == NONE;
        let places: Vec<Place> =
            self.free.iter().flatten().map(|(.., place)| *place).filter(|at| is_whole(*at)).collect();
        let mut regions = Vec::new();
        for place in places {
            self.unlist(place);
            let chunk = self.get_mut(place);
            if let Some(owner) = chunk.owner.take() {
                regions.push((chunk.address, chunk.bytes, owner));
            }
            self.vacant.push(place);
        }
        regions
    }
}
