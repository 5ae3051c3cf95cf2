//! What a hardened pool does beside: blocks go into quarantine and out of it, and frees are refused in words.

use super::super::PoolError;
use super::Core;
use crate::device::{Device, Stream};
use crate::large::{Held, Quarantine};
use crate::streams::Pending;

impl<D: Device> Core<D> {
    /// Puts a small block back that waits for this beside the order of its slab's lane.
    pub(super) fn put(&mut self, address: u64, pending: Pending) {
        if pending.is_empty() {
            self.slabs.put(address);
        } else {
            self.slabs.wait(address, pending);
        }
    }

    /// Ends a block's time in quarantine: it is free, and waits for what it would have waited for.
    fn release(&mut self, held: Held) {
        match held.tile {
            Some(tile) => self.large.release_held(tile, held.pending),
            None => self.put(held.address, held.pending),
        }
    }

    /// Releases what is too much for the quarantine, the oldest first.
    pub(super) fn release_excess(&mut self) {
        let limit = Quarantine::limit(self.large.held());
        while let Some(held) = self.large.quarantine.take_excess(limit) {
            self.release(held);
        }
    }

    /// Releases all that is in quarantine.
    pub fn empty_quarantine(&mut self) {
        while let Some(held) = self.large.quarantine.take_oldest() {
            self.release(held);
        }
    }

    /// Why an address is refused where the program has no block.
    pub fn no_block(&self, address: u64) -> PoolError {
        match self.large.quarantine.get(address) {
            Some(held) => PoolError::DoubleFree { address, stream: held.stream },
            None => PoolError::NotABlock(address),
        }
    }

    /// Refuses a free on a stream that the driver says is none. During its capture nothing is asked.
    pub fn check_stream(&mut self, address: u64, stream: Stream) -> Result<(), PoolError> {
        if self.handles.captured(stream).is_some() || self.large.lanes.is_there(stream) {
            return Ok(());
        }
        Err(PoolError::NoStream { address, stream })
    }
}
