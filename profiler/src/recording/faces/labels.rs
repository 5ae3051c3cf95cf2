//! What the text of a report and its page say alike: the order of sites, the names of rows and threads,
//! the table of parts.

use crate::model::memory::Memory;
use crate::model::memory::Place;
use crate::model::profile::Site;
use crate::recording::replay::analysis::{Analysis, Figures, MemoryFigures, PartFigures};
use crate::words::figures::{bytes, grouped};

/// What a report says of one memory.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    /// The report.
    pub(crate) analysis: &'a Analysis,
    /// The memory.
    pub(crate) memory: &'a MemoryFigures,
}

/// The memories that a report speaks of: the host's, and those of devices.
/// A program that has only a device's has no host memory.
pub(crate) fn views(analysis: &Analysis) -> impl Iterator<Item = View<'_>> {
    let is_shown =
        |(at, memory): &(usize, &MemoryFigures)| *at > 0 || analysis.memories.len() == 1 || memory.has_events();
    let shown = analysis.memories.iter().enumerate().filter(is_shown);
    shown.map(|(_, memory)| View { analysis, memory })
}

impl<'a> View<'a> {
    /// The call sites of this memory as tables list them, with what each did.
    pub(crate) fn sites(self) -> impl Iterator<Item = (&'a Site, &'a Figures)> {
        let View { analysis, memory } = self;
        let sites = analysis.listed.iter().map(|(site, figures)| (&analysis.profile.sites[*site], figures));
        sites.filter(|(site, _)| site.place == memory.place)
    }

    /// Those that are first by some figure.
    pub(crate) fn ranked(self, by: impl Fn(&Figures) -> u64, rows: usize) -> Vec<(&'a Site, &'a Figures)> {
        let mut sites: Vec<_> = self.sites().filter(|(_, figures)| by(figures) > 0).collect();
        sites.sort_by_key(|(_, figures)| std::cmp::Reverse(by(figures)));
        sites.truncate(rows);
        sites
    }

    /// Whether it is the host's memory.
    pub(crate) fn is_host(self) -> bool {
        self.memory.place == Place::Host
    }

    /// The memory's name: `Device 0`, or nothing for the host's.
    pub(crate) fn name(self) -> Option<String> {
        match self.memory.place.memory() {
            Memory::Device(Some(number)) => Some(format!("Device {number}")),
            Memory::Pinned(Some(number)) => Some(format!("Memory pinned for device {number}")),
            _ => None,
        }
    }
}

/// The name of a stream: its handle, as a debugger shows it.
pub(crate) fn stream_label(handle: u64) -> String {
    if handle < 16 { handle.to_string() } else { format!("{handle:#x}") }
}

/// What grew between the two times: bytes, which may be negative.
pub(crate) fn growth(figures: &Figures) -> i64 {
    figures.at_end.bytes as i64 - figures.at_start.bytes as i64
}

/// `1.5 s`, `12 ms`, `3 us`.
pub(crate) fn time(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        1_000_000..600_000_000 => format!("{:.2} s", us as f64 / 1e6),
        _ => format!("{:.1} min", us as f64 / 60e6),
    }
}

/// What the `decade`th row of lifetimes is.
pub(crate) fn lifetime_label(decade: usize) -> String {
    let us = |power: usize| time(10u64.saturating_pow(power as u32));
    match decade {
        0 => "below 1 us".to_owned(),
        _ => format!("{} to {}", us(decade - 1), us(decade)),
    }
}

/// What the `class`th row of sizes is.
pub(crate) fn size_label(class: usize) -> String {
    match class {
        0 => "0".to_owned(),
        1 => "1".to_owned(),
        _ => {
            let from = 1u64 << (class - 1);
            let to = from.checked_mul(2).map_or(u64::MAX, |end| end - 1);
            if class <= 13 { format!("{from} to {to}") } else { format!("{} and more", bytes(from as f64)) }
        }
    }
}

/// The name of a thread of the recording: `worker (tid 12)`.
pub(crate) fn thread_label(analysis: &Analysis, thread: usize) -> String {
    match analysis.summary.threads.get(thread) {
        Some(known) if known.name.is_empty() => format!("tid {}", known.tid),
        Some(known) => format!("{} (tid {})", known.name, known.tid),
        None => "other threads".to_owned(),
    }
}

/// The columns of the table of parts.
pub(crate) const PART_COLUMNS: [&str; 8] =
    ["part", "from", "for", "allocations", "frees", "peak", "at its end", "process"];

/// A part's row in it, by its number from 1 and the times of the file.
pub(crate) fn part_row(number: usize, part: &PartFigures) -> [String; 8] {
    let from = part.session.begins_us;
    [
        number.to_string(),
        time(from),
        time(part.end_us.saturating_sub(from)),
        grouped(part.allocated.objects),
        grouped(part.frees),
        bytes(part.peak.bytes as f64),
        bytes(part.at_end.bytes as f64),
        format!("{} (pid {})", part.session.command(), part.session.pid),
    ]
}
