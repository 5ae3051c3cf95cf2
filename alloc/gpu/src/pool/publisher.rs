//! What a pool shows of itself: counters, and a map of its memory, now and then.
//!
//! It costs a walk over the tiles. So it is done at most ten times a second, and takes no more than a hundredth of the
//! time, however many tiles there are.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::device::Device;
use crate::large::Large;
use crate::watch::{Picture, Recorder, Stats, cell_bytes};

/// Between two pictures.
const INTERVAL: Duration = Duration::from_millis(100);
/// Times its cost that pass before the next one.
const SPARING: u32 = 100;
/// Visits of the slow path between two looks at the clock.
const VISITS: u32 = 64;

/// Decides when there is to be a picture, and shows it.
pub struct Publisher {
    recorder: Arc<dyn Recorder>,
    visits: u32,
    next: Instant,
    memory: u64,
}

impl Publisher {
    /// For a pool on a device with so much memory.
    pub fn new(recorder: Arc<dyn Recorder>, memory: u64) -> Publisher {
        Publisher { recorder, visits: 0, next: Instant::now(), memory }
    }

    /// Whether a visit of the slow path is to end with a picture.
    #[inline]
    pub fn is_due_after_visit(&mut self) -> bool {
        self.visits += 1;
        if self.visits < VISITS {
            return false;
        }
        self.visits = 0;
        self.is_due()
    }

    /// Whether the last picture is old enough.
    pub fn is_due(&self) -> bool {
        self.recorder.wants_pictures() && Instant::now() >= self.next
    }

    /// Makes a picture and shows it.
    pub fn publish<D: Device>(&mut self, stats: Stats, large: &Large<D>) {
        let began = Instant::now();
        let cell_bytes = cell_bytes(self.memory.max(large.held()));
        let map = large.map(cell_bytes);
        self.recorder.publish(&Picture { stats, memory: self.memory, map, cell_bytes });
        self.next = began + INTERVAL.max(began.elapsed() * SPARING);
    }
}
