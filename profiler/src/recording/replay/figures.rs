//! The figures of a recording: what one stack, thread, part or span of time did. What makes them is the
//! [analysis](crate::recording::replay::analysis).

use crate::model::memory::Place;
use crate::recording::events::session::Session;

/// Objects and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Blocks.
    pub objects: u64,
    /// Bytes asked for.
    pub bytes: u64,
}

impl Count {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.objects += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    pub(crate) fn take(&mut self, bytes: u64) {
        self.objects = self.objects.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Adds another.
    pub fn join(&mut self, other: Count) {
        self.objects += other.objects;
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// What one stack, or one call site, did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Allocated.
    pub allocated: Count,
    /// Freed of that.
    pub freed: Count,
    /// Freed by this stack, whoever allocated it; blocks whose allocation is not in the recording count as objects
    /// alone.
    pub freed_here: Count,
    /// Freed by their own thread before it allocated anything else, or little else.
    pub temporary: Count,
    /// In use when most was in use in all.
    pub peak: Count,
    /// In use at the beginning of the time that was asked for.
    pub at_start: Count,
    /// In use at its end.
    pub at_end: Count,
    /// Time between allocation and free, of all that were freed, microseconds.
    pub lifetime_us: u64,
    /// Blocks on pages that are nearly empty at the end.
    pub sparse: Count,
    /// Bytes of those pages that nobody uses, shared by the blocks on them.
    pub held_free: u64,
}

impl Figures {
    /// Adds another's.
    pub fn join(&mut self, other: &Figures) {
        self.allocated.join(other.allocated);
        self.freed.join(other.freed);
        self.freed_here.join(other.freed_here);
        self.temporary.join(other.temporary);
        self.peak.join(other.peak);
        self.at_start.join(other.at_start);
        self.at_end.join(other.at_end);
        self.lifetime_us = self.lifetime_us.saturating_add(other.lifetime_us);
        self.sparse.join(other.sparse);
        self.held_free = self.held_free.saturating_add(other.held_free);
    }
}

/// What one thread did.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadFigures {
    /// Allocated.
    pub allocated: Count,
    /// Blocks that it freed, its own and others'.
    pub frees: u64,
    /// Blocks of other threads that it freed.
    pub frees_of_others: u64,
    /// Its own blocks that were temporary.
    pub temporary: Count,
    /// In use at the end of what it allocated.
    pub at_end: Count,
}

impl ThreadFigures {
    /// It allocated or freed.
    pub fn did_something(&self) -> bool {
        self.allocated.objects > 0 || self.frees > 0
    }
}

/// What happened on one stream of a device.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamFigures {
    /// Its handle.
    pub handle: u64,
    /// Allocated.
    pub allocated: Count,
    /// Blocks that were freed on it.
    pub frees: u64,
}

/// What was done with one memory: the host's, or that of a device.
#[derive(Clone, Debug, Default)]
pub struct MemoryFigures {
    /// Which.
    pub place: Place,
    /// The parts of the file that were looked at.
    pub parts: Vec<PartFigures>,
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
    /// Streams, in the order in which they came; none of the host's.
    pub streams: Vec<StreamFigures>,
}

impl MemoryFigures {
    /// Something happened in it.
    pub fn has_events(&self) -> bool {
        self.total.allocated.objects > 0 || self.unknown_frees > 0
    }
}

/// A point of the timeline: a span of time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    /// Most bytes in use in it.
    pub most_bytes: u64,
    /// Most blocks in use in it.
    pub most_objects: u64,
    /// Allocations in it.
    pub allocs: u64,
    /// Frees in it.
    pub frees: u64,
    /// Something happened in it.
    pub seen: bool,
}

/// Most in use.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeakFound {
    /// Bytes and blocks.
    pub count: Count,
    /// When, microseconds since the start.
    pub time_us: u64,
    /// After so many events.
    pub events: u64,
}

/// What one part of a recording comes to.
#[derive(Clone, Debug, Default)]
pub struct PartFigures {
    /// Whose recording it is.
    pub session: Session,
    /// Why it ended; empty if its end is missing.
    pub ended: String,
    /// Time of its last event, microseconds since the start of the first part.
    pub end_us: u64,
    /// Allocated.
    pub allocated: Count,
    /// Frees.
    pub frees: u64,
    /// Most in use.
    pub peak: Count,
    /// In use at its end.
    pub at_end: Count,
}

/// The place at `at`, made if it is not there.
pub(crate) fn grown<T: Default + Clone>(list: &mut Vec<T>, at: usize) -> &mut T {
    if list.len() <= at {
        list.resize(at + 1, T::default());
    }
    &mut list[at]
}
