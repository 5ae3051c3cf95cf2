//! Freed blocks that nobody gets yet: where a pool is hardened, a block that was freed waits here, so that a second
//! free of it is found, and work that uses it after its free does not meet another block at once.
//!
//! The oldest goes first, when there are too many or too many bytes. What a block has to wait for is noted at its free.

use std::collections::VecDeque;

use super::tiles::TileId;
use crate::device::{GRANULE, Stream};
use crate::streams::Pending;

/// Blocks that wait at most.
const BLOCKS: usize = 64;
/// The part of what the pool holds that may wait: a 32nd.
const PART: u64 = 32;
/// Bytes that wait at most.
const BYTES: u64 = 64 << 20;

/// A block that waits.
pub struct Held {
    pub address: u64,
    pub size: u64,
    /// The stream that it was freed on.
    pub stream: Stream,
    /// What its memory waits for, beside the order of its slab's lane.
    pub pending: Pending,
    /// A large block's tile.
    pub tile: Option<TileId>,
}

/// The blocks that wait, the oldest first.
#[derive(Default)]
pub struct Quarantine {
    held: VecDeque<Held>,
    bytes: u64,
}

impl Quarantine {
    /// Bytes that may wait where the pool holds so many: a granule in any case. A larger block does not wait.
    pub fn limit(held: u64) -> u64 {
        (held / PART).clamp(GRANULE, BYTES)
    }

    pub fn add(&mut self, block: Held) {
        self.bytes += block.size;
        self.held.push_back(block);
    }

    /// The oldest, if that many blocks, or more bytes than `limit`, are too many.
    pub fn take_excess(&mut self, limit: u64) -> Option<Held> {
        if self.held.len() > BLOCKS || self.bytes > limit { self.take_oldest() } else { None }
    }

    pub fn take_oldest(&mut self) -> Option<Held> {
        let oldest = self.held.pop_front()?;
        self.bytes -= oldest.size;
        Some(oldest)
    }

    /// The block that begins there, if it waits.
    pub fn get(&self, address: u64) -> Option<&Held> {
        self.held.iter().find(|held| held.address == address)
    }

    pub fn has(&self, tile: TileId) -> bool {
        self.held.iter().any(|held| held.tile == Some(tile))
    }

    /// Where large blocks that wait lie, and how long they are.
    pub fn pieces(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.held.iter().filter(|held| held.tile.is_some()).map(|held| (held.address, held.size))
    }
}

#[cfg(test)]
mod tests {
    use super::{BLOCKS, Held, Quarantine};
    use crate::device::{GRANULE, Stream};
    use crate::streams::Pending;

    #[test]
    fn the_oldest_goes_when_there_are_too_many_blocks_or_bytes() {
        let mut quarantine = Quarantine::default();
        let mut add = |address, size, limit| {
            quarantine.add(Held { address, size, stream: Stream::NULL, pending: Pending::default(), tile: None });
            std::iter::from_fn(|| quarantine.take_excess(limit)).map(|held| held.address).collect::<Vec<_>>()
        };
        for address in 0..BLOCKS as u64 {
            assert_eq!(add(address, 1, 1000), []);
        }
        assert_eq!(add(1000, 1, 1000), [0]);
        assert_eq!(add(1001, 940, 1000), [1, 2, 3, 4]);
        assert_eq!([64, 128, 1 << 20].map(|held| Quarantine::limit(held * GRANULE) / GRANULE), [2, 4, 32]);
    }
}
