//! The memories of devices that a recorder has met: which it is, and how its blocks are told from those of others.

use poolscope_wire::trace::DeviceEvent;

use crate::model::memory::Place;
use crate::recording::events::place::{HOST_END, Lane, MAX_PLACES};

/// The memories, in the order in which they were met.
#[derive(Debug, Default)]
pub struct Lanes(Vec<Place>);

impl Lanes {
    /// What an event happens on, and the block's address among those of all memories.
    /// `None` if there are too many memories.
    pub fn of(&mut self, event: &DeviceEvent) -> Option<(Lane, u64)> {
        let place = Place::of_record(event.kind, event.device);
        let at = match self.0.iter().position(|known| *known == place) {
            Some(at) => at,
            None if self.0.len() == MAX_PLACES => return None,
            None => {
                self.0.push(place);
                self.0.len() - 1
            }
        };
        let address = event.address % HOST_END + (at as u64 + 1) * HOST_END;
        Some((Lane { place, stream: event.stream }, address))
    }
}
