//! Whose segment it is, whether that process still runs, and how it ended.

use std::fs::File;
use std::io::Read;

use poolscope_wire::flags;

use super::{SegmentReader, read_header};
use crate::model::snapshot::{ProcessInfo, ProcessState};
use crate::process::ending::{Ending, KernelLog};
use crate::words::printable::printable;

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
        let state = self.watch.state(header_state);
        let forked = self.first.flags & flags::FORKED != 0;
        // What a worker calls itself says what it does now; its segment has what it was at first.
        if forked
            && state == ProcessState::Running
            && let Some(args) = title(self.pid, self.first.cmdline.len())
        {
            self.args = args;
        }
        ProcessInfo {
            pid: self.pid,
            state,
            exe: self.exe.clone(),
            args: self.args.clone(),
            start_realtime_ns: self.first.start_realtime_ns,
            start_monotonic_ns: self.first.start_monotonic_ns,
            forked,
        }
    }
}

/// The arguments in a command line as `/proc` has it. A forked child's title stands over its parent's arguments, with
/// zeroes behind it.
pub(super) fn arguments(cmdline: &[u8], is_forked: bool) -> Vec<String> {
    let end = if is_forked {
        cmdline.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1)
    } else {
        cmdline.len() - usize::from(cmdline.ends_with(&[0]))
    };
    let cmdline = &cmdline[..end];
    if cmdline.is_empty() { Vec::new() } else { cmdline.split(|&byte| byte == 0).map(printable).collect() }
}

/// What a forked child that runs calls itself, of so many bytes at most; `None` if it says nothing.
fn title(pid: u32, most: usize) -> Option<Vec<String>> {
    let mut cmdline = Vec::new();
    File::open(format!("/proc/{pid}/cmdline")).ok()?.take(most as u64).read_to_end(&mut cmdline).ok()?;
    Some(arguments(&cmdline, true)).filter(|args| !args.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_end_with_zeroes_and_titles_with_any_number_of_them() {
        assert_eq!(arguments(b"a\0b c\0\0", false), ["a", "b c", ""]);
        assert_eq!(arguments(b"a: idle\0\0\0\0", true), ["a: idle"]);
        assert!(arguments(b"", false).is_empty() && arguments(b"\0\0\0", true).is_empty());
    }
}
