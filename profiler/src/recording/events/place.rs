//! Where a recorded block lies: in the host's memory, in a device's, or in memory that is pinned for one; and on which
//! stream of the device something happens to it.

use poolscope_wire::kind;

use crate::model::memory::Place;

/// Memories other than the host's that a recorder tells apart.
pub const MAX_PLACES: usize = 126;

/// Addresses of host memory are below this. Each device has its own addresses, which may be those of others, too: those
/// of its memory have a number of the memory from this bit on.
pub const HOST_END: u64 = 1 << 57;

/// The number that a place has in a file: 0 for the host's, so that a column of it takes nothing.
pub(crate) fn number(place: Place) -> u64 {
    let of = |kind: u16, device: u32| u64::from(kind) << 32 | u64::from(device);
    match place {
        Place::Host => 0,
        Place::Device(device) => of(kind::DEVICE, device),
        Place::Pinned(device) => of(kind::PINNED, device),
    }
}

/// The place with a number, if there is one.
pub(crate) fn of_number(number: u64) -> Option<Place> {
    match (Place::of_record((number >> 32) as u16, number as u32), number) {
        (_, 0) => Some(Place::Host),
        (Place::Host, _) => None,
        (place, _) => (number >> 48 == 0).then_some(place),
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
        for place in [Place::Host, Place::Device(0), Place::Pinned(u32::MAX)] {
            assert_eq!(of_number(number(place)), Some(place));
        }
        for number in [1, 1 << 32, 4 << 32, 2 << 32 | 1 << 48, u64::MAX] {
            assert_eq!(of_number(number), None, "{number:x}");
        }
    }
}
