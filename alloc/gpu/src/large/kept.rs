//! Freed blocks that are kept as they were: the hot ones, and those in quarantine. Their tiles are those of blocks.

use super::Large;
use super::quarantine::{Held, Quarantine};
use super::tiles::{Kind, Tile, TileId};
use crate::device::{Device, Stream};
use crate::streams::{LaneId, Pending};

impl<D: Device> Large<D> {
    /// Whether a tile is a freed block's, kept as it was: hot or in quarantine.
    pub(super) fn is_kept(&self, tile: TileId) -> bool {
        self.hot.has(tile) || self.quarantine.has(tile)
    }

    /// Where such blocks lie, and how long they are.
    pub(super) fn kept(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.hot.pieces().chain(self.quarantine.pieces())
    }

    /// Frees a block as [`free`](Self::free) does, and has it wait in quarantine if it is not too large and no graph's.
    pub fn set_aside(&mut self, address: u64, lane: LaneId, stream: Stream) -> Option<u64> {
        let tile = self.blocks.get(address)?;
        let Tile { size, kind, pool, .. } = *self.tiles.get(tile);
        if pool != 0 || size > Quarantine::limit(self.held()) {
            return self.free(address, lane);
        }
        self.blocks.remove(address);
        let mut pending = Pending::at(self.lanes.now(lane));
        if let Kind::Used(allocated_on) = kind {
            pending.add(self.lanes.now(allocated_on));
        }
        for lane in self.take_shared(address).unwrap_or_default() {
            pending.add(self.lanes.now(lane));
        }
        self.quarantine.add(Held { address, size, stream, pending, tile: Some(tile) });
        Some(size)
    }

    /// Makes a block free that was in quarantine.
    pub fn release_held(&mut self, tile: TileId, pending: Pending) {
        self.release(tile, 0, pending);
    }
}
