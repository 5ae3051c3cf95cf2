//! What a part of a recording says of itself besides its events.

use serde::{Deserialize, Serialize};

use crate::model::snapshot::{Module, ProcessInfo, ProcessState};

/// Whose recording it is, and how it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Process id as the recorder saw it.
    pub pid: u32,
    /// Path of the executable.
    pub exe: String,
    /// Arguments, the program's name first.
    pub args: Vec<String>,
    /// Start of the program's segment, nanoseconds of `CLOCK_REALTIME`.
    pub start_realtime_ns: u64,
    /// Start of the program's segment, nanoseconds of `CLOCK_MONOTONIC`.
    pub start_monotonic_ns: u64,
    /// Start of the recording, nanoseconds of `CLOCK_REALTIME`.
    pub recorded_realtime_ns: u64,
    /// Start of the recording, nanoseconds of `CLOCK_MONOTONIC`.
    pub recorded_monotonic_ns: u64,
    /// Microseconds of the parts of the file before this one: times of events go on from here.
    #[serde(default)]
    pub begins_us: u64,
    /// Bytes of a page of the page heap, which holds slabs.
    pub page_bytes: u64,
    /// The program was started to be recorded: nothing was allocated before.
    pub from_start: bool,
    /// The program waited for the recorder.
    pub lossless: bool,
    /// Frees have stacks, too.
    pub free_stacks: bool,
    /// Version of poolscope that recorded.
    pub recorder: String,
}

impl Session {
    /// The program with its arguments, as it was called.
    pub fn command(&self) -> String {
        if self.args.is_empty() { self.exe.clone() } else { self.args.join(" ") }
    }

    /// Nanoseconds of `CLOCK_REALTIME` at a time of the file.
    pub fn realtime_ns(&self, us: u64) -> u64 {
        self.recorded_realtime_ns.saturating_add(us.saturating_sub(self.begins_us).saturating_mul(1000))
    }

    /// Nanoseconds of `CLOCK_MONOTONIC` at a time of the file.
    pub fn monotonic_ns(&self, us: u64) -> u64 {
        self.recorded_monotonic_ns.saturating_add(us.saturating_sub(self.begins_us).saturating_mul(1000))
    }

    /// As the rest of the profiler knows processes.
    pub fn process(&self) -> ProcessInfo {
        ProcessInfo {
            pid: self.pid,
            state: ProcessState::Exited,
            exe: self.exe.clone(),
            args: self.args.clone(),
            start_realtime_ns: self.start_realtime_ns,
            start_monotonic_ns: self.start_monotonic_ns,
            forked: false,
        }
    }
}

/// An executable or library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedModule {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// What was added to the file's addresses.
    pub load_bias: u64,
    /// GNU build id.
    pub build_id: Vec<u8>,
    /// Which file it is, as in [`Module::file`].
    #[serde(default)]
    pub file: u64,
    /// The file.
    pub path: String,
    /// Stacks of the recording from this one on may have frames in it.
    pub first_stack: u32,
    /// Stacks from this one on have none; `u32::MAX` while it is loaded.
    pub last_stack: u32,
}

impl RecordedModule {
    /// As the rest of the profiler knows modules.
    pub fn module(&self) -> Module {
        Module {
            start: self.start,
            end: self.end,
            load_bias: self.load_bias,
            build_id: self.build_id.clone(),
            file: self.file,
            path: self.path.clone(),
            stacks: self.first_stack..self.last_stack,
        }
    }
}

/// A thread of the program. Threads that had one heap after the other have one entry each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedThread {
    /// Kernel id.
    pub tid: u32,
    /// Its name, as far as it was seen; empty if not.
    pub name: String,
    /// The ring that its events came through.
    pub ring: u32,
}

/// What a ring could not hold: it is the threads' that had the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RingLosses {
    /// The ring.
    pub ring: u32,
    /// Kernel id of the thread that had it last.
    pub tid: u32,
    /// Allocations that found no room.
    pub allocs: u64,
    /// Frees that found no room.
    pub frees: u64,
    /// Times that the program waited for room.
    pub waits: u64,
}

/// What is known at the end, and now and then before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Threads; events point into it.
    pub threads: Vec<RecordedThread>,
    /// What the rings lost, those that lost nothing included.
    pub losses: Vec<RingLosses>,
    /// Events of threads that got no ring.
    pub lost_without_ring: u64,
    /// Words of rings that no program writes.
    pub damaged_words: u64,
    /// Stacks that found no room in the recorder; their events have the unknown stack.
    pub refused_stacks: u64,
    /// The largest memory of the recorder, in bytes.
    pub recorder_bytes: u64,
    /// Why recording ended; empty while it goes on.
    pub ended: String,
}

impl Summary {
    /// Adds that of a part that came later: its threads are behind these, of which there are `threads`.
    pub fn join(&mut self, later: &Summary, threads: usize) {
        let rings = self.losses.len() as u32;
        self.threads.resize(threads, RecordedThread::default());
        let thread =
            |thread: &RecordedThread| RecordedThread { ring: thread.ring.saturating_add(rings), ..thread.clone() };
        self.threads.extend(later.threads.iter().map(thread));
        let ring = |ring: &RingLosses| RingLosses { ring: ring.ring.saturating_add(rings), ..*ring };
        self.losses.extend(later.losses.iter().map(ring));
        self.lost_without_ring = self.lost_without_ring.saturating_add(later.lost_without_ring);
        self.damaged_words = self.damaged_words.saturating_add(later.damaged_words);
        self.refused_stacks = self.refused_stacks.saturating_add(later.refused_stacks);
        self.recorder_bytes = self.recorder_bytes.max(later.recorder_bytes);
        self.ended.clone_from(&later.ended);
    }

    /// Events that were lost.
    pub fn lost(&self) -> u64 {
        let rings = self.losses.iter().map(|ring| ring.allocs.saturating_add(ring.frees));
        rings.fold(self.lost_without_ring, u64::saturating_add)
    }
}
