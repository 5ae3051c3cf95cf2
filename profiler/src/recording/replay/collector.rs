//! The figures of one memory of a recording, while its events go by.

use std::collections::HashMap;

use crate::model::memory::Place;
use crate::recording::replay::figures::{
    Figures, MemoryFigures, PartFigures, PeakFound, Span, StreamFigures, ThreadFigures, grown,
};
use crate::recording::replay::{Happening, InUse, MOST_THREADS, Replay, State, place_of};

/// Points of the timeline, at most.
pub const TIMELINE: usize = 512;

/// Distinct sizes that are counted one by one; others are one in the list of sizes, and each in the histogram.
const MAX_SIZES: usize = 1 << 16;
/// Sizes that are listed.
const COMMON_SIZES: usize = 100;
/// Streams that are told apart; those that come later are one.
const MAX_STREAMS: usize = 1 << 12;

/// The figures so far.
pub(crate) struct Collector {
    /// Freed by their own thread after no more than so many other allocations of it.
    temporary: u64,
    figures: MemoryFigures,
    size_counts: HashMap<u64, u64>,
    stream_places: HashMap<u64, usize>,
    /// The part that had the peak.
    pub(crate) peak_part: usize,
}

impl Collector {
    pub(crate) fn new(place: Place, temporary: u64) -> Self {
        Self {
            temporary,
            figures: MemoryFigures { place, span_us: 1000, ..MemoryFigures::default() },
            size_counts: HashMap::new(),
            stream_places: HashMap::new(),
            peak_part: 0,
        }
    }

    /// Which memory.
    pub(crate) fn place(&self) -> Place {
        self.figures.place
    }

    /// Most in use so far.
    pub(crate) fn peak(&self) -> PeakFound {
        self.figures.peak
    }

    /// The figures, when all is over.
    pub(crate) fn finish(self, replay: &Replay, stacks: &[Figures], threads: usize) -> MemoryFigures {
        let mut figures = self.figures;
        let is_here = |stack: u32| place_of(&replay.paths, stack) == figures.place;
        let of_stacks = stacks.iter().enumerate().filter(|(stack, _)| is_here(*stack as u32));
        let mut total = Figures::default();
        of_stacks.for_each(|(_, of_stack)| total.join(of_stack));
        figures.total = total;
        for (_, block) in replay.state.in_use().filter(|(_, block)| is_here(block.stack)) {
            grown(&mut figures.threads, block.thread.min(MOST_THREADS) as usize).at_end.add(block.size);
        }
        figures.threads.resize(figures.threads.len().max(threads), ThreadFigures::default());
        figures.common_sizes = self.size_counts.into_iter().collect();
        figures.common_sizes.sort_by_key(|&(size, count)| (std::cmp::Reverse(count), size));
        figures.common_sizes.truncate(COMMON_SIZES);
        figures.timeline = filled(figures.timeline);
        figures.parts = PartFigures::of(replay, figures.parts);
        figures
    }

    /// An event, and the state after it.
    pub(crate) fn see(&mut self, stacks: &mut Vec<Figures>, state: &State, happening: Happening<'_>) {
        let count = state.count();
        let span = self.span(state.time_us);
        span.seen = true;
        span.most_bytes = span.most_bytes.max(count.bytes);
        span.most_objects = span.most_objects.max(count.objects);
        grown(&mut self.figures.parts, state.part).see(state, happening);
        let span = self.span(state.time_us);
        match happening {
            Happening::Alloc(block) | Happening::Unfollowed(block) => {
                span.allocs += 1;
                self.allocated(stacks, block);
                if let Some(stream) = self.stream(state) {
                    stream.allocated.add(block.size);
                }
                if matches!(happening, Happening::Unfollowed(_)) {
                    self.figures.unfollowed += 1;
                } else if count.bytes > self.figures.peak.count.bytes {
                    self.peak_part = state.part;
                    self.figures.peak = PeakFound { count, time_us: state.time_us, events: state.events };
                }
            }
            Happening::Free(block, by) => {
                span.frees += 1;
                self.freed(stacks, state, block);
                freed_by(stacks, by, block.size);
                if let Some(stream) = self.stream(state) {
                    stream.frees += 1;
                }
            }
            Happening::FreeLost(block) => {
                self.figures.lost_frees += 1;
                of_stack(stacks, block.stack).freed.add(block.size);
            }
            Happening::FreeUnknown(by) => {
                span.frees += 1;
                self.figures.unknown_frees += 1;
                freed_by(stacks, by, 0);
                self.thread(state.thread).frees += 1;
                if let Some(stream) = self.stream(state) {
                    stream.frees += 1;
                }
            }
        }
    }

    fn thread(&mut self, thread: u32) -> &mut ThreadFigures {
        // More than a recorder writes down are one.
        grown(&mut self.figures.threads, thread.min(MOST_THREADS) as usize)
    }

    /// The stream of the event.
    fn stream(&mut self, state: &State) -> Option<&mut StreamFigures> {
        let handle = state.stream?;
        let streams = &mut self.figures.streams;
        let at = *self.stream_places.entry(handle).or_insert_with(|| {
            if streams.len() < MAX_STREAMS {
                streams.push(StreamFigures { handle, ..StreamFigures::default() });
            }
            streams.len() - 1
        });
        streams.get_mut(at)
    }

    fn allocated(&mut self, stacks: &mut Vec<Figures>, block: &InUse) {
        of_stack(stacks, block.stack).allocated.add(block.size);
        self.thread(block.thread).allocated.add(block.size);
        let class = (64 - block.size.leading_zeros()) as usize;
        grown(&mut self.figures.sizes, class).add(block.size);
        if self.size_counts.len() < MAX_SIZES || self.size_counts.contains_key(&block.size) {
            *self.size_counts.entry(block.size).or_default() += 1;
        }
    }

    fn freed(&mut self, stacks: &mut Vec<Figures>, state: &State, block: &InUse) {
        let lifetime = state.time_us.saturating_sub(block.time_us);
        let own = state.thread == block.thread;
        let between = state.order(block.thread).saturating_sub(block.order + 1);
        let temporary = own && between <= self.temporary;
        let stack = of_stack(stacks, block.stack);
        stack.freed.add(block.size);
        stack.lifetime_us = stack.lifetime_us.saturating_add(lifetime);
        if temporary {
            stack.temporary.add(block.size);
        }
        let decade = (lifetime.checked_ilog10().map_or(0, |log| log + 1)) as usize;
        grown(&mut self.figures.lifetimes, decade).add(block.size);
        let thread = self.thread(state.thread);
        thread.frees += 1;
        thread.frees_of_others += u64::from(!own);
        if temporary {
            thread.temporary.add(block.size);
        }
    }

    /// The span that a time lies in; spans become longer as the recording does.
    fn span(&mut self, time_us: u64) -> &mut Span {
        let MemoryFigures { span_us, timeline, .. } = &mut self.figures;
        while time_us / *span_us >= TIMELINE as u64 {
            *span_us = span_us.saturating_mul(2);
            *timeline = timeline.chunks(2).map(joined).collect();
        }
        grown(timeline, (time_us / *span_us) as usize)
    }
}

fn of_stack(stacks: &mut Vec<Figures>, stack: u32) -> &mut Figures {
    grown(stacks, stack as usize)
}

fn freed_by(stacks: &mut Vec<Figures>, stack: Option<u32>, bytes: u64) {
    if let Some(stack) = stack {
        of_stack(stacks, stack).freed_here.add(bytes);
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

impl PartFigures {
    fn see(&mut self, state: &State, happening: Happening<'_>) {
        self.end_us = state.time_us;
        self.at_end = state.count();
        if self.at_end.bytes > self.peak.bytes {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_in_which_nothing_happened_has_what_was_in_use_before() {
        let span = |most_bytes, seen| Span { most_bytes, seen, ..Span::default() };
        let timeline = filled(vec![span(0, false), span(7, true), span(0, false), span(3, true)]);
        assert_eq!(timeline.iter().map(|span| span.most_bytes).collect::<Vec<_>>(), [0, 7, 7, 3]);
        assert_eq!(joined(&timeline[1..3]).most_bytes, 7);
    }
}
