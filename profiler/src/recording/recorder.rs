//! Records a program: empties its rings, brings the events together, writes them down.

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use poolscope_wire::trace::{Event, NoEvent, STACK_SLOTS};
use rustix::time::{ClockId, clock_gettime};

use super::alarm::Alarm;
use super::append::Continuation;
use super::call_paths::{CallPaths, UNKNOWN};
use super::matcher::{Matcher, Origin};
use super::session::{RecordedModule, RecordedThread, RingLosses, Session, Summary};
use super::tap::{Answer, Tap, TapError, now_ns};
use super::writer::{FLUSH_EVERY, Writer};
use crate::process;
use crate::snapshot::ProcessState;

/// Bytes of words that are copied at a time, of all rings.
const COPY_BYTES: u64 = 16 << 20;
/// The longest and the shortest time between two readings.
const NAP_MAX: Duration = Duration::from_millis(4);
const NAP_MIN: Duration = Duration::from_micros(200);
/// Time between two heartbeats.
const BEAT_EVERY: Duration = Duration::from_millis(100);
/// Time between two looks at whether the program still runs, and at its modules. Where the kernel tells of its end, that look
/// comes at once.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Time between two summaries in the file.
const SUMMARY_EVERY: Duration = Duration::from_secs(5);
/// Threads that are told apart; those that come later are one.
const MAX_THREADS: usize = 1 << 15;
/// How long a program that was asked to stop may take to say so.
const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// Why a recording ended early.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The program's side.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// The file's side.
    #[error("cannot write the recording: {0}")]
    Write(#[from] io::Error),
}

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
}

/// A ring, and what its latest events said.
#[derive(Debug)]
struct Ring {
    tail: u64,
    slots: Vec<u32>,
    time_ns: u64,
    /// When it was last read to its head: what is in it now came later. What one reading leaves there came before that reading.
    empty_ns: u64,
    thread: Option<u32>,
    losses: RingLosses,
}

impl Ring {
    fn new(number: u32) -> Ring {
        let losses = RingLosses { ring: number, ..RingLosses::default() };
        Ring { tail: 0, slots: vec![UNKNOWN; STACK_SLOTS], time_ns: 0, empty_ns: 0, thread: None, losses }
    }

    /// No event that is still in it is older.
    fn not_before(&self) -> u64 {
        self.time_ns.max(self.empty_ns)
    }

    /// Notes that so many words were taken out, of a ring whose head was looked at after `now`.
    fn took(&mut self, words: u64, head: u64, now: u64) {
        self.tail += words;
        if self.tail == head {
            self.empty_ns = now;
        }
    }
}

/// Events of one ring and one batch.
#[derive(Clone, Copy, Debug)]
struct Batch {
    from_ns: u64,
    until_ns: u64,
    ring: u32,
    start: usize,
    end: usize,
}

/// Records one program.
#[derive(Debug)]
pub struct Recorder<W: Write> {
    tap: Tap,
    writer: Writer<W>,
    paths: CallPaths,
    matcher: Matcher,
    rings: Vec<Ring>,
    threads: Vec<RecordedThread>,
    thread_index: HashMap<(u32, u32), u32>,
    modules: Vec<RecordedModule>,
    module_stacks: u32,
    /// Where every ring was when the reading began that is complete when all are read up to there.
    goal: Vec<u64>,
    start_ns: u64,
    lost_without_ring: u64,
    damaged_words: u64,
    free_stacks: bool,
    bytes: Vec<u8>,
    words: Vec<u64>,
    batches: Vec<Batch>,
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
        let process = tap.segment.process();
        let start_ns = tap.start_ns().unwrap_or_else(now_ns);
        let real = clock_gettime(ClockId::Realtime);
        let real_ns = real.tv_sec as u64 * 1_000_000_000 + real.tv_nsec as u64;
        let session = Session {
            pid: process.pid,
            exe: process.exe,
            args: process.args,
            start_realtime_ns: process.start_realtime_ns,
            start_monotonic_ns: process.start_monotonic_ns,
            recorded_realtime_ns: real_ns.saturating_sub(now_ns().saturating_sub(start_ns)),
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
            paths: before.map_or_else(CallPaths::default, |before| CallPaths::beside(before.nodes, before.paths)),
            matcher: Matcher::default(),
            rings: Vec::new(),
            threads: Vec::new(),
            thread_index: HashMap::new(),
            modules: Vec::new(),
            module_stacks: 0,
            goal: Vec::new(),
            start_ns,
            lost_without_ring: 0,
            damaged_words: 0,
            free_stacks: options.free_stacks,
            bytes: Vec::new(),
            words: Vec::new(),
            batches: Vec::new(),
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
    /// `order` is asked between readings. Returns how it ended.
    pub fn run(
        mut self,
        options: &Options,
        mut order: impl FnMut(&Progress) -> Order,
    ) -> Result<(W, Summary, Progress), RecordError> {
        let (mut beaten, mut flushed, mut looked, mut summed) =
            (Instant::now(), Instant::now(), Instant::now(), Instant::now());
        let mut nap = NAP_MIN;
        let mut alarm = Alarm::of(self.tap.pid());
        let ended = loop {
            let found = self.read_rings()?;
            let now = Instant::now();
            if now - beaten >= BEAT_EVERY {
                beaten = now;
                self.tap.beat().map_err(RecordError::Write)?;
            }
            if self.writer.is_due() || now - flushed >= FLUSH_EVERY {
                flushed = now;
                self.writer.flush(&self.paths)?;
                if self.writer.wants_addresses(self.matcher.live.count()) {
                    self.writer.addresses(&self.paths, &self.matcher.live)?;
                }
            }
            if now - summed >= SUMMARY_EVERY {
                summed = now;
                self.read_modules();
                let summary = self.summary("");
                self.writer.summary(&summary)?;
            }
            // What is still to be written: addresses of the blocks in use, and the stacks.
            let rest = self.matcher.live.count() as u64 * 8 + (self.paths.nodes().len() as u64) * 2;
            if options.limit.is_some_and(|limit| self.writer.bytes_when_finished() + rest >= limit) {
                break "the file has the size that --limit allows";
            }
            if let Order::Stop(why) = order(&self.progress()) {
                break why;
            }
            if now - looked >= LOOK_EVERY || alarm.rings() {
                looked = now;
                self.read_modules();
                let gone = self.tap.segment.process().state != ProcessState::Running;
                match self.tap.answer()? {
                    _ if gone => break "the program ended",
                    Answer::Abandoned => break "the program took the recorder for dead",
                    Answer::Ended => break "the program stopped recording",
                    Answer::On | Answer::NotYet => {}
                }
            }
            if found * 4 > self.tap.ring_words() {
                nap = NAP_MIN;
            } else {
                alarm.sleep(nap);
                nap = if found > 0 { NAP_MIN } else { (nap * 2).min(NAP_MAX) };
            }
        };
        self.finish(ended, options)
    }

    fn finish(mut self, ended: &str, options: &Options) -> Result<(W, Summary, Progress), RecordError> {
        let _ = self.tap.stop();
        let begun = Instant::now();
        let full = |recorder: &Self| {
            options.limit.is_some_and(|limit| recorder.writer.bytes_when_finished() > limit.saturating_sub(limit / 16))
        };
        loop {
            let stopped = self.tap.segment.process().state != ProcessState::Running
                || matches!(self.tap.answer(), Ok(Answer::Ended | Answer::Abandoned) | Err(_));
            let found = self.read_rings()?;
            if (stopped && found == 0) || begun.elapsed() > STOP_PATIENCE || full(&self) {
                break;
            }
            if found == 0 {
                std::thread::sleep(NAP_MIN);
            }
        }
        self.read_rings()?;
        self.matcher.end(&mut self.writer, &self.paths)?;
        if self.tap.segment.process().state != ProcessState::Running {
            self.tap.remove_trace();
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
                    && known.build_id == module.build_id
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

    /// Takes out what is in the rings. Returns the number of words.
    fn read_rings(&mut self) -> Result<u64, RecordError> {
        let (rings, lost) = self.tap.rings()?;
        self.lost_without_ring = lost;
        while self.rings.len() < rings as usize {
            self.rings.push(Ring::new(self.rings.len() as u32));
        }
        let share = COPY_BYTES / 8 / u64::from(rings.max(1));
        // Batches that begin after this stay where they are: what came before them may be in a ring that is read already.
        let now = self.since_start(now_ns());
        let mut found = 0;
        self.words.clear();
        self.batches.clear();
        let mut heads = Vec::with_capacity(rings as usize);
        for ring in 0..rings {
            let Some(state) = self.tap.ring(ring)? else {
                heads.push(u64::MAX);
                continue;
            };
            heads.push(state.head);
            found += self.read_ring(ring, state, share, now)?;
        }
        self.batches.sort_by_key(|batch| (batch.from_ns, batch.ring, batch.start));
        let batches = std::mem::take(&mut self.batches);
        let words = std::mem::take(&mut self.words);
        for batch in &batches {
            self.record(batch, &words[batch.start..batch.end])?;
        }
        (self.batches, self.words) = (batches, words);
        if self.goal.len() <= self.rings.len()
            && self.rings.iter().zip(&self.goal).all(|(ring, &goal)| goal == u64::MAX || ring.tail >= goal)
        {
            self.matcher.all_rings_read(&mut self.writer, &self.paths)?;
            self.goal = heads;
        }
        Ok(found)
    }

    /// Copies what is new in a ring, and cuts it into batches. Returns the number of words.
    fn read_ring(
        &mut self,
        index: u32,
        state: super::tap::RingState,
        share: u64,
        now: u64,
    ) -> Result<u64, RecordError> {
        // Its head was looked at before: no event came later.
        let until = self.since_start(now_ns());
        let ring = &mut self.rings[index as usize];
        ring.losses = RingLosses {
            ring: index,
            tid: state.tid,
            allocs: state.lost_allocs,
            frees: state.lost_frees,
            waits: state.waits,
        };
        let available = state.head.saturating_sub(ring.tail);
        if available == 0 {
            ring.took(0, state.head, now);
            return Ok(0);
        }
        let first = self.words.len();
        let to = ring.tail + available.min(share);
        self.tap.copy(index, ring.tail, to, &mut self.bytes, &mut self.words)?;
        let words = &self.words[first..];
        let mut batch = Batch { from_ns: ring.not_before(), until_ns: until, ring: index, start: first, end: first };
        let mut at = 0;
        while at < words.len() {
            match Event::read(&words[at..]) {
                Ok((Event::Time(ns), len)) => {
                    let ns = ns.saturating_sub(self.start_ns).max(ring.time_ns);
                    if ns >= now {
                        break;
                    }
                    ring.time_ns = ns;
                    if first + at > batch.start {
                        self.batches.push(Batch { until_ns: ns.max(batch.from_ns), end: first + at, ..batch });
                    }
                    at += len;
                    batch.start = first + at;
                    batch.from_ns = ns.max(batch.from_ns);
                }
                Ok((_, len)) => at += len,
                Err(NoEvent::Cut) => break,
                Err(NoEvent::Unknown(_)) => {
                    self.damaged_words += 1;
                    at += 1;
                }
            }
        }
        batch.end = first + at;
        if batch.end > batch.start {
            self.batches.push(batch);
        }
        ring.took(at as u64, state.head, now);
        self.words.truncate(first + at);
        self.tap.take_out(index, ring.tail)?;
        Ok(at as u64)
    }

    /// Writes the events of a batch.
    fn record(&mut self, batch: &Batch, words: &[u64]) -> Result<(), RecordError> {
        let origin = Origin { ring: batch.ring, from_ns: batch.from_ns, until_ns: batch.until_ns };
        self.writer.time(batch.from_ns / 1000);
        if let Some(thread) = self.rings[batch.ring as usize].thread {
            self.writer.thread(thread);
        }
        let mut at = 0;
        while at < words.len() {
            let Ok((event, len)) = Event::read(&words[at..]) else {
                at += 1;
                continue;
            };
            at += len;
            let ring = &mut self.rings[batch.ring as usize];
            match event {
                Event::Alloc { address, size, slot } => {
                    let stack = ring.slots.get(slot as usize).copied().unwrap_or(UNKNOWN);
                    self.matcher.alloc(&mut self.writer, address, size, stack, origin);
                }
                Event::Free { address, slot } => {
                    let stack = self.free_stacks.then(|| ring.slots.get(slot as usize).copied().unwrap_or(UNKNOWN));
                    self.matcher.free(&mut self.writer, address, stack, origin);
                }
                Event::Stack { slot, frames, flags } => {
                    let stack = self.paths.intern(frames, flags);
                    if let Some(place) = ring.slots.get_mut(slot as usize) {
                        *place = stack;
                    }
                }
                Event::Thread(tid) => {
                    let thread = self.thread(batch.ring, tid);
                    self.rings[batch.ring as usize].thread = Some(thread);
                    self.writer.thread(thread);
                }
                Event::Time(_) | Event::Lost(_) => {}
            }
            if self.writer.is_due() {
                self.writer.flush(&self.paths)?;
                if self.writer.wants_addresses(self.matcher.live.count()) {
                    self.writer.addresses(&self.paths, &self.matcher.live)?;
                }
            }
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::Ring;

    #[test]
    fn what_a_reading_leaves_in_a_ring_is_not_taken_for_younger_than_the_reading() {
        let mut ring = Ring::new(0);
        ring.time_ns = 10;
        ring.took(60, 100, 1000);
        assert_eq!(ring.not_before(), 10);
        ring.took(40, 100, 2000);
        assert_eq!(ring.not_before(), 2000);
        ring.took(0, 100, 3000);
        ring.time_ns = 3500;
        assert_eq!(ring.not_before(), 3500);
    }
}
