//! What the pool has from the device.

use super::segments::Segments;
use crate::device::Granule;

/// The memory that the pool holds, and how much it may.
pub struct Holdings {
    /// Granules in all: at home, lent, spare and of segments.
    pub granules: u64,
    /// The most that there were at once.
    pub peak: u64,
    /// Bytes that the pool may hold.
    pub limit: u64,
    /// Granules that are mapped nowhere.
    pub spare: Vec<Granule>,
    /// Memory in pieces, where there is no virtual memory.
    pub segments: Segments,
}

impl Default for Holdings {
    fn default() -> Holdings {
        Holdings { granules: 0, peak: 0, limit: u64::MAX, spare: Vec::new(), segments: Segments::default() }
    }
}
