//! Where a recorded block lies: in the host's memory, in a device's, or in memory that is pinned for one; and on which
//! stream of the device something happens to it.

use poolscope_wire::kind;

use crate::model::memory::Memory;

/// Memories other than the host's that a recorder tells apart.
pub const MAX_PLACES: usize = 126;

/// Addresses of host memory are below this. Each device has its own addresses, which may be those of others, too: those
/// of its memory have a number of the memory from this bit on.
pub const HOST_END: u64 = 1 << 57;

/// Which memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// One of [`kind`].
    pub kind: u16,
    /// Number of the device; 0 for host memory.
    pub device: u32,
}

impl Default for Place {
    fn default() -> Place {
        Place::HOST
    }
}

impl Place {
    /// The host's memory.
    pub const HOST: Place = Place { kind: kind::HOST, device: 0 };

    /// The number that it has in a file: 0 for the host's, so that a column of it takes nothing.
    pub(crate) fn number(self) -> u64 {
        if self == Place::HOST { 0 } else { u64::from(self.kind) << 32 | u64::from(self.device) }
    }

    /// The place with a number, if there is one.
    pub(crate) fn of_number(number: u64) -> Option<Place> {
        let place = Place { kind: (number >> 32) as u16, device: number as u32 };
        match number {
            0 => Some(Place::HOST),
            _ if number >> 48 == 0 && [kind::DEVICE, kind::PINNED].contains(&place.kind) => Some(place),
            _ => None,
        }
    }

    /// As the rest of the profiler knows it.
    pub fn memory(self) -> Memory {
        Memory::of(self.kind, self.device)
    }
}

/// What a block of a device's memory is allocated or freed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lane {
    /// The memory.
    pub place: Place,
    /// Handle of the stream.
    pub stream: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_numbers_and_other_numbers_are_no_places() {
        for place in
            [Place::HOST, Place { kind: kind::DEVICE, device: 0 }, Place { kind: kind::PINNED, device: u32::MAX }]
        {
            assert_eq!(Place::of_number(place.number()), Some(place));
        }
        for number in [1, 1 << 32, 4 << 32, 2 << 32 | 1 << 48, u64::MAX] {
            assert_eq!(Place::of_number(number), None, "{number:x}");
        }
    }
}
