//! Chunks: the granules that small blocks are cut from.
//!
//! They have their homes at the high end of the range, among the stitches, and stay chunks when they are free. What of
//! them is pinned by a cached block differs from one round of a program to the next; between large blocks it would
//! change where these fit each time. Granules of free chunks serve large requests like others, by a
//! [stitch](super::stitches).

use super::owner::CHUNKS;
use super::tiles::{Tile, TileId};
use super::{Large, Request};
use crate::device::{Device, GRANULE, Result};
use crate::streams::Pending;

/// The part of what is held, as a divisor, that is free before large blocks' granules become chunks. With less, or on
/// one stream, they would be missing where large blocks fit the next time, and stitches would be mapped anew.
const LENDS: u64 = 5;

/// Whether a tile has a whole granule.
fn has_a_granule(tile: &Tile) -> bool {
    tile.address.next_multiple_of(GRANULE) + GRANULE <= tile.end()
}

impl<D: Device> Large<D> {
    /// A chunk that is free: the one at the lowest address that needs no waiting, or another one behind an event.
    pub fn fit_chunk(&mut self, request: &Request) -> Option<u64> {
        let id = self.lowest_ready_chunk(request).or_else(|| self.chunk_behind_an_event(request))?;
        Some(self.take_chunk(id, request))
    }

    /// One that needs no waiting.
    pub fn fit_ready_chunk(&mut self, request: &Request) -> Option<u64> {
        let id = self.lowest_ready_chunk(request)?;
        Some(self.take_chunk(id, request))
    }

    fn lowest_ready_chunk(&self, request: &Request) -> Option<TileId> {
        self.tiles.index().chunks_from(0).find(|id| has_a_granule(self.tiles.get(*id)) && self.is_ready(*id, request))
    }

    /// The lowest chunk that the request's stream can be made to wait for.
    #[cold]
    fn chunk_behind_an_event(&mut self, request: &Request) -> Option<TileId> {
        let mut from = 0;
        loop {
            let fits = |id: &TileId| has_a_granule(self.tiles.get(*id)) && self.is_usable(*id, request);
            let id = self.tiles.index().chunks_from(from).find(fits)?;
            let tile = self.tiles.get(id);
            from = tile.end();
            if self.lanes.order(request.lane, request.stream, &tile.pending).is_ok() {
                return Some(id);
            }
        }
    }

    fn take_chunk(&mut self, id: TileId, request: &Request) -> u64 {
        self.take(id, &Request { pool: CHUNKS, ..*request })
    }

    /// A new chunk, and so many more in one piece with it, which is hardly dearer. Where the device has no more memory,
    /// one that is made of what large blocks have left.
    pub fn grow_chunk(&mut self, request: &Request, more: usize) -> Result<u64> {
        if !self.range.is_virtual {
            return match self.new_chunk_segment() {
                Ok(tile) => Ok(self.take_chunk(tile, request)),
                Err(error) => self.fit(request).ok_or(error),
            };
        }
        if let Some(tile) = self.lend_chunk(request) {
            return Ok(self.take_chunk(tile, request));
        }
        let granules = 1 + more;
        if more > 0 && self.check_limit(granules as u64).is_err() {
            return self.grow_chunk(request, 0);
        }
        let Ok(pieces) = self.obtain(granules, granules as u64) else {
            if more > 0 {
                return self.grow_chunk(request, 0);
            }
            return match self.fit(request) {
                Some(address) => Ok(address),
                None => self.grow_or_wait(request),
            };
        };
        let size = granules as u64 * GRANULE;
        let Some(hole) = self.tiles.index().unmapped_from(size).next() else {
            self.holdings.spare.extend(pieces);
            return Err(super::pieces::NO_ADDRESSES);
        };
        let to = self.tiles.get(hole).end();
        let tile = self.tiles.carve(hole, to - size, to);
        if let Err(error) = self.map_all(tile, &pieces) {
            self.holdings.spare.extend(pieces);
            return Err(error);
        }
        self.settle_at(to - size, &pieces);
        self.tiles.set_free_apart(tile, CHUNKS, Pending::default(), self.upkeep.now);
        Ok(self.take_chunk(tile, request))
    }

    /// A granule that lies free among the large blocks, under a second address, where several streams have used the
    /// pool and much lies free: what was another stream's. It goes home when the chunk is free.
    fn lend_chunk(&mut self, request: &Request) -> Option<TileId> {
        if self.lanes.count() < 2 || self.tiles.index().free_bytes() < self.held() / LENDS {
            return None;
        }
        let mut donors = self.donors(request, 1);
        if donors.granules() == 0 && self.split_stitches() {
            donors = self.donors(request, 1);
        }
        if donors.granules() == 0 {
            return None;
        }
        let tile = self.stitch(1, &donors).ok()?;
        let pending = self.tiles.get(tile).pending.clone();
        match self.lanes.order(request.lane, request.stream, &pending) {
            Ok(()) => Some(tile),
            Err(_) => {
                self.dissolve(tile);
                None
            }
        }
    }
}
