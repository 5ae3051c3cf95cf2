//! Forgetting what is over, and merging what waited for different streams: what is left undone when blocks are freed.
//!
//! The background does it in portions, so that whoever waits for the pool's lock never waits for all tiles. A sweep
//! goes through the table of tiles and not through the index, which changes while it goes on: a tile that is freed
//! behind it waits for the next one.

use super::Large;
use super::tiles::{Kind, TileId};
use crate::device::{Device, GRANULE};

/// How far a sweep is. Each part begins when the one before has seen all tiles.
#[derive(Clone, Copy)]
enum Sweep {
    /// Forgetting what is over, from this place of the table on.
    Settle(TileId),
    /// Merging what has free neighbours.
    Merge,
    /// Sending the granules of stitches home that are free as a whole, and whether there were any.
    Dissolve(TileId, bool),
}

/// The sweep that is under way.
#[derive(Default)]
pub struct Sweeping(Option<Sweep>);

impl<D: Device> Large<D> {
    /// Forgets what is over, and merges what waited for different streams.
    pub fn coalesce(&mut self) {
        self.flush_hot();
        self.tiles.keeps_apart = false;
        self.upkeep.sweeping = Sweeping(Some(Sweep::Settle(0)));
        while self.is_coalescing() {
            self.coalesce_some(usize::MAX);
        }
    }

    /// Begins to do that in portions.
    pub fn begin_to_coalesce(&mut self) {
        self.upkeep.sweeping = Sweeping(Some(Sweep::Settle(0)));
    }

    /// Whether there are portions left.
    pub fn is_coalescing(&self) -> bool {
        self.upkeep.sweeping.0.is_some()
    }

    /// The next portion: looks at so many tiles at most.
    pub fn coalesce_some(&mut self, tiles: usize) {
        let mut left = tiles;
        self.flush_hot();
        while let Some(sweep) = self.upkeep.sweeping.0.filter(|_| left > 0) {
            self.upkeep.sweeping.0 = match sweep {
                Sweep::Settle(from) => {
                    let to = self.tiles.portion(from, &mut left);
                    (from..to).for_each(|id| self.settle(id));
                    Some(if to < self.tiles.places() { Sweep::Settle(to) } else { Sweep::Merge })
                }
                // What waits for nothing would wait for others.
                Sweep::Merge if self.tiles.keeps_apart => Some(Sweep::Dissolve(0, false)),
                Sweep::Merge => match self.tiles.merge_next(&mut left) {
                    Some(merged) => {
                        self.upkeep.idle_after.merged(merged);
                        Some(Sweep::Merge)
                    }
                    None => Some(Sweep::Dissolve(0, false)),
                },
                Sweep::Dissolve(from, found) => {
                    let to = self.tiles.portion(from, &mut left);
                    let found = (from..to).fold(found, |found, id| self.dissolve_whole(id) || found);
                    match to < self.tiles.places() {
                        true => Some(Sweep::Dissolve(to, found)),
                        // What went home may have merged tiles that were still to be looked at.
                        false => found.then_some(Sweep::Dissolve(0, false)),
                    }
                }
            };
        }
    }

    /// Forgets what a free tile of the common pool waited for and is over.
    fn settle(&mut self, id: TileId) {
        let (tile, lanes) = (self.tiles.get(id), &self.lanes);
        let is_free = tile.kind == Kind::Free && tile.pool == 0 && !tile.pending.is_empty();
        if is_free && self.tiles.keeps_apart && tile.pending.points().all(|point| lanes.is_done(point)) {
            self.tiles.set_anyones(id);
        } else if is_free && tile.pending.points().any(|point| lanes.is_done(point)) {
            self.tiles.settle(id, |point| lanes.is_done(point));
        }
    }

    /// Dissolves the stitches in a free tile. Returns whether there were any.
    fn dissolve_whole(&mut self, id: TileId) -> bool {
        let (tile, before) = (self.tiles.get(id), self.stitches.in_use());
        if before == 0 || tile.kind != Kind::Free || tile.size < GRANULE {
            return false;
        }
        self.dissolve(id);
        self.stitches.in_use() < before
    }

    /// Sends the granules of all stitches home that are free as a whole.
    pub(super) fn dissolve_all(&mut self) {
        // As above, until a round finds nothing.
        loop {
            let before = self.stitches.in_use();
            for id in 0..self.tiles.places() {
                self.dissolve_whole(id);
            }
            if self.stitches.in_use() == before {
                return;
            }
        }
    }
}
