//! A recording as something to look at: how its process was at any moment of it.
//!
//! A moment takes a walk through the events before it. What is kept between two of them is the timeline alone.

use std::path::Path;

use poolscope_wire::Total;

use crate::model::history::History;
use crate::model::memory::Place;
use crate::model::snapshot::{LiveBlock, ProcessState, Snapshot, ThreadStats};
use crate::recording::file::reader::{RecordingError, RecordingReader};
use crate::recording::replay::collector::Collector;
use crate::recording::replay::figures::{Figures, grown};
use crate::recording::replay::process_snapshot::snapshot;
use crate::recording::replay::{Happening, InUse, Replay, place_of};

/// So many blocks are told one by one, with their ages. More are told by stack, size and thread.
const BLOCKS: usize = 1 << 20;

/// A recording, opened.
#[derive(Debug)]
pub struct Film {
    reader: RecordingReader,
    /// Time of the last event, microseconds since the start.
    end_us: u64,
    /// Bytes in use over time, with the microseconds of a span.
    timeline: Vec<u64>,
    span_us: u64,
}

/// How the process was at a moment.
#[derive(Debug)]
pub struct Frame {
    /// As if it had been read then: it runs.
    pub snapshot: Snapshot,
    /// Names of its threads, by their kernel id.
    pub thread_names: Vec<(u32, String)>,
}

impl Film {
    /// Opens a recording, and goes through it once.
    pub fn open(path: &Path) -> Result<Film, RecordingError> {
        let mut reader = RecordingReader::open(path)?;
        let mut collectors = vec![Collector::new(Place::Host, 0)];
        let (mut stacks, mut end_us): (Vec<Figures>, u64) = (Vec::new(), 0);
        let replay = Replay::run(&mut reader, u64::MAX, |state, happening| {
            for &(place, _) in state.memories.iter().skip(collectors.len()) {
                collectors.push(Collector::new(place, 0));
            }
            collectors[state.memory].see(&mut stacks, state, happening);
            end_us = state.time_us;
            true
        })?;
        // That of the host, unless nothing was allocated there.
        let mut figures = collectors.into_iter().map(|collector| collector.finish(&replay, &stacks, 0));
        let host = figures.next().unwrap_or_default();
        let shown = if host.timeline.is_empty() { figures.next().unwrap_or(host) } else { host };
        let timeline = shown.timeline.iter().map(|span| span.most_bytes).collect();
        Ok(Film { reader, end_us, timeline, span_us: shown.span_us.max(1) })
    }

    /// Time of the last event, microseconds since the start.
    pub fn end_us(&self) -> u64 {
        self.end_us
    }

    /// How the process was at a time, in microseconds since the start.
    pub fn at(&mut self, time_us: u64) -> Result<Frame, RecordingError> {
        let (mut stacks, mut threads): (Vec<Figures>, Vec<ThreadStats>) = (Vec::new(), Vec::new());
        let replay = Replay::run(&mut self.reader, time_us, |state, happening| {
            match happening {
                Happening::Alloc(block) | Happening::Unfollowed(block) => {
                    grown(&mut stacks, block.stack as usize).allocated.add(block.size);
                    let thread = grown(&mut threads, block.thread as usize);
                    thread.allocs += 1;
                    thread.alloc_bytes = thread.alloc_bytes.saturating_add(block.size);
                }
                Happening::Free(block, _) | Happening::FreeLost(block) => {
                    grown(&mut stacks, block.stack as usize).freed.add(block.size);
                    grown(&mut threads, state.thread as usize).frees += 1;
                    grown(&mut threads, state.thread as usize).remote_frees += u64::from(block.thread != state.thread);
                }
                Happening::FreeUnknown(_) => {}
            }
            true
        })?;
        let summary = replay.summary();
        let mut snapshot = snapshot(&replay, &summary, &stacks, &[], time_us.min(self.end_us));
        let session = &replay.last().session;
        let tid = |thread: u32| summary.threads.get(thread as usize).map_or(0, |thread| thread.tid);
        if replay.state.in_use().take(BLOCKS + 1).count() <= BLOCKS {
            let block = |(_, block): (u32, &InUse)| LiveBlock {
                stack: block.stack,
                size: block.size,
                weight: 1.0,
                time_ns: session.monotonic_ns(block.time_us),
                tid: tid(block.thread),
                place: place_of(&replay.paths, block.stack),
                ..LiveBlock::default()
            };
            snapshot.live = replay.state.in_use().map(block).collect();
        }
        for (at, thread) in threads.iter_mut().enumerate() {
            (thread.tid, thread.live) = (tid(at as u32), true);
        }
        threads.retain(|thread| thread.allocs + thread.frees > 0);
        snapshot.threads = threads;
        snapshot.process.state = ProcessState::Running;
        let totals = self.timeline.iter().enumerate().map(|(at, &bytes)| {
            let time_ns = session.monotonic_ns((at as u64 + 1) * self.span_us);
            Total { time_ns, in_use: bytes, most: bytes, most_ns: time_ns, ..Total::ZERO }
        });
        snapshot.history = History::new(self.span_us.saturating_mul(1000), totals, snapshot.taken_ns);
        let named = summary.threads.iter().filter(|thread| !thread.name.is_empty());
        let thread_names = named.map(|thread| (thread.tid, thread.name.clone())).collect();
        Ok(Frame { snapshot, thread_names })
    }
}
