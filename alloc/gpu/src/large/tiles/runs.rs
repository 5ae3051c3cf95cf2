//! Free tiles side by side that were not merged, since they wait for different work, and what is made of them at once.

use super::{Kind, Tile, TileId, Tiles};

impl Tiles {
    /// The places that are noted for merging; others are forgotten.
    pub fn noted_apart(&mut self) -> Vec<TileId> {
        let mut noted = std::mem::take(&mut self.apart);
        noted.retain(|&id| {
            let Tile { kind, pool, before, after, .. } = *self.get(id);
            let stays = kind == Kind::Free && (self.is_free_in(before, pool) || self.is_free_in(after, pool));
            self.at(id).apart = stays;
            stays
        });
        self.apart.clone_from(&noted);
        noted
    }

    /// The first of the free tiles side by side that `may` lets through, from one of them on.
    pub fn first_of_run(&self, id: TileId, may: impl Fn(TileId) -> bool) -> TileId {
        let mut first = id;
        while let Some(before) = self.before(first).filter(|id| self.is_free_in(*id, 0) && may(*id)) {
            first = before;
        }
        first
    }

    /// Whether such tiles reach to an address, from one of them on.
    pub fn runs_to(&self, first: TileId, end: u64, may: impl Fn(TileId) -> bool) -> bool {
        let mut last = first;
        while self.get(last).end() < end {
            let Some(after) = self.after(last).filter(|id| self.is_free_in(*id, 0) && may(*id)) else { return false };
            last = after;
        }
        true
    }

    /// Puts free tiles side by side together, from this one on to an address. What is beyond it of the last one goes
    /// on waiting for what it did.
    pub fn merge_to(&mut self, first: TileId, end: u64) -> TileId {
        while self.get(first).end() < end {
            let next = self.get(first).after;
            let tile = self.get(next);
            if tile.end() > end {
                let from = tile.address;
                self.carve(next, from, end);
                self.note_apart(self.get(next).after);
            }
            self.merge(first);
        }
        first
    }
}
