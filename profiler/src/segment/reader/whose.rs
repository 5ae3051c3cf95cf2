//! Whose segment it is, whether that process still runs, and how it ended.

use poolscope_wire::flags;

use super::{SegmentReader, read_header};
use crate::model::snapshot::{ProcessInfo, ProcessState};
use crate::process::ending::{Ending, KernelLog};

impl SegmentReader {
    /// Whose segment it is, and whether that process runs now.
    pub fn process(&mut self) -> ProcessInfo {
        let state = read_header(&self.file).map_or(self.first.state, |header| header.state);
        self.process_in(state)
    }

    /// How its process ended; `None` while it runs.
    pub fn ending(&mut self, log: &KernelLog) -> Option<Ending> {
        let state = read_header(&self.file).map_or(self.first.state, |header| header.state);
        if self.watch.state(state) == ProcessState::Running {
            return None;
        }
        let ending = match self.watch.ending(state) {
            Ending::Unknown => {
                let called = self.args.first().map_or("", String::as_str);
                log.ending(self.pid, [&self.exe, called], self.alive_ns()).unwrap_or(Ending::Unknown)
            }
            known => known,
        };
        Some(ending)
    }

    /// The executable of the process that has its number now, where it is in this state, and another one has it.
    pub fn successor(&self, state: ProcessState) -> Option<String> {
        self.watch.successor(state)
    }

    /// The last time at which the process is known to have been alive, nanoseconds of `CLOCK_MONOTONIC`.
    fn alive_ns(&self) -> u64 {
        let since_start = self.file.modified_ns().unwrap_or(0).saturating_sub(self.first.start_realtime_ns);
        self.first.start_monotonic_ns.saturating_add(since_start)
    }

    /// When the process last touched a page of its segment for the first time, which it does while it takes samples:
    /// nanoseconds of `CLOCK_REALTIME`. It lived at least until then.
    pub fn alive_realtime_ns(&self) -> u64 {
        self.first.start_realtime_ns.max(self.file.modified_ns().unwrap_or(0))
    }

    pub(super) fn process_in(&mut self, header_state: u32) -> ProcessInfo {
        ProcessInfo {
            pid: self.pid,
            state: self.watch.state(header_state),
            exe: self.exe.clone(),
            args: self.args.clone(),
            start_realtime_ns: self.first.start_realtime_ns,
            start_monotonic_ns: self.first.start_monotonic_ns,
            forked: self.first.flags & flags::FORKED != 0,
        }
    }
}
