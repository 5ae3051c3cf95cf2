//! The blocks that were freed last.
//!
//! They are not merged yet: the next requests are often for just such ones, those of a loop's next round. Their tiles
//! are still those of blocks. A request of another size or lane has all of them merged first,
//! so that it finds what it would have found.

use super::tiles::TileId;
use crate::device::GRANULE;
use crate::streams::LaneId;

/// How many are kept.
const MOST: usize = 16;

/// Bytes of a block that is kept beside others. Where longer ones stay apart, what is next to them does, too, and
/// traces of training runs settle later.
const BESIDE_OTHERS: u64 = 4 * GRANULE;

/// A block that was freed and is kept as it is, for the lane that it was allocated and freed on.
#[derive(Clone, Copy)]
pub struct Hot {
    pub address: u64,
    pub size: u64,
    pub lane: LaneId,
    pub tile: TileId,
}

/// The hot blocks, the oldest first.
#[derive(Default)]
pub struct HotBlocks(Vec<Hot>);

impl HotBlocks {
    /// Whether the others have to be merged before a block of this size is added.
    #[inline]
    pub fn is_too_large(size: u64) -> bool {
        size > BESIDE_OTHERS
    }

    /// Adds one. Returns the oldest if there are too many.
    #[inline]
    pub fn add(&mut self, block: Hot) -> Option<Hot> {
        let oldest = if self.0.len() < MOST { None } else { Some(self.0.remove(0)) };
        self.0.push(block);
        oldest
    }

    /// Takes the one of this size, lane and alignment that was freed last.
    #[inline]
    pub fn take(&mut self, size: u64, lane: LaneId, align: u64) -> Option<Hot> {
        let same = |hot: &Hot| hot.size == size && hot.lane == lane && hot.address & (align - 1) == 0;
        let at = self.0.iter().rposition(same)?;
        Some(self.0.remove(at))
    }

    /// The one at a place, from 0 for the oldest.
    #[inline]
    pub fn get(&self, at: usize) -> Option<Hot> {
        self.0.get(at).copied()
    }

    #[inline]
    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn has(&self, tile: TileId) -> bool {
        self.0.iter().any(|hot| hot.tile == tile)
    }

    /// Where they lie, and how long they are.
    pub fn pieces(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|hot| (hot.address, hot.size))
    }
}

#[cfg(test)]
mod tests {
    use super::{Hot, HotBlocks, MOST};

    fn block(number: u32, size: u64) -> Hot {
        Hot { address: u64::from(number) << 8, size, lane: 0, tile: number }
    }

    #[test]
    fn the_newest_that_fits_exactly_is_taken() {
        let mut blocks = HotBlocks::default();
        for (number, size) in [(2, 300), (4, 300), (5, 300), (6, 200)] {
            assert!(blocks.add(block(number, size)).is_none());
        }
        let mut take = |size, lane, align| blocks.take(size, lane, align).map(|hot| hot.tile);
        assert_eq!((take(400, 0, 256), take(300, 1, 256)), (None, None));
        assert_eq!(
            (take(300, 0, 1024), take(300, 0, 256), take(300, 0, 256), take(300, 0, 256)),
            (Some(4), Some(5), Some(2), None)
        );
        assert!(blocks.has(6) && !blocks.has(5));
    }

    #[test]
    fn the_oldest_gives_way() {
        let mut blocks = HotBlocks::default();
        let gone: Vec<u32> = (0..20).filter_map(|number| blocks.add(block(number, 1))).map(|hot| hot.tile).collect();
        assert_eq!(gone, [0, 1, 2, 3]);
        assert_eq!((blocks.get(0).map(|hot| hot.tile), blocks.pieces().count()), (Some(4), MOST));
    }
}
