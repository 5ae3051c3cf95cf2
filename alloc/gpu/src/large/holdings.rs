//! What the pool has from the device.

use super::segments::Segments;
use crate::device::Piece;

/// The memory that the pool holds, and how much it may.
pub struct Holdings {
    /// Granules in all: at home, lent, spare and of segments.
    pub granules: u64,
    /// The most that there were at once.
    pub peak: u64,
    /// Bytes that the pool may hold.
    pub limit: u64,
    /// Pieces that are mapped nowhere.
    pub spare: Vec<Piece>,
    /// Memory in pieces, where there is no virtual memory.
    pub segments: Segments,
}

impl Holdings {
    /// Bytes that are mapped nowhere.
    pub fn spare_bytes(&self) -> u64 {
        self.spare.iter().map(|piece| piece.bytes).sum()
    }
}

impl Default for Holdings {
    fn default() -> Holdings {
        Holdings { granules: 0, peak: 0, limit: u64::MAX, spare: Vec::new(), segments: Segments::default() }
    }
}
