//! Records a program: empties its rings, brings the events together, writes them down.

pub mod alarm;
mod error;
pub(crate) mod matcher;
mod reading;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io::Write;
use std::time::{Duration, Instant};

use poolscope_wire::trace::{BATCH, DeviceEvent, Event, NoEvent, block_of, slot_of, tag};
use rustix::time::{ClockId, clock_gettime};

use crate::model::snapshot::ProcessState;
use crate::process::{self, clock::monotonic_ns};
use crate::recording::events::call_paths::{CallPaths, UNKNOWN};
use crate::recording::events::lanes::Lanes;
use crate::recording::events::session::{RecordedModule, RecordedThread, Session, Summary};
use crate::recording::file::append::Continuation;
use crate::recording::file::writer::{FLUSH_EVERY, Writer};
use crate::recording::recorder::alarm::Alarm;
use crate::recording::recorder::matcher::{Matcher, Origin};
use crate::recording::tap::rings::Ring;
use crate::recording::tap::{Answer, Tap};

pub use error::RecordError;

/// What is known of a block is brought into the processor's caches at least so many words before its event is recorded,
/// which is more than a batch has: other threads' come in between.
const AHEAD: usize = 2 * BATCH as usize;
/// The longest time between two readings of a program that calls where much waits.
const NAP: Duration = Duration::from_millis(100);
/// The longest and the shortest time between two readings where its calls can't be heard.
const NAP_MAX: Duration = Duration::from_millis(4);
const NAP_MIN: Duration = Duration::from_micros(200);
/// Time between two heartbeats.
const BEAT_EVERY: Duration = Duration::from_millis(100);
/// Time between two looks at whether the program still runs, and at its modules. Where the kernel tells of its end,
/// that look comes at once.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Time between two summaries in the file.
const SUMMARY_EVERY: Duration = Duration::from_secs(5);
/// Threads that are told apart; those that come later are one.
const MAX_THREADS: usize = 1 << 15;
/// How long a program that was asked to stop may take to say so.
const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// Stacks may take one part in so many of the memory that is to be had when the recording begins.
const PART_FOR_STACKS: u64 = 8;

/// The reason that is given when a recording ends at its limit.
const FULL: &str = "the file has the size that --limit allows";

/// How it goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Allocations and frees so far.
    pub allocs: u64,
    /// Frees so far.
    pub frees: u64,
    /// Events lost so far.
    pub lost: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Blocks in use.
    pub live: usize,
    /// Stacks so far.
    pub stacks: usize,
    /// Threads so far.
    pub threads: usize,
    /// The program has answered.
    pub recording: bool,
}

/// What the recorder is told by who runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Go on.
    GoOn,
    /// Stop: what for.
    Stop(&'static str),
    /// The process has another pool by now: why. This one does nothing more, and answers nothing.
    Gone(&'static str),
}

/// Records one program.
#[derive(Debug)]
pub struct Recorder<W: Write> {
    tap: Tap,
    writer: Writer<W>,
    paths: CallPaths,
    matcher: Matcher,
    lanes: Lanes,
    rings: Vec<Ring>,
    threads: Vec<RecordedThread>,
    thread_index: HashMap<(u32, u32), u32>,
    modules: Vec<RecordedModule>,
    module_stacks: u32,
    /// Where every ring was when they had last been read completely: they are again when all are read up to there.
    goal: Vec<u64>,
    /// The latest reading has left some in a ring, or took more than a part of what a ring has room for.
    found_much: bool,
    start_ns: u64,
    lost_without_ring: u64,
    damaged_words: u64,
    free_stacks: bool,
    /// Bytes that the file may have.
    limit: Option<u64>,
    /// It has so many.
    is_full: bool,
    /// The next batch of each ring that has one, by when it began.
    batches: BinaryHeap<Reverse<(u64, u32)>>,
}

/// What kind of recording it is to be.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The program was started for it.
    pub from_start: bool,
    /// The program waits for room.
    pub lossless: bool,
    /// Frees have stacks.
    pub free_stacks: bool,
    /// Bytes that the file may have.
    pub limit: Option<u64>,
}

impl<W: Write> Recorder<W> {
    /// A recorder of a program that has answered, and whose rings are open.
    pub fn new(tap: Tap, out: W, options: &Options) -> Result<Self, RecordError> {
        Self::append(tap, out, options, None)
    }

    /// The same, which goes on behind the parts that `before` has found in the file of `out`.
    pub fn append(mut tap: Tap, out: W, options: &Options, before: Option<&Continuation>) -> Result<Self, RecordError> {
        let room = process::available_memory().map_or(0, |bytes| bytes / PART_FOR_STACKS);
        let process = tap.segment.process();
        let start_ns = tap.start_ns().unwrap_or_else(monotonic_ns);
        let real = clock_gettime(ClockId::Realtime);
        let real_ns = real.tv_sec as u64 * 1_000_000_000 + real.tv_nsec as u64;
        let session = Session {
            pid: process.pid,
            exe: process.exe,
            args: process.args,
            start_realtime_ns: process.start_realtime_ns,
            start_monotonic_ns: process.start_monotonic_ns,
            recorded_realtime_ns: real_ns.saturating_sub(monotonic_ns().saturating_sub(start_ns)),
            recorded_monotonic_ns: start_ns,
            begins_us: 0,
            page_bytes: tap.segment.header().page_bytes,
            from_start: options.from_start,
            lossless: options.lossless,
            free_stacks: options.free_stacks,
            recorder: env!("CARGO_PKG_VERSION").to_owned(),
        };
        Ok(Self {
            tap,
            writer: match before {
                Some(before) => Writer::append(out, &session, before)?,
                None => Writer::new(out, &session)?,
            },
            paths: CallPaths::beside(&before.map(|before| before.stacks).unwrap_or_default(), room),
            matcher: Matcher::default(),
            lanes: Lanes::default(),
            rings: Vec::new(),
            threads: Vec::new(),
            thread_index: HashMap::new(),
            modules: Vec::new(),
            module_stacks: 0,
            goal: Vec::new(),
            found_much: false,
            start_ns,
            lost_without_ring: 0,
            damaged_words: 0,
            free_stacks: options.free_stacks,
            limit: options.limit,
            is_full: false,
            batches: BinaryHeap::new(),
        })
    }

    /// How it goes.
    pub fn progress(&self) -> Progress {
        let (allocs, frees) = self.writer.counts();
        let lost = self.rings.iter().map(|ring| ring.losses.allocs + ring.losses.frees).sum::<u64>();
        Progress {
            allocs,
            frees,
            lost: lost + self.lost_without_ring,
            bytes: self.writer.bytes(),
            live: self.matcher.live.count(),
            stacks: self.paths.paths().len() - 1,
            threads: self.threads.len(),
            recording: true,
        }
    }

    /// Records until the program ends, the file is as large as it may be, or `order` says stop; then finishes the file.
    /// `order` is asked between readings. Returns how it ended; an error if there was no event, which a recording has.
    pub fn run(mut self, mut order: impl FnMut(&Progress) -> Order) -> Result<(W, Summary, Progress), RecordError> {
        let (mut beaten, mut flushed, mut looked, mut summed) =
            (Instant::now(), Instant::now(), Instant::now(), Instant::now());
        let mut nap = NAP_MIN;
        let mut alarm = Alarm::of(self.tap.pid()).hearing(self.tap.bell());
        // What it has done before that was not to be heard.
        let mut called = true;
        let (ended, is_gone) = loop {
            let found = self.read_rings()?;
            let now = Instant::now();
            if now - beaten >= BEAT_EVERY {
                beaten = now;
                self.tap.beat().map_err(RecordError::Write)?;
            }
            // The first events at once: from then on there is a recording.
            if self.writer.is_due() || !self.writer.has_begun() || now - flushed >= FLUSH_EVERY {
                flushed = now;
                self.write_out()?;
            }
            if now - summed >= SUMMARY_EVERY && self.writer.has_begun() {
                summed = now;
                self.read_modules();
                let summary = self.summary("");
                self.writer.summary(&summary)?;
            }
            if self.fills()? {
                break (FULL, false);
            }
            match order(&self.progress()) {
                Order::Stop(why) => break (why, false),
                Order::Gone(why) => break (why, true),
                Order::GoOn => {}
            }
            let due = now - looked >= LOOK_EVERY || alarm.rings();
            if due {
                looked = now;
                self.read_modules();
            }
            let answer = if due || called { self.tap.answer()? } else { Answer::On };
            if answer == Answer::Ended {
                // It says so at its end, a moment before.
                alarm.wait_for_end(LOOK_EVERY);
            }
            if due || answer != Answer::On {
                let gone = self.tap.segment.process().state != ProcessState::Running;
                match answer {
                    _ if gone => break ("the program ended", true),
                    Answer::Abandoned => break ("the program took the recorder for dead", false),
                    Answer::Ended => break ("the program stopped recording", false),
                    Answer::On | Answer::NotYet => {}
                }
            }
            let much = self.found_much;
            if much && !called && !alarm.sleep(Duration::ZERO) {
                // It should have called, and has not: the word that it calls by is not this one any more.
                alarm.stop_hearing();
            }
            called = if much {
                nap = NAP_MIN;
                // It may have called already for what it has done meanwhile.
                true
            } else if alarm.hears() {
                alarm.sleep(NAP)
            } else {
                nap = if found > 0 { NAP_MIN } else { (nap * 2).min(NAP_MAX) };
                alarm.sleep(nap)
            };
        };
        self.finish(ended, is_gone)
    }

    fn finish(mut self, ended: &str, is_gone: bool) -> Result<(W, Summary, Progress), RecordError> {
        let _ = self.tap.stop();
        let begun = Instant::now();
        loop {
            let stopped = is_gone
                || self.tap.segment.process().state != ProcessState::Running
                || matches!(self.tap.answer(), Ok(Answer::Ended | Answer::Abandoned) | Err(_));
            let found = self.read_rings()?;
            // What a program has left is read to its end, however long that takes.
            if (stopped && found == 0) || (!stopped && begun.elapsed() > STOP_PATIENCE) || self.is_full {
                break;
            }
            if found == 0 {
                std::thread::sleep(NAP_MIN);
            }
        }
        self.read_rings()?;
        let ended = if self.is_full { FULL } else { ended };
        self.matcher.end(&mut self.writer, &self.paths)?;
        if self.writer.is_empty() {
            return Err(RecordError::Nothing { ended: ended.to_owned(), lost: self.progress().lost });
        }
        self.read_modules();
        self.writer.addresses(&self.paths, &self.matcher.live)?;
        let summary = self.summary(ended);
        self.writer.modules(&self.modules)?;
        self.writer.summary(&summary)?;
        let mut progress = self.progress();
        progress.bytes = self.writer.bytes_when_finished();
        Ok((self.writer.finish()?, summary, progress))
    }

    fn summary(&self, ended: &str) -> Summary {
        Summary {
            threads: self.threads.clone(),
            losses: self.rings.iter().map(|ring| ring.losses).collect(),
            lost_without_ring: self.lost_without_ring,
            damaged_words: self.damaged_words,
            refused_stacks: self.paths.refused,
            recorder_bytes: process::memory(std::process::id()).map_or(0, |memory| memory.peak_rss),
            ended: ended.to_owned(),
        }
    }

    /// Reads the list of modules, if there are stacks that it may not know of.
    fn read_modules(&mut self) {
        let stacks = self.paths.paths().len() as u32;
        if stacks == self.module_stacks {
            return;
        }
        // A segment that can't be read now may be at the next look.
        let Ok(modules) = self.tap.segment.modules() else { return };
        let mut changed = false;
        let is_first = self.modules.is_empty();
        for module in modules {
            let gone = module.stacks.end != u32::MAX;
            let same = |known: &&mut RecordedModule| {
                (known.start, known.end) == (module.start, module.end)
                    && known.path == module.path
                    && (&known.build_id, known.file) == (&module.build_id, module.file)
                    && known.last_stack == u32::MAX
            };
            match self.modules.iter_mut().find(same) {
                Some(known) if gone => {
                    known.last_stack = stacks;
                    changed = true;
                }
                Some(_) => {}
                None if gone && !is_first => {}
                None => {
                    let first_stack = if is_first { 0 } else { self.module_stacks };
                    self.modules.push(RecordedModule {
                        start: module.start,
                        end: module.end,
                        load_bias: module.load_bias,
                        build_id: module.build_id,
                        file: module.file,
                        path: module.path,
                        first_stack,
                        last_stack: if gone { stacks } else { u32::MAX },
                    });
                    changed = true;
                }
            }
        }
        self.module_stacks = stacks;
        if changed && let Err(error) = self.writer.modules(&self.modules) {
            // The next block fails in the same way, and says so.
            let _ = error;
        }
    }

    fn since_start(&self, ns: u64) -> u64 {
        ns.saturating_sub(self.start_ns)
    }

    /// Whether the file has no room for more events: what is still to be written are addresses of the blocks in use,
    /// and the stacks. What waits to be written takes less than is reckoned with, and is written out to know.
    fn fills(&mut self) -> Result<bool, RecordError> {
        let Some(limit) = self.limit else { return Ok(false) };
        let rest = self.matcher.live.count() as u64 * 8 + self.paths.nodes().len() as u64 * 2;
        if !self.is_full && self.writer.bytes_when_finished() + rest >= limit {
            self.write_out()?;
            self.is_full = self.writer.bytes_when_finished() + rest >= limit - limit / 16;
        }
        Ok(self.is_full)
    }

    /// Records a batch, which began at `from_ns`. Returns the number of its words.
    fn record(&mut self, index: u32, from_ns: u64) -> Result<u64, RecordError> {
        let origin = Origin { ring: index, from_ns, lane: None };
        self.writer.time(from_ns / 1000);
        if let Some(thread) = self.rings[index as usize].thread {
            self.writer.thread(thread);
        }
        let words = std::mem::take(&mut self.rings[index as usize].words);
        let first = self.rings[index as usize].at;
        let mut at = first;
        let mut announced = self.rings[index as usize].announced;
        loop {
            if announced < at + AHEAD {
                let to = words.len().min(at + 2 * AHEAD);
                // Words that are no events are taken for some: that costs less than to tell them apart.
                let soon = words.get(announced.max(at)..to).unwrap_or_default();
                soon.iter().for_each(|&word| self.matcher.live.prefetch(block_of(word)));
                announced = to;
            }
            let from = at;
            at = self.record_blocks(index, &words, at, announced.saturating_sub(AHEAD), origin);
            if self.writer.is_due() {
                self.write_out()?;
            }
            if at != from {
                continue;
            }
            let ring = &mut self.rings[index as usize];
            let (event, len) = match Event::read(&words[at..]) {
                Ok((Event::Time(_), _)) | Err(NoEvent::Cut) => break,
                Ok(read) => read,
                Err(NoEvent::Unknown(_)) => {
                    self.damaged_words += 1;
                    at += 1;
                    continue;
                }
            };
            at += len;
            match event {
                Event::Device(event) => {
                    let stack = ring.slots.get(event.slot as usize).copied().unwrap_or(UNKNOWN);
                    self.device(&event, stack, origin);
                }
                Event::Stack { slot, frames, flags } => {
                    let segment = &mut self.tap.segment;
                    let stack = self.paths.intern_from(frames, flags, |function| segment.function_words(function));
                    if let Some(place) = ring.slots.get_mut(slot as usize) {
                        *place = stack;
                    }
                }
                Event::Thread(tid) => {
                    let thread = self.thread(index, tid);
                    self.rings[index as usize].thread = Some(thread);
                    self.writer.thread(thread);
                }
                // Those of blocks were recorded above.
                Event::Alloc { .. } | Event::Free { .. } | Event::Time(_) | Event::Lost(_) => {}
            }
        }
        let ring = &mut self.rings[index as usize];
        (ring.words, ring.at, ring.announced) = (words, at, announced);
        self.matcher.end_batch(ring.end_of_batch(self.start_ns, from_ns));
        Ok((at - first) as u64)
    }

    /// Records events of blocks of host memory, which nearly all are: the one at `at`, and those behind it up to
    /// `until`, to another event, or to where the block of events is full. Returns where the next event is, which is
    /// `at` if the one there is another.
    #[inline(always)]
    fn record_blocks(&mut self, index: u32, words: &[u64], mut at: usize, until: usize, origin: Origin) -> usize {
        let origin = Origin { lane: None, ..origin };
        let slots = self.rings[index as usize].slots.as_slice();
        let stack_of = |word: u64| slots.get(slot_of(word) as usize).copied().unwrap_or(UNKNOWN);
        loop {
            let Some(&word) = words.get(at) else { return at };
            if word & tag::MASK == tag::FREE {
                let stack = self.free_stacks.then(|| stack_of(word));
                self.matcher.free(&mut self.writer, block_of(word), stack, origin);
                at += 1;
            } else if word & tag::MASK == tag::ALLOC
                && let Some(&size) = words.get(at + 1)
            {
                self.matcher.alloc(&mut self.writer, block_of(word), size, stack_of(word), origin);
                at += 2;
            } else {
                return at;
            }
            if at >= until || self.writer.is_due() {
                return at;
            }
        }
    }

    /// Writes out the block of events, and now and then where the blocks lie.
    #[cold]
    fn write_out(&mut self) -> Result<(), RecordError> {
        self.writer.flush(&self.paths)?;
        if self.writer.wants_addresses(self.matcher.live.count()) {
            self.writer.addresses(&self.paths, &self.matcher.live)?;
        }
        Ok(())
    }

    /// Writes an event of a device's memory.
    fn device(&mut self, event: &DeviceEvent, stack: u32, origin: Origin) {
        let Some((lane, address)) = self.lanes.of(event) else {
            self.damaged_words += 1;
            return;
        };
        let origin = Origin { lane: Some(lane), ..origin };
        match event.size {
            Some(size) => {
                let stack = self.paths.on_device(stack, lane.place);
                self.matcher.alloc(&mut self.writer, address, size, stack, origin);
            }
            None => {
                let stack = self.free_stacks.then(|| self.paths.on_device(stack, lane.place));
                self.matcher.free(&mut self.writer, address, stack, origin);
            }
        }
    }

    fn thread(&mut self, ring: u32, tid: u32) -> u32 {
        if let Some(&known) = self.thread_index.get(&(ring, tid)) {
            return known;
        }
        if self.threads.len() > MAX_THREADS {
            return MAX_THREADS as u32;
        }
        let thread = self.threads.len() as u32;
        if self.threads.len() == MAX_THREADS {
            self.threads.push(RecordedThread { tid: 0, name: "all later threads".to_owned(), ring });
            return thread;
        }
        let name = process::thread_name(self.tap.pid(), tid);
        self.threads.push(RecordedThread { tid, name, ring });
        self.thread_index.insert((ring, tid), thread);
        thread
    }
}
