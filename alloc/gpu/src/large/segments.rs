//! Memory of a device that has no virtual memory: segments, each of which is plain memory of the driver's.
//!
//! A segment is a chain of tiles with no neighbours outside of it, so that all else (best fit, streams, chunks) is as
//! it is in the one range of a device that has virtual memory. What can't be done is to put free memory of two segments
//! together: a segment all of which is free goes back when it has been idle,
//! or when there is no memory for another one.
//!
//! The sizes are those that PyTorch's allocator has found to do: 20 MiB for requests up to 10 MiB,
//! and what is asked for above.

use std::collections::BTreeMap;

use super::Large;
use super::owner::{CHUNKS, PoolId};
use super::pieces::NO_ADDRESSES;
use super::tiles::{Kind, TileId};
use crate::device::{Device, GRANULE, Result};
use crate::streams::Pending;

/// Addresses that the pool can manage: those of user space.
pub const ADDRESSES: u64 = 1 << 47;

/// Requests up to this share segments.
const SHARED_REQUEST: u64 = 10 << 20;
const SHARED_SEGMENT: u64 = 20 << 20;
/// A segment that chunks are cut from.
const CHUNK_SEGMENT: u64 = 16 << 20;

/// The segments, by address.
#[derive(Debug, Default)]
pub struct Segments(BTreeMap<u64, u64>);

impl<D: Device> Large<D> {
    /// A free tile that has the room, in a new segment.
    pub(super) fn new_segment(&mut self, room: u64) -> Result<TileId> {
        let least = room.next_multiple_of(GRANULE);
        let usual = if room <= SHARED_REQUEST { SHARED_SEGMENT } else { least };
        match self.add_segment(usual, 0) {
            Err(_) if usual > least => self.add_segment(least, 0),
            result => result,
        }
    }

    /// A free tile of at least one aligned chunk, in a new segment.
    pub(super) fn new_chunk_segment(&mut self) -> Result<TileId> {
        // Plain memory need not begin at a multiple of 2 MiB; locked host memory does at a page.
        self.add_segment(CHUNK_SEGMENT, CHUNKS).or_else(|_| self.add_segment(2 * GRANULE, CHUNKS))
    }

    fn add_segment(&mut self, size: u64, pool: PoolId) -> Result<TileId> {
        self.check_limit(size / GRANULE)?;
        let address = self.driver.allocate(size)?;
        if address.checked_add(size).is_none_or(|end| end > ADDRESSES) {
            self.driver.free(address)?;
            return Err(NO_ADDRESSES);
        }
        self.count_created(size / GRANULE);
        self.holdings.segments.0.insert(address, size);
        let tile = self.tiles.add_segment(address, size);
        self.tiles.set_free_apart(tile, pool, Pending::default(), self.upkeep.now);
        Ok(tile)
    }

    /// Gives segments back that have been free for `delay` nanoseconds, with at most so many calls.
    pub(super) fn release_segments(&mut self, delay: u64, budget: u64) {
        // To free plain memory is to wait for the device, which a capture forbids.
        if self.lanes.is_any_capturing() {
            return;
        }
        let mut idle = self.tiles.index().free_from(GRANULE);
        idle.extend(self.tiles.index().free_of(CHUNKS));
        let mut left = budget;
        for id in idle {
            let tile = self.tiles.get(id);
            let (address, size) = (tile.address, tile.size);
            let whole = tile.kind == Kind::Free && self.holdings.segments.0.get(&address) == Some(&size);
            let over = tile.pending.points().all(|point| self.lanes.is_done(point));
            if left == 0 || !whole || !over || tile.since.saturating_add(delay) > self.upkeep.now {
                continue;
            }
            left -= 1;
            if self.driver.free(address).is_err() {
                return;
            }
            self.holdings.segments.0.remove(&address);
            self.tiles.remove_segment(id);
            self.holdings.granules -= size / GRANULE;
            self.counted.granules_released += size / GRANULE;
        }
    }
}
