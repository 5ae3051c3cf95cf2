//! The addresses of a device's tiles.

use super::segments::ADDRESSES;
use super::stitches::Run;
use crate::device::{Device, Driver, GRANULE, Piece, Result};

/// The range that was reserved, and which granule of physical memory is at home where.
pub struct Range {
    /// The first address, a multiple of a granule; 0 where there are segments.
    pub base: u64,
    /// Bytes.
    pub size: u64,
    /// Whether granules are mapped in it; else there are segments, at any of its addresses.
    pub is_virtual: bool,
    /// For each granule of the range, a slot: the driver's number of the piece that is at home there; 0: none. The
    /// driver has no piece 0. Empty where there are segments.
    pub home: Vec<u64>,
    /// For each slot: which granule of its piece is at home there, and of how many.
    places: Vec<(u16, u16)>,
}

/// Granules of a piece at most.
pub const LARGEST_PIECE: usize = u16::MAX as usize;

impl Range {
    /// Reserves as many times the device's memory as there are addresses for.
    pub fn reserve<D: Device>(driver: &Driver<D>) -> Result<Range> {
        let properties = driver.device().properties();
        if !properties.virtual_memory {
            return Ok(Range { base: 0, size: ADDRESSES, is_virtual: false, home: Vec::new(), places: Vec::new() });
        }
        let memory = properties.memory.next_multiple_of(GRANULE).max(GRANULE);
        let mut times = 8;
        let (base, size) = loop {
            match driver.reserve(memory * times) {
                Ok(base) => break (base, memory * times),
                Err(error) if times == 1 => return Err(error),
                Err(_) => times /= 2,
            }
        };
        let slots = (size / GRANULE) as usize;
        Ok(Range { base, size, is_virtual: true, home: vec![0; slots], places: vec![(0, 0); slots] })
    }

    /// Makes slots from this one on the home of a piece.
    pub fn set_home(&mut self, slot: usize, piece: Piece) {
        let granules = (piece.bytes / GRANULE) as u16;
        for at in 0..granules {
            self.home[slot + usize::from(at)] = piece.handle;
            self.places[slot + usize::from(at)] = (at, granules);
        }
    }

    /// Takes the piece from its home that begins at a slot.
    pub fn clear_home(&mut self, slot: usize) -> Piece {
        let (piece, run) = (self.piece_at(slot), self.run_of(slot));
        self.home[run.slot..run.end()].fill(0);
        piece
    }

    /// The piece that begins at a slot.
    pub fn piece_at(&self, slot: usize) -> Piece {
        Piece { handle: self.home[slot], bytes: u64::from(self.places[slot].1) * GRANULE }
    }

    /// The slots of the piece that is at home in a slot.
    pub fn run_of(&self, slot: usize) -> Run {
        let (at, of) = self.places[slot];
        Run { slot: slot - usize::from(at), granules: usize::from(of) }
    }

    /// The pieces that have all of their slots among these.
    pub fn pieces(&self, slots: std::ops::Range<usize>) -> impl Iterator<Item = Run> + '_ {
        let mut slot = slots.start;
        std::iter::from_fn(move || {
            while slot < slots.end {
                let run = Run { slot, granules: 1 };
                let run = if self.home[slot] == 0 { run } else { self.run_of(slot) };
                let is_whole = self.home[slot] != 0 && run.slot == slot && run.end() <= slots.end;
                slot = run.end();
                if is_whole {
                    return Some(run);
                }
            }
            None
        })
    }

    /// The slot of an address.
    pub fn slot(&self, address: u64) -> usize {
        ((address - self.base) / GRANULE) as usize
    }

    /// The address of a slot.
    pub fn address_of_slot(&self, slot: usize) -> u64 {
        self.base + slot as u64 * GRANULE
    }
}
