//! Pools of device memory: what they count, and a map of what lies where.

use crate::record::record;

/// Cells of a device's map, at most. One stands for as many granules as it takes for all of the pool's memory to fit.
pub const MAP_CELLS: usize = 16 * 1024;

/// Streams that the places of a map name, at most.
pub const MAP_STREAMS: usize = 256;

/// Bytes of a map: its cells, a [`place`] for each of them, and the streams that places name, each as the driver's
/// handle.
pub const MAP_LEN: usize = MAP_CELLS + size_of::<u64>() * (MAP_CELLS + MAP_STREAMS);

/// Bytes that a device's name may take.
pub const DEVICE_NAME_MAX: usize = 80;

/// Places for counters in a [`DeviceRecord`].
pub const DEVICE_COUNTERS_MAX: usize = 48;

/// Values of the cells of a map: what most of the cell's memory is. A pool's memory is shown in the order of its
/// addresses, without what lies between; what the pool does not hold comes last.
pub mod cell {
    /// Not the pool's: the device's own, or another program's.
    pub const UNMAPPED: u8 = 0;
    /// Free, for anyone.
    pub const FREE: u8 = 1;
    /// Free once the work of some stream is over.
    pub const PENDING: u8 = 2;
    /// Cut up for small blocks, which may be allocated or free.
    pub const SMALL: u8 = 3;
    /// In allocated blocks larger than those.
    pub const LARGE: u8 = 4;
    /// A captured graph's, allocated or free.
    pub const GRAPH: u8 = 5;

    /// All values.
    pub const ALL: [u8; 6] = [UNMAPPED, FREE, PENDING, SMALL, LARGE, GRAPH];

    /// The field's word for it.
    pub fn name(cell: u8) -> &'static str {
        match cell {
            UNMAPPED => "unmapped",
            FREE => "free",
            PENDING => "pending",
            SMALL => "small",
            LARGE => "large",
            GRAPH => "graph",
            _ => "unknown",
        }
    }
}

/// Where the memory of a cell lies, and which stream's it is, as one word. The memory of a cell may lie in several
/// pieces: this is of the largest one in the cell's state.
pub mod place {
    const ADDRESS_BITS: u32 = 48;

    /// An address and a stream, by its number among those of the map.
    pub fn of(address: u64, stream: Option<usize>) -> u64 {
        if address >> ADDRESS_BITS != 0 {
            return 0;
        }
        let stream = stream.filter(|stream| *stream < super::MAP_STREAMS).map_or(0, |stream| stream as u64 + 1);
        stream << ADDRESS_BITS | address
    }

    /// Where the memory begins; none if there is none.
    pub fn address(word: u64) -> Option<u64> {
        Some(word & ((1 << ADDRESS_BITS) - 1)).filter(|address| *address != 0)
    }

    /// The number of its stream; none if it is of no stream alone, or of one that is not among those of the map.
    pub fn stream(word: u64) -> Option<usize> {
        (word >> ADDRESS_BITS).checked_sub(1).map(|stream| stream as usize)
    }
}

record! {
    /// A pool of device memory. Its cells are the record of the same index in
    /// [`Region::DeviceMaps`](crate::Region::DeviceMaps), [`MAP_LEN`] bytes.
    pub struct DeviceRecord: 512 {
        /// Odd while the record, or its map, is being written.
        0 seq: u32,
        /// Number of the device, as the driver counts them.
        4 device: u32,
        /// [`kind::DEVICE`](crate::kind::DEVICE) or [`kind::PINNED`](crate::kind::PINNED);
        /// 0 if the record was never used.
        8 kind: u16,
        /// Bytes used of `name`.
        10 name_len: u16,
        /// Cells of the map that are used.
        12 map_cells: u32,
        /// Bytes that a cell stands for.
        16 cell_bytes: u64,
        /// Bytes of memory that the device has in all; 0 if that means nothing.
        24 memory_bytes: u64,
        /// `CLOCK_MONOTONIC` of the last writing, in nanoseconds.
        32 time_ns: u64,
        /// Streams of the map that are used.
        40 map_streams: u32,
        /// Zero.
        44 reserved: u32,
        /// Counters, indexed by [`DeviceCounter`](crate::DeviceCounter).
        48 counters: [u64; 48],
        /// The device's name.
        432 name: [u8; 80],
    }
}

const _: () = assert!(crate::DEVICE_COUNTERS.len() <= DEVICE_COUNTERS_MAX);

#[cfg(test)]
mod tests {
    use super::{MAP_STREAMS, place};

    #[test]
    fn a_place_has_an_address_and_perhaps_a_stream() {
        for address in [0, 1 << 21, 0x7fff_ffff_f000] {
            for stream in [None, Some(0), Some(MAP_STREAMS - 1)] {
                let word = place::of(address, stream);
                assert_eq!((place::address(word), place::stream(word)), ((address != 0).then_some(address), stream));
            }
        }
        assert_eq!(place::stream(place::of(4096, Some(MAP_STREAMS))), None);
        assert_eq!(place::of(1 << 48, Some(1)), 0, "an address that has no room is not known");
    }
}
