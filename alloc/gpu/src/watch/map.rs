//! The map of a pool's memory: cells of equal size, each with what most of it is, where that lies, and whose it is.

use poolscope_wire::{MAP_CELLS, MAP_STREAMS, cell, place};

use crate::device::GRANULE;

/// Bytes of a cell, so that a map has room for so much memory.
pub fn cell_bytes(memory: u64) -> u64 {
    memory.div_ceil(MAP_CELLS as u64).next_multiple_of(GRANULE).max(GRANULE)
}

/// Memory that lies in one piece and is in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// A value of [`poolscope_wire::cell`].
    pub state: u8,
    /// Where it begins; 0 if that is not known.
    pub address: u64,
    pub bytes: u64,
    /// The stream that it is of or waits for, as the driver's handle; none if that is no single one.
    pub stream: Option<u64>,
}

/// What lies where, as it is published.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    /// Values of [`poolscope_wire::cell`].
    pub cells: Vec<u8>,
    /// Where each cell lies, and whose it is: [`poolscope_wire::place`].
    pub places: Vec<u64>,
    /// The streams that places name, as the driver's handles.
    pub streams: Vec<u64>,
}

/// What of a cell is in one state.
#[derive(Clone, Copy, Default)]
struct Part {
    bytes: u64,
    /// The largest piece of it: its bytes, its address, its stream.
    largest: (u64, u64, Option<u64>),
}

/// Lays memory of different states side by side, and says of each cell what most of it is.
pub struct Cells {
    bytes: u64,
    map: Map,
    now: [Part; cell::ALL.len()],
    filled: u64,
}

impl Cells {
    /// No memory yet, in cells of so many bytes.
    pub fn new(bytes: u64) -> Cells {
        Cells { bytes, map: Map::default(), now: Default::default(), filled: 0 }
    }

    /// Adds memory behind what is there.
    pub fn add(&mut self, mut piece: Piece) {
        while piece.bytes > 0 && self.map.cells.len() < MAP_CELLS {
            let bytes = piece.bytes.min(self.bytes - self.filled);
            let part = &mut self.now[usize::from(piece.state)];
            part.bytes += bytes;
            if bytes > part.largest.0 {
                part.largest = (bytes, piece.address, piece.stream);
            }
            self.filled += bytes;
            piece.bytes -= bytes;
            if piece.address != 0 {
                piece.address += bytes;
            }
            if self.filled == self.bytes {
                self.close();
            }
        }
    }

    fn close(&mut self) {
        let most = cell::ALL.into_iter().max_by_key(|state| self.now[usize::from(*state)].bytes);
        let state = most.unwrap_or(cell::UNMAPPED);
        let (_, address, stream) = self.now[usize::from(state)].largest;
        let stream = stream.and_then(|stream| self.number(stream));
        self.map.cells.push(state);
        self.map.places.push(place::of(address, stream));
        self.now = Default::default();
        self.filled = 0;
    }

    /// The number of a stream among those of the map; none if there are too many.
    fn number(&mut self, stream: u64) -> Option<usize> {
        let streams = &mut self.map.streams;
        let known = streams.iter().rposition(|known| *known == stream);
        known.or_else(|| {
            (streams.len() < MAP_STREAMS).then(|| {
                streams.push(stream);
                streams.len() - 1
            })
        })
    }

    /// The map.
    pub fn end(mut self) -> Map {
        if self.filled > 0 && self.map.cells.len() < MAP_CELLS {
            self.close();
        }
        self.map
    }
}

#[cfg(test)]
mod tests {
    use poolscope_wire::{MAP_CELLS, MAP_STREAMS, cell, place};

    use super::{Cells, Piece, cell_bytes};
    use crate::device::GRANULE;

    #[test]
    fn a_cell_is_what_most_of_it_is_and_lies_where_the_largest_piece_of_that_does() {
        let mut cells = Cells::new(100);
        let pieces = [
            (cell::LARGE, 0x1000, 140, Some(7)),
            (cell::FREE, 0x2000, 30, None),
            (cell::FREE, 0x3000, 40, Some(9)),
            (cell::SMALL, 0x4000, 30, None),
            (cell::LARGE, 0x5000, 65, Some(9)),
        ];
        for (state, address, bytes, stream) in pieces {
            cells.add(Piece { state, address, bytes, stream });
        }
        let map = cells.end();
        assert_eq!(map.cells, [cell::LARGE, cell::FREE, cell::LARGE, cell::LARGE]);
        let where_and_whose =
            |word: &u64| (place::address(*word).expect("is known"), place::stream(*word).map(|at| map.streams[at]));
        let places: Vec<_> = map.places.iter().map(where_and_whose).collect();
        // The second cell has 40 of the first block, and 30 and 30 of what is free.
        assert_eq!(places, [(0x1000, Some(7)), (0x2000, None), (0x5000, Some(9)), (0x5000 + 60, Some(9))]);
    }

    #[test]
    fn all_memory_of_a_device_fits() {
        for memory in [0, 1, GRANULE, 80 << 30, (141 << 30) + 5, 1 << 50] {
            let bytes = cell_bytes(memory);
            assert!(bytes.is_multiple_of(GRANULE) && memory.div_ceil(bytes) <= MAP_CELLS as u64, "{memory}");
        }
        let mut cells = Cells::new(1);
        cells.add(Piece { state: cell::LARGE, address: 0, bytes: u64::MAX, stream: None });
        let map = cells.end();
        assert_eq!((map.cells.len(), map.places.len()), (MAP_CELLS, MAP_CELLS));
    }

    #[test]
    fn more_streams_than_have_room_are_not_named() {
        let mut cells = Cells::new(1);
        for at in 0..MAP_STREAMS as u64 + 3 {
            cells.add(Piece { state: cell::LARGE, address: 4096, bytes: 1, stream: Some(at + 100) });
        }
        let map = cells.end();
        assert_eq!(map.streams.len(), MAP_STREAMS);
        assert_eq!(place::stream(map.places[MAP_STREAMS - 1]), Some(MAP_STREAMS - 1));
        assert_eq!(place::stream(map.places[MAP_STREAMS]), None);
    }
}
