//! What a recording comes to: the figures behind every report.
//!
//! The events are gone through twice: once to find when most was in use, and once more up to there. What is kept grows
//! with the stacks and the blocks in use, not with the events.

use std::collections::{BTreeMap, HashMap};

use super::cautions::cautions;
use super::figures::grown;
pub use super::figures::{Count, Figures, PartFigures, PeakFound, Span, ThreadFigures};
use super::process_snapshot::snapshot;
use super::reader::{RecordingError, RecordingReader, Tail};
use super::replay::{Happening, InUse, MOST_THREADS, Replay, State};
use super::session::{Session, Summary};
use super::sparse_pages::pages;
pub use super::sparse_pages::{NEARLY_EMPTY, Pages};
use crate::builder::ProfileBuilder;
use crate::profile::Profile;

/// Points of the timeline, at most.
pub const TIMELINE: usize = 512;

/// Distinct sizes that are counted one by one; others are one in the list of sizes, and each in the histogram.
const MAX_SIZES: usize = 1 << 16;

/// What is asked of a recording.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// Between this time and [`to_us`](Self::to_us), microseconds since the start, growth is counted.
    pub from_us: u64,
    /// The end of that time, and of everything that is looked at.
    pub to_us: u64,
    /// A block is temporary if its thread freed it after no more than so many other allocations of its own.
    pub temporary: u64,
}

impl Default for Question {
    fn default() -> Self {
        Self { from_us: 0, to_us: u64::MAX, temporary: 0 }
    }
}

/// Everything that a report says.
#[derive(Debug)]
pub struct Analysis {
    /// Whose recording the last part is that was looked at: what is in use at the end is in use there.
    pub session: Session,
    /// The parts of the file that were looked at.
    pub parts: Vec<PartFigures>,
    cautions: Vec<String>,
    /// Losses and threads.
    pub summary: Summary,
    /// How the file ends.
    pub tail: Tail,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// What was asked.
    pub question: Question,
    /// Time of the last event, microseconds since the start.
    pub end_us: u64,
    /// All stacks together.
    pub total: Figures,
    /// Frees of blocks that were allocated before the recording, or by events that were lost.
    pub unknown_frees: u64,
    /// Frees that were lost, and found out later.
    pub lost_frees: u64,
    /// Allocations that were not followed.
    pub unfollowed: u64,
    /// Most in use.
    pub peak: PeakFound,
    /// By powers of two: the `n`th has sizes from `2^(n-1)` to less than `2^n`; the first has size 0.
    pub sizes: Vec<Count>,
    /// The sizes that were asked for most often.
    pub common_sizes: Vec<(u64, u64)>,
    /// By powers of ten of microseconds: below 1, 10, 100 and so on; blocks that were freed.
    pub lifetimes: Vec<Count>,
    /// Microseconds of a span of the timeline.
    pub span_us: u64,
    /// Spans of time.
    pub timeline: Vec<Span>,
    /// Threads, as the summary lists them.
    pub threads: Vec<ThreadFigures>,
    /// Pages at the end.
    pub pages: Pages,
    /// What each stack did.
    pub stacks: Vec<Figures>,
    /// The call sites, in use as at the end of the time that was asked for.
    pub profile: Profile,
    /// What each site of the profile did.
    pub sites: Vec<Figures>,
}

/// The figures while events go by.
struct Collector {
    question: Question,
    stacks: Vec<Figures>,
    total: Figures,
    unknown_frees: u64,
    lost_frees: u64,
    unfollowed: u64,
    peak: PeakFound,
    sizes: Vec<Count>,
    size_counts: HashMap<u64, u64>,
    lifetimes: Vec<Count>,
    span_us: u64,
    timeline: Vec<Span>,
    threads: Vec<ThreadFigures>,
    parts: Vec<PartFigures>,
    peak_part: usize,
    started: bool,
    end_us: u64,
}

impl Collector {
    fn new(question: Question) -> Self {
        Self {
            question,
            stacks: Vec::new(),
            total: Figures::default(),
            unknown_frees: 0,
            lost_frees: 0,
            unfollowed: 0,
            peak: PeakFound::default(),
            sizes: Vec::new(),
            size_counts: HashMap::new(),
            lifetimes: Vec::new(),
            span_us: 1000,
            timeline: Vec::new(),
            threads: Vec::new(),
            parts: Vec::new(),
            peak_part: 0,
            started: question.from_us == 0,
            end_us: 0,
        }
    }

    fn stack(&mut self, stack: u32) -> &mut Figures {
        grown(&mut self.stacks, stack as usize)
    }

    fn see(&mut self, state: &State, happening: Happening<'_>) {
        self.end_us = state.time_us;
        let span = self.span(state.time_us);
        span.seen = true;
        span.most_bytes = span.most_bytes.max(state.bytes);
        span.most_objects = span.most_objects.max(state.objects);
        grown(&mut self.parts, state.part).see(state, happening);
        let span = self.span(state.time_us);
        match happening {
            Happening::Alloc(block) | Happening::Unfollowed(block) => {
                span.allocs += 1;
                self.allocated(block);
                if matches!(happening, Happening::Unfollowed(_)) {
                    self.unfollowed += 1;
                } else if state.bytes > self.peak.count.bytes {
                    self.peak_part = state.part;
                    self.peak = PeakFound {
                        count: Count { objects: state.objects, bytes: state.bytes },
                        time_us: state.time_us,
                        events: state.events,
                    };
                }
            }
            Happening::Free(block, by) => {
                span.frees += 1;
                self.freed(state, block);
                self.freed_by(by, block.size);
            }
            Happening::FreeLost(block) => {
                self.lost_frees += 1;
                self.stack(block.stack).freed.add(block.size);
            }
            Happening::FreeUnknown(by) => {
                span.frees += 1;
                self.unknown_frees += 1;
                self.freed_by(by, 0);
                self.thread(state.thread).frees += 1;
            }
        }
    }

    fn thread(&mut self, thread: u32) -> &mut ThreadFigures {
        // More than a recorder writes down are one.
        grown(&mut self.threads, thread.min(MOST_THREADS) as usize)
    }

    fn allocated(&mut self, block: &InUse) {
        self.stack(block.stack).allocated.add(block.size);
        self.thread(block.thread).allocated.add(block.size);
        let class = (64 - block.size.leading_zeros()) as usize;
        grown(&mut self.sizes, class).add(block.size);
        if self.size_counts.len() < MAX_SIZES || self.size_counts.contains_key(&block.size) {
            *self.size_counts.entry(block.size).or_default() += 1;
        }
    }

    fn freed(&mut self, state: &State, block: &InUse) {
        let lifetime = state.time_us.saturating_sub(block.time_us);
        let own = state.thread == block.thread;
        let between = state.order(block.thread).saturating_sub(block.order + 1);
        let temporary = own && between <= self.question.temporary;
        let stack = self.stack(block.stack);
        stack.freed.add(block.size);
        stack.lifetime_us = stack.lifetime_us.saturating_add(lifetime);
        if temporary {
            stack.temporary.add(block.size);
        }
        let decade = (lifetime.checked_ilog10().map_or(0, |log| log + 1)) as usize;
        grown(&mut self.lifetimes, decade).add(block.size);
        let thread = self.thread(state.thread);
        thread.frees += 1;
        thread.frees_of_others += u64::from(!own);
        if temporary {
            thread.temporary.add(block.size);
        }
    }

    fn freed_by(&mut self, stack: Option<u32>, bytes: u64) {
        if let Some(stack) = stack {
            self.stack(stack).freed_here.add(bytes);
        }
    }

    /// The span that a time lies in; spans become longer as the recording does.
    fn span(&mut self, time_us: u64) -> &mut Span {
        while time_us / self.span_us >= TIMELINE as u64 {
            self.span_us = self.span_us.saturating_mul(2);
            self.timeline = self.timeline.chunks(2).map(joined).collect();
        }
        grown(&mut self.timeline, (time_us / self.span_us) as usize)
    }
}

fn joined(spans: &[Span]) -> Span {
    spans.iter().fold(Span::default(), |all, span| Span {
        most_bytes: all.most_bytes.max(span.most_bytes),
        most_objects: all.most_objects.max(span.most_objects),
        allocs: all.allocs + span.allocs,
        frees: all.frees + span.frees,
        seen: all.seen || span.seen,
    })
}

impl PartFigures {
    fn see(&mut self, state: &State, happening: Happening<'_>) {
        self.end_us = state.time_us;
        self.at_end = Count { objects: state.objects, bytes: state.bytes };
        if state.bytes > self.peak.bytes {
            self.peak = self.at_end;
        }
        match happening {
            Happening::Alloc(block) | Happening::Unfollowed(block) => self.allocated.add(block.size),
            Happening::Free(..) | Happening::FreeUnknown(_) => self.frees += 1,
            Happening::FreeLost(_) => {}
        }
    }

    /// The figures of the parts that a replay has reached.
    fn of(replay: &Replay, mut figures: Vec<PartFigures>) -> Vec<PartFigures> {
        figures.resize(replay.state.part + 1, PartFigures::default());
        for (figures, part) in figures.iter_mut().zip(&replay.parts) {
            figures.session = part.session.clone();
            figures.ended.clone_from(&part.summary.ended);
            figures.end_us = figures.end_us.max(part.session.begins_us);
        }
        figures
    }
}

/// What was in use by stack at one moment.
fn in_use_by_stack(state: &State, stacks: &mut Vec<Figures>, mut place: impl FnMut(&mut Figures) -> &mut Count) {
    for (_, block) in state.in_use() {
        place(grown(stacks, block.stack as usize)).add(block.size);
    }
}

impl Analysis {
    /// Goes through a recording.
    pub fn of(
        reader: &mut RecordingReader,
        builder: &mut ProfileBuilder,
        question: Question,
    ) -> Result<Analysis, RecordingError> {
        let mut collector = Collector::new(question);
        let replay = Replay::run(reader, question.to_us, |state, happening| {
            if !collector.started && state.time_us >= question.from_us {
                collector.started = true;
                in_use_by_stack(state, &mut collector.stacks, |figures| &mut figures.at_start);
                // The state is that after this event.
                match happening {
                    Happening::Alloc(block) => collector.stack(block.stack).at_start.take(block.size),
                    Happening::Free(block, _) | Happening::FreeLost(block) => {
                        collector.stack(block.stack).at_start.add(block.size);
                    }
                    Happening::Unfollowed(_) | Happening::FreeUnknown(_) => {}
                }
            }
            collector.see(state, happening);
            true
        })?;
        let state = &replay.state;
        if !collector.started {
            in_use_by_stack(state, &mut collector.stacks, |figures| &mut figures.at_start);
        }
        in_use_by_stack(state, &mut collector.stacks, |figures| &mut figures.at_end);
        for (_, block) in state.in_use() {
            collector.thread(block.thread).at_end.add(block.size);
        }
        let pages = pages(&replay, replay.last().session.page_bytes, &mut collector.stacks);

        // Once more, up to the peak.
        let peak = collector.peak;
        if peak.events > 0 {
            let then = Replay::run(reader, u64::MAX, |state, _| state.events < peak.events)?;
            in_use_by_stack(&then.state, &mut collector.stacks, |figures| &mut figures.peak);
        }

        collector.stacks.resize(replay.paths.len().max(collector.stacks.len()), Figures::default());
        let mut total = Figures::default();
        collector.stacks.iter().for_each(|figures| total.join(figures));
        collector.total = total;
        let summary = replay.summary();
        let snapshot = snapshot(&replay, &summary, &collector.stacks, (&peak, collector.peak_part), collector.end_us);
        let frees = |stack: usize| collector.stacks.get(stack).is_some_and(|figures| figures.freed_here.objects > 0);
        let (mut profile, site_of_stacks) = builder.build_with_sites(&snapshot, frees);
        let parts = PartFigures::of(&replay, std::mem::take(&mut collector.parts));
        let cautions = cautions(&parts, &summary, &replay.tail, collector.unfollowed);
        let session = replay.last().session.clone();
        profile.comments = vec![format!("{} (pid {}, recorded)", session.command(), session.pid)];
        profile.comments.extend(cautions.iter().cloned());
        profile.thread_names = thread_names(&summary);
        let mut sites = vec![Figures::default(); profile.sites.len()];
        for (figures, site) in collector.stacks.iter().zip(&site_of_stacks) {
            if let Some(site) = site.and_then(|site| sites.get_mut(site)) {
                site.join(figures);
            }
        }
        let mut common_sizes: Vec<(u64, u64)> = collector.size_counts.into_iter().collect();
        common_sizes.sort_by_key(|&(size, count)| (std::cmp::Reverse(count), size));
        common_sizes.truncate(100);
        collector.threads.resize(collector.threads.len().max(summary.threads.len()), ThreadFigures::default());
        Ok(Analysis {
            session,
            parts,
            cautions,
            summary,
            tail: replay.tail,
            file_bytes: reader.len(),
            question,
            end_us: collector.end_us,
            total,
            unknown_frees: collector.unknown_frees,
            lost_frees: collector.lost_frees,
            unfollowed: collector.unfollowed,
            peak,
            sizes: collector.sizes,
            common_sizes,
            lifetimes: collector.lifetimes,
            span_us: collector.span_us,
            timeline: filled(collector.timeline),
            threads: collector.threads,
            pages,
            stacks: collector.stacks,
            profile,
            sites,
        })
    }

    /// The stacks of frees are in it, or in some part.
    pub fn has_free_stacks(&self) -> bool {
        self.parts.iter().any(|part| part.session.free_stacks)
    }

    /// What a reader of any figure has to know first; empty if there is nothing.
    pub fn cautions(&self) -> &[String] {
        &self.cautions
    }
}

/// Spans in which nothing happened have what the one before had in use.
fn filled(mut timeline: Vec<Span>) -> Vec<Span> {
    let mut last = Span::default();
    for span in &mut timeline {
        if span.seen {
            last = *span;
        } else {
            (span.most_bytes, span.most_objects) = (last.most_bytes, last.most_objects);
        }
    }
    timeline
}

fn thread_names(summary: &Summary) -> BTreeMap<u32, String> {
    let named = summary.threads.iter().filter(|thread| !thread.name.is_empty());
    named.map(|thread| (thread.tid, thread.name.clone())).collect()
}
