//! The tiling of the reserved range: every address lies in one tile, and tiles know their neighbours.
//!
//! Splitting and merging are constant-time on the neighbours; to keep the [index](super::tile_index) that free tiles
//! and unmapped ones are found by costs the logarithm of its size.

mod runs;

pub use super::free_index::TileId;
use super::owner::{Owner, PoolId};
use super::tile_index::TileIndex;
use crate::streams::{LaneId, Pending};

const NONE: TileId = TileId::MAX;

/// The tile at the beginning of the range: what is cut or merged keeps the number of its first part.
pub const FIRST: TileId = 0;

/// What a tile is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A block, allocated on this lane.
    Used(LaneId),
    /// Mapped, and free once what it waits for is over.
    Free,
    /// Addresses with nothing behind them.
    Unmapped,
    /// Mapped, but its granules are in use under the addresses of stitches.
    Lent,
    /// The addresses of a stitch whose granules are at home.
    Stitch,
    /// Addresses that the driver would not give back: never used again.
    Broken,
    /// No tile: its place is for the next one.
    Vacant,
}

/// A part of the reserved range.
#[derive(Debug)]
pub struct Tile {
    pub address: u64,
    pub size: u64,
    pub kind: Kind,
    pub pool: PoolId,
    pub pending: Pending,
    /// When it was last merged or freed, by the clock of the background work.
    pub since: u64,
    /// Whether its place in the table is among those to be merged.
    apart: bool,
    before: TileId,
    after: TileId,
}

impl Tile {
    pub fn end(&self) -> u64 {
        self.address + self.size
    }

    #[inline]
    fn owner(&self) -> Owner {
        Owner::of(self.pool, &self.pending)
    }

    /// Whether it or its neighbour is so long that both should not wait for what is freed later.
    #[inline(never)]
    fn is_long_beside(&self, other: &Tile) -> bool {
        self.size.max(other.size) >= LONG && self.pending != other.pending
    }
}

/// Bytes of a tile from which it stays apart from what was freed later, while streams are at work. With 8 MiB there would
/// be more holes; without, half of a pool waits for what little was freed last.
const LONG: u64 = 64 << 20;

/// All tiles of a reserved range.
pub struct Tiles {
    tiles: Vec<Tile>,
    vacant: Vec<TileId>,
    index: TileIndex,
    /// Places in the table at which there was a tile with a free neighbour that waits for another lane.
    /// Each is here once.
    apart: Vec<TileId>,
    /// Whether what waits for something stays apart from what does not, and long tiles from what was freed at another
    /// time, so that other lanes can have them sooner.
    pub keeps_apart: bool,
}

impl Tiles {
    /// No tile.
    pub fn empty() -> Tiles {
        Tiles {
            tiles: Vec::new(),
            vacant: Vec::new(),
            index: TileIndex::default(),
            apart: Vec::new(),
            keeps_apart: false,
        }
    }

    /// One tile without anything behind it.
    pub fn new(address: u64, size: u64) -> Tiles {
        let mut tiles = Tiles::empty();
        let whole = tiles.push_alone(address, size);
        tiles.set_unmapped(whole);
        tiles
    }

    /// Puts a tile into the table. A place that had one keeps its mark, if it is among those to be merged.
    #[inline(always)]
    fn push(&mut self, tile: Tile) -> TileId {
        match self.vacant.pop() {
            Some(id) => {
                let old = self.at(id);
                *old = Tile { apart: old.apart, ..tile };
                id
            }
            None => {
                self.tiles.push(Tile { apart: false, ..tile });
                (self.tiles.len() - 1) as TileId
            }
        }
    }

    /// A tile that is nothing yet, without neighbours.
    fn push_alone(&mut self, address: u64, size: u64) -> TileId {
        let (pending, kind) = (Pending::default(), Kind::Broken);
        self.push(Tile { address, size, kind, pool: 0, pending, since: 0, apart: false, before: NONE, after: NONE })
    }

    /// A tile of a range of its own, in no index.
    pub fn add_segment(&mut self, address: u64, size: u64) -> TileId {
        self.push_alone(address, size)
    }

    /// Takes a tile away that is all of its range.
    pub fn remove_segment(&mut self, id: TileId) {
        debug_assert!((self.get(id).before, self.get(id).after) == (NONE, NONE));
        self.set(id, Kind::Vacant, 0);
        self.vacant.push(id);
    }

    #[inline]
    pub fn get(&self, id: TileId) -> &Tile {
        &self.tiles[id as usize]
    }

    #[inline]
    fn at(&mut self, id: TileId) -> &mut Tile {
        &mut self.tiles[id as usize]
    }

    #[inline]
    pub fn before(&self, id: TileId) -> Option<TileId> {
        Some(self.get(id).before).filter(|id| *id != NONE)
    }

    #[inline]
    pub fn after(&self, id: TileId) -> Option<TileId> {
        Some(self.get(id).after).filter(|id| *id != NONE)
    }

    /// Places in the table, those of no tile included.
    pub fn places(&self) -> TileId {
        self.tiles.len() as TileId
    }

    /// The end of a portion of the table, which is taken from what may still be looked at.
    pub fn portion(&self, from: TileId, left: &mut usize) -> TileId {
        let portion = (self.places().saturating_sub(from) as usize).min(*left);
        // Nothing is free.
        *left -= portion.max(1);
        from + portion as TileId
    }

    /// Where free tiles and unmapped ones are found.
    #[inline]
    pub fn index(&self) -> &TileIndex {
        &self.index
    }

    /// Takes a tile out of its index, so that its size, pending points or kind can change.
    #[inline]
    fn unlist(&mut self, id: TileId) {
        let tile = &self.tiles[id as usize];
        match tile.kind {
            Kind::Free => self.index.remove_free(tile.owner(), (tile.size, tile.address, id)),
            Kind::Unmapped => self.index.remove_unmapped((tile.size, tile.address, id)),
            _ => {}
        }
    }

    /// Puts a tile into its index, if one has its kind.
    #[inline]
    fn list(&mut self, id: TileId) {
        let tile = &self.tiles[id as usize];
        match tile.kind {
            Kind::Free => self.index.insert_free(tile.owner(), (tile.size, tile.address, id)),
            Kind::Unmapped => self.index.insert_unmapped((tile.size, tile.address, id)),
            _ => {}
        }
    }

    /// Makes a tile something that is in no index, and forgets what it waited for.
    pub fn set(&mut self, id: TileId, kind: Kind, pool: PoolId) {
        self.unlist(id);
        let tile = self.at(id);
        (tile.kind, tile.pool) = (kind, pool);
        tile.pending = Pending::default();
    }

    /// Makes a tile free that stays out of the index.
    #[inline(always)]
    fn make_free(&mut self, id: TileId, pool: PoolId, pending: Pending, since: u64) {
        if matches!(self.get(id).kind, Kind::Free | Kind::Unmapped) {
            self.unlist(id);
        }
        let tile = self.at(id);
        (tile.kind, tile.pool, tile.pending, tile.since) = (Kind::Free, pool, pending, since);
    }

    /// Makes a tile free, and merges it with free neighbours that wait for no other lane.
    /// Returns the tile that it is in.
    pub fn set_free(&mut self, id: TileId, pool: PoolId, pending: Pending, since: u64) -> TileId {
        self.make_free(id, pool, pending, since);
        self.join(id, pool, Self::go_together)
    }

    /// Lists a free tile of a pool, after it took in the neighbours that go together with it. Returns the tile that it
    /// is in.
    fn join(&mut self, id: TileId, pool: PoolId, together: impl Fn(&Self, TileId, TileId) -> bool) -> TileId {
        let mut id = id;
        let before = self.get(id).before;
        if together(self, id, before) {
            self.unlist(before);
            self.absorb(before, id);
            id = before;
        }
        let after = self.get(id).after;
        if together(self, id, after) {
            self.unlist(after);
            self.absorb(id, after);
        }
        self.list(id);
        let Tile { before, after, .. } = *self.get(id);
        if self.is_free_in(before, pool) || self.is_free_in(after, pool) {
            self.note_apart(id);
        }
        id
    }

    /// Whether a neighbour is there, free and of a pool.
    #[inline]
    fn is_free_in(&self, id: TileId, pool: PoolId) -> bool {
        self.tiles.get(id as usize).is_some_and(|tile| tile.kind == Kind::Free && tile.pool == pool)
    }

    /// Notes that a free tile and a neighbour of it can be merged if need be.
    fn note_apart(&mut self, id: TileId) {
        if !std::mem::replace(&mut self.at(id).apart, true) {
            self.apart.push(id);
        }
    }

    /// Makes a tile free, and leaves its neighbours alone.
    pub fn set_free_apart(&mut self, id: TileId, pool: PoolId, pending: Pending, since: u64) {
        self.make_free(id, pool, pending, since);
        self.list(id);
        self.note_apart(id);
    }

    /// Makes the addresses of a tile free for mapping, and merges them with their like.
    pub fn set_unmapped(&mut self, id: TileId) {
        self.set(id, Kind::Unmapped, 0);
        self.list(id);
        let unmapped = |tiles: &Tiles, id: TileId| tiles.get(id).kind == Kind::Unmapped;
        let mut id = id;
        if let Some(before) = self.before(id).filter(|before| unmapped(self, *before)) {
            id = self.merge(before);
        }
        if self.after(id).is_some_and(|after| unmapped(self, after)) {
            self.merge(id);
        }
    }

    /// Whether a free tile and its neighbour, if that is free, are of one pool and one lane, or wait for nothing.
    #[inline]
    fn go_together(&self, one: TileId, other: TileId) -> bool {
        let (one, Some(other)) = (self.get(one), self.tiles.get(other as usize)) else { return false };
        let free = other.kind == Kind::Free && one.pool == other.pool;
        match (one.pending.is_empty(), other.pending.is_empty()) {
            (true, true) => free,
            (false, false) => free && one.owner() == other.owner() && !(self.keeps_apart && one.is_long_beside(other)),
            _ => free && !self.keeps_apart,
        }
    }

    /// Puts a tile and the one after it together: what one of them waited for, all of it waits for.
    pub fn merge(&mut self, id: TileId) -> TileId {
        let gone = self.get(id).after;
        self.unlist(id);
        self.unlist(gone);
        self.absorb(id, gone);
        self.list(id);
        id
    }

    /// The same with tiles that are in no index now.
    #[inline(always)]
    fn absorb(&mut self, id: TileId, gone: TileId) {
        let Ok([tile, other]) = self.tiles.get_disjoint_mut([id as usize, gone as usize]) else { return };
        let Tile { size, after, since, apart, .. } = *other;
        other.kind = Kind::Vacant;
        tile.size += size;
        tile.after = after;
        tile.since = tile.since.max(since);
        tile.pending.join_from(&mut other.pending);
        self.vacant.push(gone);
        if after != NONE {
            self.at(after).before = id;
        }
        if apart {
            self.note_apart(id);
        }
    }

    /// Cuts a tile that is in no index now in two at an address within it; the first part keeps the number. Returns the
    /// second part.
    pub fn split(&mut self, id: TileId, address: u64) -> TileId {
        let pending = self.get(id).pending.clone();
        self.split_off(id, address, pending)
    }

    /// The same; the second part waits for what the caller says.
    #[inline(always)]
    fn split_off(&mut self, id: TileId, address: u64, pending: Pending) -> TileId {
        let tile = self.at(id);
        debug_assert!(tile.address < address && address < tile.end());
        let Tile { kind, pool, since, apart, after, .. } = *tile;
        let end = tile.end();
        tile.size = address - tile.address;
        let second = Tile { address, size: end - address, kind, pool, pending, since, apart: false, before: id, after };
        let new = self.push(second);
        self.at(id).after = new;
        if after != NONE {
            self.at(after).before = new;
        }
        if apart {
            self.note_apart(new);
        }
        new
    }

    /// Cuts the range `from..to` out of a tile that holds it. The tile of just that range is in no index.
    fn cut_out(&mut self, id: TileId, from: u64, to: u64) -> TileId {
        self.unlist(id);
        let mut middle = id;
        if self.get(id).address < from {
            middle = self.split(id, from);
            self.list(id);
        }
        if to < self.get(middle).end() {
            let rest = self.split(middle, to);
            self.list(rest);
        }
        middle
    }

    /// Cuts the range `from..to` out of a tile that holds it, and returns the tile of just that range.
    pub fn carve(&mut self, id: TileId, from: u64, to: u64) -> TileId {
        let middle = self.cut_out(id, from, to);
        self.list(middle);
        middle
    }

    /// Cuts the range `from..to` out of a tile that holds it, and makes it something that is in no index. What it
    /// waited for is forgotten.
    pub fn take(&mut self, id: TileId, from: u64, to: u64, kind: Kind, pool: PoolId) -> TileId {
        debug_assert!(!matches!(kind, Kind::Free | Kind::Unmapped));
        self.unlist(id);
        let mut middle = id;
        if self.get(id).address < from {
            middle = self.split(id, from);
            self.list(id);
        }
        let tile = self.at(middle);
        let pending = std::mem::take(&mut tile.pending);
        if to < tile.end() {
            let rest = self.split_off(middle, to, pending);
            self.list(rest);
        }
        let tile = self.at(middle);
        (tile.kind, tile.pool) = (kind, pool);
        middle
    }

    /// The smallest free tile for a lane that waits for nothing else, as above.
    #[inline]
    pub fn best_fit_for(&self, pool: PoolId, lane: LaneId, size: u64, align: u64) -> Option<TileId> {
        let own = self.index.best_fit(Owner::lane(pool, lane), size, align);
        if self.index.has_nothing_for_anyone() || (pool != 0 && own.is_some()) {
            return own;
        }
        self.best_fit_beside(own, size, align)
    }

    #[inline(never)]
    fn best_fit_beside(&self, own: Option<TileId>, size: u64, align: u64) -> Option<TileId> {
        let anyones = self.index.best_fit(Owner::ANYONE, size, align);
        own.into_iter().chain(anyones).min_by_key(|id| self.rank(*id))
    }

    /// The free tile at the lowest address that fits, of those for a lane that waits for nothing else.
    #[inline]
    pub fn first_fit_for(&self, pool: PoolId, lane: LaneId, size: u64, align: u64) -> Option<TileId> {
        let own = self.index.first_fit(Owner::lane(pool, lane), size, align);
        let is_first = || (pool != 0 || self.keeps_apart) && own.is_some();
        if self.index.has_nothing_for_anyone() || is_first() {
            return own;
        }
        self.first_fit_beside(own, size, align)
    }

    #[inline(never)]
    fn first_fit_beside(&self, own: Option<TileId>, size: u64, align: u64) -> Option<TileId> {
        let anyones = self.index.first_fit(Owner::ANYONE, size, align);
        own.into_iter().chain(anyones).min_by_key(|id| self.get(*id).address)
    }

    /// What the best fit is the least of.
    #[inline]
    pub fn rank(&self, id: TileId) -> (u64, u64) {
        let tile = self.get(id);
        (tile.size, tile.address)
    }

    /// All tiles, those of a range in the order of their addresses.
    pub fn iter(&self) -> impl Iterator<Item = (TileId, &Tile)> + '_ {
        let heads = self.tiles.iter().enumerate();
        let heads = heads.filter(|(_, tile)| tile.before == NONE && tile.kind != Kind::Vacant);
        heads.flat_map(move |(head, _)| {
            let mut next = head as TileId;
            std::iter::from_fn(move || {
                let id = next;
                let tile = self.tiles.get(id as usize)?;
                next = tile.after;
                Some((id, tile))
            })
        })
    }

    /// Changes what a free tile waits for.
    pub fn settle(&mut self, id: TileId, over: impl Fn(crate::streams::Point) -> bool) {
        self.unlist(id);
        self.at(id).pending.retain(|point| !over(point));
        self.list(id);
    }

    /// Makes a free tile everyone's whose work is over, and merges it with neighbours that are. Returns the tile that it
    /// is in.
    pub fn set_anyones(&mut self, id: TileId) -> TileId {
        self.unlist(id);
        self.at(id).pending = Pending::default();
        let pool = self.get(id).pool;
        self.join(id, pool, |tiles, _, neighbour| tiles.is_anyones(neighbour, pool))
    }

    /// Whether a neighbour is there, free, of a pool, and waits for nothing.
    fn is_anyones(&self, id: TileId, pool: PoolId) -> bool {
        self.is_free_in(id, pool) && self.get(id).pending.is_empty()
    }

    /// Merges every free tile with its free neighbour, whatever they wait for. Returns whether there was one.
    pub fn merge_all(&mut self) -> bool {
        let mut merged = false;
        while let Some(one) = self.merge_next(&mut { usize::MAX }) {
            merged |= one;
        }
        merged
    }

    /// Merges one of the free tiles that are noted for it with its free neighbours; so many tiles at most, from which
    /// those that were looked at are taken. Returns whether it had any, and `None` if none is noted.
    pub fn merge_next(&mut self, left: &mut usize) -> Option<bool> {
        let id = self.apart.pop()?;
        self.at(id).apart = false;
        *left = left.saturating_sub(1);
        // By now it may be part of another tile, or its place be one's that has nothing to do with it.
        let Tile { kind: Kind::Free, pool, .. } = *self.get(id) else { return Some(false) };
        let mut first = id;
        let mut merged = false;
        loop {
            let Tile { before, after, .. } = *self.get(first);
            if self.is_free_in(before, pool) {
                first = before;
            } else if !self.is_free_in(after, pool) {
                return Some(merged);
            }
            if *left == 0 {
                self.note_apart(first);
                return Some(merged);
            }
            self.merge(first);
            merged = true;
            *left -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Kind, Tiles};
    use crate::large::owner::CHUNKS;
    use crate::streams::{Pending, Point};

    proptest! {
        #[test]
        fn nothing_free_stays_apart_when_all_is_merged(
            steps in prop::collection::vec(
                (0..8u32, any::<prop::sample::Index>(), 0..64u64, 1..64u64, 0..3u32, 0..2u32),
                1..200,
            )
        ) {
            let mut tiles = Tiles::empty();
            let whole = tiles.add_segment(0, 64);
            tiles.set_free_apart(whole, 0, Pending::default(), 0);
            for (step, which, from, size, lane, pool) in steps {
                let of = |tiles: &Tiles, kind: fn(Kind) -> bool| -> Vec<_> {
                    tiles.iter().filter(|(_, tile)| kind(tile.kind)).map(|(id, _)| id).collect()
                };
                let (free, used) = (of(&tiles, |kind| kind == Kind::Free), of(&tiles, |kind| kind != Kind::Free));
                let pool = if pool == 1 { CHUNKS } else { 0 };
                let pending = if lane == 2 { Pending::default() } else { Pending::at(Point { lane, epoch: 1 }) };
                match step {
                    0..4 if !free.is_empty() => {
                        let id = *which.get(&free);
                        let (start, have) = (tiles.get(id).address, tiles.get(id).size);
                        let from = start + from % have;
                        tiles.take(id, from, (from + size).min(start + have), Kind::Used(lane), pool);
                    }
                    4..6 if !used.is_empty() => {
                        tiles.set_free(*which.get(&used), pool, pending, 0);
                    }
                    6 if !used.is_empty() => tiles.set_free_apart(*which.get(&used), pool, pending, 0),
                    7 => {
                        tiles.merge_all();
                        let all: Vec<_> = tiles.iter().map(|(_, tile)| (tile.kind, tile.pool)).collect();
                        prop_assert!(all.windows(2).all(|two| two[0].0 != Kind::Free || two[0] != two[1]), "{all:?}");
                    }
                    _ => {}
                }
                let free = tiles.iter().filter(|(_, tile)| tile.kind == Kind::Free);
                let bytes: u64 = free.map(|(_, tile)| tile.size).sum();
                prop_assert_eq!(tiles.index().free_bytes(), bytes);
                let chunks = tiles.iter().filter(|(_, tile)| tile.kind == Kind::Free && tile.pool == CHUNKS);
                prop_assert!(tiles.index().chunks_from(0).eq(chunks.map(|(id, _)| id)));
                prop_assert_eq!(tiles.iter().map(|(_, tile)| tile.size).sum::<u64>(), 64);
            }
        }
    }
}
