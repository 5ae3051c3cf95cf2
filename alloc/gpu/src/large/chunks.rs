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

/// Bytes that a pool holds at most where small blocks have what large ones leave in any case: a few granules count there.
pub const SHARED_UP_TO: u64 = 512 << 20;

/// Whether a tile has a whole granule.
fn has_a_granule(tile: &Tile) -> bool {
    tile.address.next_multiple_of(GRANULE) + GRANULE <= tile.end()
}

impl<D: Device> Large<D> {
    /// A chunk that is free, at the lowest address that needs no waiting; and what it waits for.
    pub fn fit_chunk(&mut self, request: &Request) -> Option<(u64, Pending)> {
        let is_ready = |id: &TileId| has_a_granule(self.tiles.get(*id)) && self.is_ready(*id, request);
        let id = self.tiles.index().chunks_from(0).find(is_ready)?;
        Some(self.take_chunk(id, request))
    }

    /// A chunk that is free once what another stream does is over, behind an event.
    pub fn fit_chunk_behind(&mut self, request: &Request) -> Option<(u64, Pending)> {
        let id = self.chunk_behind_an_event(request)?;
        Some(self.take_chunk(id, request))
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

    /// A block of what lies free between large blocks and has no whole granule, which would serve others.
    pub fn fit_between(&mut self, request: &Request) -> Option<u64> {
        self.flush_hot();
        let id = self.find_fit(request)?;
        if has_a_granule(self.tiles.get(id)) {
            return None;
        }
        Some(self.take(id, request))
    }

    fn take_chunk(&mut self, id: TileId, request: &Request) -> (u64, Pending) {
        let pending = self.tiles.get(id).pending.clone();
        (self.take(id, &Request { pool: CHUNKS, ..*request }), pending)
    }

    /// Frees a chunk once this is over.
    pub fn free_chunk(&mut self, address: u64, pending: Pending) {
        let Some(id) = self.blocks.remove(address) else { return };
        let stays = self.tiles.get(id).pool == CHUNKS && !self.is_lent(id);
        self.release(id, if stays { CHUNKS } else { 0 }, pending);
    }

    /// Whether a request may have memory that waits for this without waiting itself.
    pub fn is_ready_for(&self, request: &Request, pending: &Pending) -> bool {
        pending.points().all(|point| self.lanes.is_ordered(request.lane, point))
    }

    /// Sees to it that a request's stream waits for this, if it may.
    pub fn order_for(&mut self, request: &Request, pending: &Pending) -> bool {
        let can = |point| self.waits && self.lanes.can_order(request.lane, point);
        pending.points().all(can) && self.lanes.order(request.lane, request.stream, pending).is_ok()
    }

    /// What was large blocks' waits, for others, for what the stream that has it now does first.
    fn large_as_chunk(&mut self, address: u64, request: &Request) -> (u64, Pending) {
        (address, Pending::at(self.lanes.now(request.lane)))
    }

    /// A new chunk, the first of so many granules, and what it waits for. Where the device has no more memory, one that
    /// is made of what large blocks have left.
    pub fn grow_chunk(&mut self, request: &Request, granules: u64) -> Result<(u64, Pending)> {
        if !self.range.is_virtual {
            return match self.new_chunk_segment() {
                Ok(tile) => Ok(self.take_chunk(tile, request)),
                Err(error) => self.fit(request).map(|address| self.large_as_chunk(address, request)).ok_or(error),
            };
        }
        if let Some(tile) = self.lend_chunk(request) {
            return Ok(self.take_chunk(tile, request));
        }
        let obtained = self.obtain(granules as usize, granules).or_else(|_| self.obtain(1, 1));
        let Ok(pieces) = obtained else {
            let address = match self.fit(request) {
                Some(address) => address,
                None => self.grow(request)?,
            };
            return Ok(self.large_as_chunk(address, request));
        };
        let bytes = pieces.iter().map(|piece| piece.bytes).sum();
        let Some(hole) = self.tiles.index().unmapped_from(bytes).next() else {
            self.holdings.spare.extend(pieces);
            return Err(super::grow::NO_ADDRESSES);
        };
        let to = self.tiles.get(hole).end();
        let tile = self.tiles.carve(hole, to - bytes, to);
        if let Err(error) = self.map_all(tile, &pieces) {
            self.holdings.spare.extend(pieces);
            return Err(error);
        }
        self.settle_at(to - bytes, &pieces);
        self.tiles.set_free_apart(tile, CHUNKS, Pending::default(), self.upkeep.now);
        Ok(self.take_chunk(tile, request))
    }

    /// A granule that lies free among the large blocks, under a second address, where several streams have used the
    /// pool and much lies free: what was another stream's. It goes home when the chunk is free.
    fn lend_chunk(&mut self, request: &Request) -> Option<TileId> {
        let much = self.lanes.count() > 1 && self.tiles.index().free_bytes() >= self.held() / LENDS;
        if !much && self.held() > SHARED_UP_TO {
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
