//! What the first page remembers of a process from one look to the next: how its call sites develop, and its resident
//! set, which the segment does not have. Nothing is read for it but what is asked for, so a server that nobody looks
//! at does nothing.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::model::growth::{Growth, Slope, Tracker};
use crate::model::memory::{Memory, Place};
use crate::reading::Reading;

/// Processes that are remembered.
const PROCESSES: usize = 32;

/// Moments of a resident set that are kept; when there are more, every second one goes.
const MOMENTS: usize = 600;

/// All of them, by process id.
#[derive(Debug, Default)]
pub(super) struct Watched(Mutex<HashMap<u32, Process>>);

#[derive(Debug, Default)]
struct Process {
    start_ns: u64,
    tracker: Tracker,
    rss: Vec<(u64, u64)>,
}

/// What is known now, with what was before.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// How each site of the profile develops.
    pub(super) growths: Vec<Growth>,
    /// How host memory does.
    pub(super) total: Slope,
    /// How the memory of devices does.
    pub(super) devices: Vec<(Place, Slope)>,
    /// The time that this was watched for.
    pub(super) watched_ns: u64,
    /// Nanoseconds of `CLOCK_MONOTONIC`, and the resident set then.
    pub(super) rss: Vec<(u64, u64)>,
}

impl Watched {
    /// Takes a reading in.
    pub(super) fn look(&self, reading: &Reading) -> Look {
        let snapshot = &reading.snapshot;
        let mut processes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if processes.len() >= PROCESSES && !processes.contains_key(&snapshot.process.pid) {
            processes.clear();
        }
        let process = processes.entry(snapshot.process.pid).or_default();
        if process.start_ns != snapshot.process.start_monotonic_ns {
            *process = Process { start_ns: snapshot.process.start_monotonic_ns, ..Process::default() };
        }
        process.tracker.update(snapshot);
        if let Some(memory) = snapshot.memory {
            process.rss.push((snapshot.taken_ns, memory.rss));
        }
        if process.rss.len() > MOMENTS {
            let mut at = 0;
            process.rss.retain(|_| {
                at += 1;
                at % 2 == 1
            });
        }
        Look {
            growths: process.tracker.of_sites(snapshot, &reading.site_of_stacks, reading.profile.sites.len()),
            total: process.tracker.total(Memory::Host),
            devices: process.tracker.of_devices(),
            watched_ns: process.tracker.watched_ns(),
            rss: process.rss.clone(),
        }
    }
}
