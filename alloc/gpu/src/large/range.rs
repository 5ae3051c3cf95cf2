//! The addresses of a device's tiles.

use crate::device::{Device, Driver, GRANULE, Result};

use super::segments::ADDRESSES;

/// The range that was reserved, and which granule of physical memory is at home where.
pub struct Range {
    /// The first address, a multiple of a granule; 0 where there are segments.
    pub base: u64,
    /// Bytes.
    pub size: u64,
    /// Whether granules are mapped in it; else there are segments, at any of its addresses.
    pub is_virtual: bool,
    /// For each granule of the range, a slot: the driver's number of the physical granule that is at home there; 0:
    /// none. The driver has no granule 0. Empty where there are segments.
    pub home: Vec<u64>,
}

impl Range {
    /// Reserves as many times the device's memory as there are addresses for.
    pub fn reserve<D: Device>(driver: &Driver<D>) -> Result<Range> {
        let properties = driver.device().properties();
        if !properties.virtual_memory {
            return Ok(Range { base: 0, size: ADDRESSES, is_virtual: false, home: Vec::new() });
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
        Ok(Range { base, size, is_virtual: true, home: vec![0; (size / GRANULE) as usize] })
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
