//! The map of a pool's memory: cells of equal size, each with what most of it is.

use poolscope_wire::{MAP_CELLS, cell};

use crate::device::GRANULE;

/// Bytes of a cell, so that a map has room for so much memory.
pub fn cell_bytes(memory: u64) -> u64 {
    memory.div_ceil(MAP_CELLS as u64).next_multiple_of(GRANULE).max(GRANULE)
}

/// Lays memory of different states side by side, and says of each cell what most of it is.
pub struct Cells {
    bytes: u64,
    cells: Vec<u8>,
    now: [u64; cell::ALL.len()],
    filled: u64,
}

impl Cells {
    /// No memory yet, in cells of so many bytes.
    pub fn new(bytes: u64) -> Cells {
        Cells { bytes, cells: Vec::new(), now: [0; cell::ALL.len()], filled: 0 }
    }

    /// Adds memory behind what is there.
    pub fn add(&mut self, state: u8, mut bytes: u64) {
        while bytes > 0 && self.cells.len() < MAP_CELLS {
            let part = bytes.min(self.bytes - self.filled);
            self.now[usize::from(state)] += part;
            self.filled += part;
            bytes -= part;
            if self.filled == self.bytes {
                self.close();
            }
        }
    }

    fn close(&mut self) {
        let most = cell::ALL.into_iter().max_by_key(|state| self.now[usize::from(*state)]);
        self.cells.push(most.unwrap_or(cell::UNMAPPED));
        self.now = [0; cell::ALL.len()];
        self.filled = 0;
    }

    /// The cells.
    pub fn end(mut self) -> Vec<u8> {
        if self.filled > 0 && self.cells.len() < MAP_CELLS {
            self.close();
        }
        self.cells
    }
}

#[cfg(test)]
mod tests {
    use poolscope_wire::{MAP_CELLS, cell};

    use super::{Cells, cell_bytes};
    use crate::device::GRANULE;

    #[test]
    fn a_cell_is_what_most_of_it_is() {
        let mut cells = Cells::new(100);
        for (state, bytes) in [(cell::LARGE, 140), (cell::FREE, 70), (cell::SMALL, 30), (cell::LARGE, 65)] {
            cells.add(state, bytes);
        }
        assert_eq!(cells.end(), [cell::LARGE, cell::FREE, cell::LARGE, cell::LARGE]);
    }

    #[test]
    fn all_memory_of_a_device_fits() {
        for memory in [0, 1, GRANULE, 80 << 30, (141 << 30) + 5, 1 << 50] {
            let bytes = cell_bytes(memory);
            assert!(bytes.is_multiple_of(GRANULE) && memory.div_ceil(bytes) <= MAP_CELLS as u64, "{memory}");
        }
        let mut cells = Cells::new(1);
        cells.add(cell::LARGE, u64::MAX);
        assert_eq!(cells.end().len(), MAP_CELLS);
    }
}
