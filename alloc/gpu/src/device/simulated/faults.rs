//! Calls that fail because a test wants them to.

use crate::device::{Call, Fault};

/// Which calls fail.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    planned: Vec<(Option<Call>, u64, Fault)>,
    probability: f64,
    state: u64,
}

impl Faults {
    /// The `nth` call from now on fails, counted among those of its kind, or among all. The first one is 1.
    pub fn plan(&mut self, call: Option<Call>, nth: u64, fault: Fault) {
        self.planned.push((call, nth, fault));
    }

    /// Every call fails with this probability from now on, by a generator that starts with `seed`.
    pub fn at_random(&mut self, probability: f64, seed: u64) {
        self.probability = probability;
        self.state = seed | 1;
    }

    /// No call fails any more.
    pub fn clear(&mut self) {
        *self = Faults::default();
    }

    /// Whether this call is to fail, and how.
    pub fn strike(&mut self, call: Call) -> Option<Fault> {
        let mut struck = None;
        self.planned.retain_mut(|(wanted, left, fault)| {
            if wanted.is_some_and(|wanted| wanted != call) {
                return true;
            }
            *left -= 1;
            if *left == 0 {
                struck = Some(*fault);
            }
            *left > 0
        });
        if struck.is_none() && self.probability > 0.0 {
            // xorshift64*: the same failures for the same seed, on every machine.
            self.state ^= self.state >> 12;
            self.state ^= self.state << 25;
            self.state ^= self.state >> 27;
            let uniform = (self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64;
            if uniform < self.probability {
                struck = Some(if call == Call::Create { Fault::OutOfMemory } else { Fault::Driver(999) });
            }
        }
        struck
    }
}
