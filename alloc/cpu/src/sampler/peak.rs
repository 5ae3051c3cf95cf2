//! The peaks: what each stack had in use when most of its memory was in use, the host's or that of a device.
//!
//! A reader cannot know the past, so the process keeps it. To write all stacks down with every new high would cost too
//! much; that is done when memory is about to fall, and only if it stands a good part above the peak that is written
//! down already ([`STEP`]), or if as many frees as there are stacks have paid for it. They may have done so before
//! ([`SAVED`]): a program that is below its peak for most of the time has its highest moment written, and not one that
//! is some frees later. A program that only grows writes nothing, and a reader then takes what is in use now for the
//! peak. Each memory has a peak of its own, and a stack is of one memory.
//!
//! Whether memory stands high is said by what the pools of a device have counted, where they have: of a few samples
//! that stand for much, the highest sum comes at another moment than the highest use. Of several moments that are
//! equally high the first is the peak.

use core::sync::atomic::AtomicU32;

use poolscope_wire::{DEVICE_PEAKS, DevicePeak, PeakRecord, Region, StackRecord, kind};

use crate::kernel::os;
use crate::segment::Segment;
use crate::segment::sequence;

/// A new peak is written down at once if it is higher than the last by one part in so many. The peak that readers see
/// is lower than the highest one by less than that, and by nothing if memory fell often enough before it.
const STEP: u64 = 32;

/// So many peaks may be paid for ahead.
const SAVED: u32 = 16;

/// Which memory: its [`kind`], and the number of its device.
pub type Memory = (u16, u32);

/// The host's.
pub const HOST: Memory = (kind::HOST, 0);

/// Bytes in use of a memory.
struct Peak {
    memory: Memory,
    /// By the samples.
    in_use: u64,
    /// By the pools' own counters, where there are such.
    counted: Option<u64>,
    /// What was in use, by the counters if there are such, when it was written down.
    written: u64,
    /// Frees that have not yet paid for a peak.
    frees: u32,
}

impl Peak {
    /// Of no memory yet: zeroes, which take no room in the library's file, and no memory until they are written.
    const NONE: Peak = Peak { memory: (kind::NONE, 0), in_use: 0, counted: None, written: 0, frees: 0 };

    fn height(&self) -> u64 {
        self.counted.unwrap_or(self.in_use)
    }

    /// Pays by a free, of so many stacks.
    fn pay(&mut self, stacks: u32) {
        self.frees = self.frees.saturating_add(1).min(stacks.saturating_mul(SAVED));
    }

    /// It is written down, of so many stacks.
    fn spend(&mut self, stacks: u32) {
        (self.written, self.frees) = (self.height(), self.frees.saturating_sub(stacks));
    }

    /// Whether it is to be written down, of so many stacks.
    fn is_due(&self, stacks: u32) -> bool {
        let height = self.height();
        height > self.written && (self.frees >= stacks || height > self.written.saturating_add(self.written / STEP))
    }
}

/// The peaks of all memories.
pub struct Peaks {
    host: Peak,
    /// In the order in which they were seen.
    devices: [Peak; DEVICE_PEAKS],
}

impl Peaks {
    /// Nothing in use.
    pub const fn new() -> Self {
        Peaks { host: Peak::NONE, devices: [const { Peak::NONE }; DEVICE_PEAKS] }
    }

    /// The peak of a memory, and its place in the header if it is a device's; none if there are too many of them.
    fn of(&mut self, memory: Memory) -> Option<(&mut Peak, Option<usize>)> {
        if memory.0 == kind::HOST {
            self.host.memory = memory;
            return Some((&mut self.host, None));
        }
        let place = self.devices.iter().position(|peak| peak.memory == memory || peak.memory.0 == kind::NONE)?;
        let peak = &mut self.devices[place];
        peak.memory = memory;
        Some((peak, Some(place)))
    }

    /// Memory was allocated.
    pub fn grew(&mut self, memory: Memory, bytes: u64) {
        if let Some((peak, _)) = self.of(memory) {
            peak.in_use = peak.in_use.saturating_add(bytes);
        }
    }

    /// The pools of a memory have counted so much in use.
    pub fn counted(&mut self, memory: Memory, bytes: u64) {
        if let Some((peak, _)) = self.of(memory) {
            // What was written down by samples alone is no height of the counters.
            if peak.counted.replace(bytes).is_none() {
                peak.written = 0;
            }
        }
    }

    /// Memory is about to be freed, and its stack's totals do not count that yet.
    pub fn shrinks(&mut self, segment: &Segment, stacks: u32, memory: Memory, bytes: u64) {
        let Some((peak, place)) = self.of(memory) else { return };
        peak.pay(stacks);
        if bytes > 0 && peak.is_due(stacks) {
            peak.write(segment, stacks, place);
        }
        peak.in_use = peak.in_use.saturating_sub(bytes);
    }
}

impl Peak {
    /// Writes down what each stack of the memory has in use now.
    #[cold]
    fn write(&mut self, segment: &Segment, stacks: u32, place: Option<usize>) {
        if !segment.commit(Region::Peaks, stacks) {
            return;
        }
        self.spend(stacks);
        let header = segment.header();
        let is_host = self.memory.0 == kind::HOST;
        // A stack has the lowest byte of the number.
        let stack_of = (self.memory.0, self.memory.1 & 0xff);
        // SAFETY: the number is aligned, and the caller holds the sampler's lock.
        let seq = unsafe { AtomicU32::from_ptr(&raw mut header.peak_seq) };
        sequence::change(seq, |_| {
            for stack in 0..stacks {
                // SAFETY: both records are committed, and the caller holds the sampler's lock.
                unsafe {
                    let totals = &*segment.record::<StackRecord>(Region::Stacks, stack);
                    let of_device = totals.kind() == kind::DEVICE || totals.kind() == kind::PINNED;
                    if of_device == is_host || (of_device && (totals.kind(), totals.device()) != stack_of) {
                        continue;
                    }
                    segment.record::<PeakRecord>(Region::Peaks, stack).write_volatile(PeakRecord {
                        objects: totals.alloc_objects.saturating_sub(totals.free_objects),
                        bytes: totals.alloc_bytes.saturating_sub(totals.free_bytes),
                    });
                }
            }
            let (bytes, time_ns) = (self.in_use, os::clock_ns(libc::CLOCK_MONOTONIC));
            match place {
                None => (header.peak_bytes, header.peak_time_ns) = (bytes, time_ns),
                Some(place) => {
                    let (kind, device) = self.memory;
                    header.device_peaks[place] = DevicePeak { device, kind, reserved: 0, bytes, time_ns };
                }
            }
            segment.raise_count(Region::Peaks, stacks);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_due_when_it_is_higher_by_a_step_or_was_paid_for() {
        let mut peaks = Peaks::new();
        (peaks.host.in_use, peaks.host.written) = (3200, 3200);
        assert!(!peaks.host.is_due(10));
        peaks.grew(HOST, 100);
        assert!(!peaks.host.is_due(10));
        peaks.grew(HOST, 1);
        assert!(peaks.host.is_due(10));
        // As many frees as there are stacks pay for a peak that is hardly higher, and not for one that is as high.
        (peaks.host.written, peaks.host.frees) = (3300, 9);
        assert!(!peaks.host.is_due(10));
        peaks.host.frees = 10;
        assert!(peaks.host.is_due(10));
        peaks.host.written = 3301;
        assert!(!peaks.host.is_due(10));
        peaks.host.written = 0;
        assert!(peaks.host.is_due(10));
    }

    #[test]
    fn frees_pay_for_some_peaks_ahead() {
        let mut peak = Peak { memory: HOST, ..Peak::NONE };
        (0..100_000).for_each(|_| peak.pay(10));
        (peak.in_use, peak.written) = (3200, 3200);
        for _ in 0..SAVED {
            peak.in_use += 1;
            assert!(peak.is_due(10));
            peak.spend(10);
        }
        peak.in_use += 1;
        assert!(!peak.is_due(10));
    }

    #[test]
    fn what_pools_have_counted_says_when_a_peak_is_due_and_not_the_samples() {
        let (memory, mut peaks) = ((kind::DEVICE, 0), Peaks::new());
        let is_due = |peaks: &Peaks| peaks.devices[0].is_due(10);
        // Before the pools have counted, the samples stood for more than there was.
        peaks.grew(memory, 9000);
        peaks.devices[0].written = 9000;
        peaks.counted(memory, 3200);
        assert!(is_due(&peaks), "that was no height of theirs");
        peaks.devices[0].written = 3200;
        assert!(!is_due(&peaks), "the samples stand for more than there is");
        peaks.counted(memory, 3301);
        assert!(is_due(&peaks));
        peaks.devices[0].in_use = 0;
        assert!(is_due(&peaks), "no sample may stand for it");
        // A pool that is empty has no peak.
        peaks.devices[0].written = 3301;
        peaks.counted(memory, 0);
        peaks.grew(memory, 9000);
        peaks.counted(memory, 3301);
        assert!(!is_due(&peaks), "it was as high before");
    }

    #[test]
    fn each_memory_has_a_peak_as_long_as_there_are_places() {
        let mut peaks = Peaks::new();
        for device in 0..20 {
            peaks.grew((kind::DEVICE, device), 10);
            peaks.grew((kind::DEVICE, device), 1);
        }
        let in_use: Vec<u64> = peaks.devices.iter().map(|peak| peak.in_use).collect();
        assert_eq!(in_use, [11; DEVICE_PEAKS]);
        assert_eq!((peaks.devices[3].memory, peaks.host.in_use), ((kind::DEVICE, 3), 0));
    }
}
