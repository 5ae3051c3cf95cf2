//! A recording as something to look at: how its process was at any moment of it.
//!
//! A moment takes a walk through the events before it, from the last keyframe on: what the events up to some block come
//! to, kept as walks pass it. So a moment that was passed once costs the events between two keyframes at most.

use std::path::Path;

use poolscope_wire::Total;

use crate::model::history::History;
use crate::model::memory::Place;
use crate::model::snapshot::{LiveBlock, ProcessState, Snapshot, ThreadStats};
use crate::recording::file::reader::{Block, Bookmark, RecordingError, RecordingReader};
use crate::recording::replay::collector::Collector;
use crate::recording::replay::figures::{Count, Figures, grown};
use crate::recording::replay::process_snapshot::snapshot;
use crate::recording::replay::{Happening, InUse, Replay, State, place_of};

/// So many blocks are told one by one, with their ages. More are told by stack, size and thread.
const BLOCKS: usize = 1 << 20;

/// Events between two keyframes, at least.
const SPACING: u64 = 1 << 18;

/// Bytes that keyframes may take together. Beyond, every second one goes.
const KEYFRAMES_MAX: usize = 96 << 20;

/// What stacks and threads did up to some moment.
#[derive(Clone, Debug, Default)]
struct Deeds {
    /// Allocated and freed, by stack.
    stacks: Vec<(Count, Count)>,
    threads: Vec<ThreadStats>,
}

impl Deeds {
    fn see(&mut self, state: &State, happening: Happening<'_>) {
        match happening {
            Happening::Alloc(block) | Happening::Unfollowed(block) => {
                grown(&mut self.stacks, block.stack as usize).0.add(block.size);
                let thread = grown(&mut self.threads, block.thread as usize);
                thread.allocs += 1;
                thread.alloc_bytes = thread.alloc_bytes.saturating_add(block.size);
            }
            Happening::Free(block, _) | Happening::FreeLost(block) => {
                grown(&mut self.stacks, block.stack as usize).1.add(block.size);
                let thread = grown(&mut self.threads, state.thread as usize);
                thread.frees += 1;
                thread.remote_frees += u64::from(block.thread != state.thread);
            }
            Happening::FreeUnknown(_) => {}
        }
    }
}

/// What the events before a place in the file come to.
#[derive(Clone, Debug)]
struct Keyframe {
    place: Bookmark,
    state: State,
    deeds: Deeds,
}

impl Keyframe {
    fn bytes(&self) -> usize {
        let deeds = &self.deeds;
        self.state.bytes() + size_of_val(&deeds.stacks[..]) + size_of_val(&deeds.threads[..])
    }
}

/// A recording, opened.
#[derive(Debug)]
pub struct Film {
    reader: RecordingReader,
    /// What holds for all of it; the state is that of the moment that was walked to last.
    replay: Replay,
    /// In the order of time; the first is the start.
    keyframes: Vec<Keyframe>,
    /// Events between two of them, at least.
    spacing: u64,
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
        let span_us = shown.span_us.max(1);
        reader.rewind()?;
        let start = Keyframe { place: reader.bookmark(), state: State::default(), deeds: Deeds::default() };
        Ok(Film { reader, replay, keyframes: vec![start], spacing: SPACING, end_us, timeline, span_us })
    }

    /// Time of the last event, microseconds since the start.
    pub fn end_us(&self) -> u64 {
        self.end_us
    }

    /// Walks to a time; gives what was done until then.
    fn walk(&mut self, time_us: u64) -> Result<Deeds, RecordingError> {
        // Events of the keyframe's own time may come behind it, and none of an earlier one.
        let at = self.keyframes.iter().rposition(|known| known.state.time_us < time_us).unwrap_or(0);
        let Keyframe { place, mut state, mut deeds } = self.keyframes[at].clone();
        self.reader.go_to(place)?;
        while let Some(block) = self.reader.next_block()? {
            match block {
                Block::Part(session) => {
                    let number = state.part + 1;
                    let Some(part) = self.replay.parts.get(number).filter(|_| session.begins_us < time_us) else {
                        break;
                    };
                    state.begin_part(number, part);
                }
                Block::Events(columns) => {
                    let see = |state: &State, happening: Happening<'_>| {
                        deeds.see(state, happening);
                        true
                    };
                    match state.apply(&columns, &self.replay.paths, time_us, see) {
                        Some(true) => {}
                        Some(false) => break,
                        None => return Err(self.reader.damaged("more blocks are in use than a recorder follows")),
                    }
                }
                _ => continue,
            }
            let last = self.keyframes.last().map_or(0, |last| last.state.events);
            if state.events >= last.saturating_add(self.spacing) {
                let place = self.reader.bookmark();
                self.keyframes.push(Keyframe { place, state: state.clone(), deeds: deeds.clone() });
                self.thin();
            }
        }
        self.replay.state = state;
        Ok(deeds)
    }

    /// Keeps keyframes within their memory.
    fn thin(&mut self) {
        while self.keyframes.len() > 2 && self.keyframes.iter().map(Keyframe::bytes).sum::<usize>() > KEYFRAMES_MAX {
            let mut at = 0;
            self.keyframes.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.spacing = self.spacing.saturating_mul(2);
        }
    }

    /// Keeps keyframes that are nearer to each other.
    #[cfg(test)]
    pub(crate) fn with_spacing(self, spacing: u64) -> Film {
        Film { spacing, ..self }
    }

    /// How many keyframes are kept.
    #[cfg(test)]
    pub(crate) fn keyframes(&self) -> usize {
        self.keyframes.len()
    }

    /// How the process was at a time, in microseconds since the start.
    pub fn at(&mut self, time_us: u64) -> Result<Frame, RecordingError> {
        let Deeds { stacks, mut threads } = self.walk(time_us)?;
        let replay = &self.replay;
        let figures = |&(allocated, freed): &(Count, Count)| Figures { allocated, freed, ..Figures::default() };
        let stacks: Vec<Figures> = stacks.iter().map(figures).collect();
        let summary = replay.summary();
        let mut snapshot = snapshot(replay, &summary, &stacks, &[], time_us.min(self.end_us));
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
        snapshot.history.began_late = !session.from_start;
        let named = summary.threads.iter().filter(|thread| !thread.name.is_empty());
        let thread_names = named.map(|thread| (thread.tid, thread.name.clone())).collect();
        Ok(Frame { snapshot, thread_names })
    }
}
