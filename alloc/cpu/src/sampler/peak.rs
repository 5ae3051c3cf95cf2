//! The peak: what each stack had in use when the process had most in use.
//!
//! A reader cannot know the past, so the process keeps it. To write all stacks down with every new high would cost too
//! much; that is done when memory is about to fall, and only if it stands a good part above the peak that is written down
//! already ([`STEP`]). A program that only grows writes nothing, and a reader then takes what is in use now for the peak. Between
//! nothing and a tebibyte there are fewer than a thousand steps.

use core::sync::atomic::AtomicU32;

use poolscope_wire::{PeakRecord, Region, StackRecord};

use super::sequence;
use crate::os;
use crate::segment::Segment;

/// A new peak is written down if it is higher than the last by one part in so many: the peak that readers see is lower
/// than the highest one by less than that.
const STEP: u64 = 32;

/// Bytes in use, by the samples.
pub struct Peak {
    in_use: u64,
    written: u64,
}

impl Peak {
    /// Nothing in use.
    pub const fn new() -> Self {
        Peak { in_use: 0, written: 0 }
    }

    /// Memory was allocated.
    pub fn grew(&mut self, bytes: u64) {
        self.in_use = self.in_use.saturating_add(bytes);
    }

    /// Memory is about to be freed, and its stack's totals do not count that yet.
    pub fn shrinks(&mut self, segment: &Segment, stacks: u32, bytes: u64) {
        if bytes > 0 && self.is_due() {
            self.write(segment, stacks);
        }
        self.in_use = self.in_use.saturating_sub(bytes);
    }

    fn is_due(&self) -> bool {
        self.in_use > self.written.saturating_add(self.written / STEP)
    }

    /// Writes down what each stack has in use now.
    #[cold]
    fn write(&mut self, segment: &Segment, stacks: u32) {
        if !segment.commit(Region::Peaks, stacks) {
            return;
        }
        self.written = self.in_use;
        let header = segment.header();
        // SAFETY: the number is aligned, and the caller holds the sampler's lock.
        let seq = unsafe { AtomicU32::from_ptr(&raw mut header.peak_seq) };
        sequence::change(seq, |_| {
            for stack in 0..stacks {
                // SAFETY: both records are committed, and the caller holds the sampler's lock.
                unsafe {
                    let totals = &*segment.record::<StackRecord>(Region::Stacks, stack);
                    segment.record::<PeakRecord>(Region::Peaks, stack).write_volatile(PeakRecord {
                        objects: totals.alloc_objects.saturating_sub(totals.free_objects),
                        bytes: totals.alloc_bytes.saturating_sub(totals.free_bytes),
                    });
                }
            }
            header.peak_bytes = self.in_use;
            header.peak_time_ns = os::clock_ns(libc::CLOCK_MONOTONIC);
            segment.raise_count(Region::Peaks, stacks);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_due_only_when_it_is_higher_by_a_step() {
        let mut peak = Peak { in_use: 3200, written: 3200 };
        assert!(!peak.is_due());
        peak.grew(100);
        assert!(!peak.is_due());
        peak.grew(1);
        assert!(peak.is_due());
        let fresh = Peak { in_use: 1, written: 0 };
        assert!(fresh.is_due());
    }
}
