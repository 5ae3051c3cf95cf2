//! The page heap: spans of pages, best fit, split and coalesced.
//!
//! A request takes the smallest free span that fits ([`free_spans`]), else pages that nobody had yet ([`Frontier`]).
//! A slab, which is used from its start, takes a shorter span with memory first, and what it lacks from pages behind
//! it. Memory that was given back to the kernel stays a free span: it reads as zero and is mapped again when touched.
//! Where whole huge pages are free, they go back before parts of others do, which the kernel would have to split.
//!
//! With `POOLSCOPE_NUMA=local` there is a lane for each node, with free spans and a frontier of its own. A span is
//! taken from the lane of the node that the thread runs on, and from another one only when that has no memory; it goes
//! back to the lane that it came from. Otherwise there is one lane.

use crate::layout::arena::{self, ARENA_PAGE};
use crate::layout::lean;
use crate::layout::size_class::SizeClass;
use crate::layout::slab::{Kind, Slab};
use crate::pages::frontier::{Frontier, Taken};
use crate::pages::keeper;
use crate::pages::placement::{Ground, Wishes};
use crate::pages::remap;
use crate::pages::system::{Kernel, System};
use crate::segment::counters::{self, TierCounter};
use crate::sync::apart::Apart;
use crate::sync::spin_lock::{ForkLock, SlowPath, SpinLock};

mod allowance;
mod excess;
mod free_spans;
mod lanes;
#[cfg(test)]
mod model;
mod release;
#[cfg(test)]
mod tests;

use allowance::Allowance;
use excess::Excess;
use free_spans::{FreeSpans, mark, mark_used, split};
use lanes::{Lane, Lanes};
use release::{exchange, release_span};
pub use release::{release, release_all, release_excess};

/// Idle memory that is little: a slab of a few blocks takes none of it.
const IDLE_LITTLE: usize = 512 << 10;
/// A span, and how many of its pages have memory behind them: those of a slab at its start.
type Ready = (&'static Slab, u32);

/// The page heap, on a system. Apart from the word of its lock, as the sampler is from its own.
#[repr(align(128))]
pub struct PageHeap<S: System = Kernel> {
    ground: Ground<S>,
    lanes: Lanes,
    /// Lanes that are used; 0 before that is decided.
    used_lanes: usize,
    /// Bytes in spans that are in use.
    used: usize,
    /// What lies idle and nobody has had a use for.
    excess: Excess,
    /// What may go back for long blocks.
    allowance: Allowance,
}

// SAFETY: only reached under the lock below.
unsafe impl Send for PageHeap {}

static PAGE_HEAP: Apart<SpinLock<PageHeap>> = Apart(SpinLock::new(PageHeap::new(Kernel)));

/// Where the page heap's own words lie. Some are addresses of pages.
pub fn own_memory() -> (usize, usize) {
    PAGE_HEAP.addresses()
}

/// Takes a span of `pages` pages whose first page number is a multiple of `align` pages. `None`: out of memory.
pub fn alloc(slow: SlowPath, pages: usize, align: usize) -> Option<&'static Slab> {
    Some(alloc_by(slow, release_excess, |heap| heap.alloc(pages, align).map(with_ready))?.0)
}

/// Takes a span of `pages` pages for a large block. It uses what lies idle, as far as it goes. `None`: out of memory.
pub fn alloc_large(slow: SlowPath, pages: usize) -> Option<&'static Slab> {
    Some(alloc_by(slow, exchange, |heap| heap.alloc_large(pages))?.0)
}

/// Takes a span for a slab of `class`, with room for a block, and says how many pages at its start have memory behind
/// them. `None`: out of memory.
///
/// Of a slab with `few` blocks only some pages will be touched. Where little lies idle, it takes pages without memory,
/// so that idle memory is left to what uses all of it.
pub fn alloc_slab(slow: SlowPath, class: SizeClass, few: bool) -> Option<Ready> {
    let pages = class.info().slab_pages as usize;
    if !lean::is_on() {
        return alloc_by(slow, release_excess, |heap| {
            let untouched = if few && heap.resident_free() <= IDLE_LITTLE { heap.alloc_untouched(pages) } else { None };
            untouched.map(with_ready).or_else(|| heap.alloc_from_start(pages))
        });
    }
    let span = alloc(slow, pages, 1)?;
    if !lean::open(span, 0, lean::pages_of(class.block())) {
        keeper::notice(slow, free(slow, span));
        return None;
    }
    Some(with_ready(span))
}

/// Takes a span the one way or the other, with the number of its pages that have memory behind them. Where more lies
/// idle than is to, `give_back` hears how many bytes have none.
#[inline(always)]
fn alloc_by(
    slow: SlowPath,
    give_back: fn(SlowPath, usize) -> usize,
    take: impl FnOnce(&mut PageHeap) -> Option<Ready>,
) -> Option<Ready> {
    let (taken, refusals, grown) = {
        let mut heap = PAGE_HEAP.lock(slow);
        let taken = take(&mut heap);
        let grown = taken.map_or(0, |(span, ready)| span.bytes() - ready as usize * ARENA_PAGE);
        (taken, heap.ground.take_refusals(), if grown > 0 && heap.has_excess(1) { grown } else { 0 })
    };
    refusals.say();
    let taken = taken?;
    counters::add(TierCounter::PageHeapAllocs, 1);
    if grown > 0 {
        give_back(slow, grown);
    }
    Some(taken)
}

/// A span of which all pages are in one state, with how many have memory behind them.
fn with_ready(span: &'static Slab) -> Ready {
    (span, if span.is_zero() { 0 } else { span.pages.get() })
}

/// Takes a span of `pages` pages behind which as many are free, if there are such.
pub fn alloc_with_room(slow: SlowPath, pages: usize) -> Option<&'static Slab> {
    let (span, refusals) = {
        let mut heap = PAGE_HEAP.lock(slow);
        (heap.alloc_with_room(pages), heap.ground.take_refusals())
    };
    refusals.say();
    let span = span?;
    counters::add(TierCounter::PageHeapAllocs, 1);
    Some(span)
}

/// Gives a span back. Its pages have no owner any more. Returns the bytes of free spans that have memory behind them:
/// who calls this says so to [`keeper::notice`].
#[must_use]
pub fn free(slow: SlowPath, span: &'static Slab) -> usize {
    free_touched(slow, span, span.pages.get() as usize)
}

/// Gives a span back, of which only the first `pages` were touched since it read as zero. Returns what [`free`] does.
#[must_use]
pub fn free_touched(slow: SlowPath, span: &'static Slab, pages: usize) -> usize {
    counters::add(TierCounter::PageHeapFrees, 1);
    let is_lean = lean::is_on();
    span.set_zero(is_lean && lean::close(span, 0, span.bytes()));
    let (free, release) = {
        let mut heap = PAGE_HEAP.lock(slow);
        if is_lean {
            heap.free(span);
        } else {
            heap.free_touched(span, pages);
        }
        (heap.resident_free(), heap.take_to_release())
    };
    if let Some(span) = release {
        release_span(slow, span);
    }
    free
}

/// Gives back a span whose memory was moved away: it reads as zero.
pub fn free_zeroed(slow: SlowPath, span: &'static Slab) {
    span.set_zero(true);
    counters::add(TierCounter::PageHeapFrees, 1);
    PAGE_HEAP.lock(slow).free(span);
}

/// Gives back a span that memory was moved to, in so many mappings, and makes it like those around it. Returns what
/// [`free`] does, or nothing.
#[must_use]
pub fn free_renewed(slow: SlowPath, span: &'static Slab, mappings: u16) -> usize {
    counters::add(TierCounter::SystemCalls, 1);
    let (span, renewed) = renew(slow, span, mappings);
    if renewed {
        free_zeroed(slow, span);
        0
    } else {
        free(slow, span)
    }
}

/// Makes a span that is nobody's and in no bin one mapping with the empty spans beside it, which come along: renewed
/// alone it would lie between theirs. The kernel call runs without the lock. Returns the longer span, and whether it
/// worked.
fn renew(slow: SlowPath, span: &'static Slab, mappings: u16) -> (&'static Slab, bool) {
    let span = PAGE_HEAP.lock(slow).join_empty(span);
    // SAFETY: the span is nobody's, and in no bin.
    (span, unsafe { remap::renew(&Kernel, span.address(), span.bytes(), mappings) })
}

/// Cuts off what a span that is in use has behind its first `pages` pages; the rest is in use, too. `None` if there is
/// nothing.
pub fn cut(slow: SlowPath, span: &'static Slab, pages: usize) -> Option<&'static Slab> {
    let _heap = PAGE_HEAP.lock(slow);
    (pages < span.pages.get() as usize).then(|| cut_used(span, pages))
}

/// Splits a span that is in use. The caller holds the lock.
fn cut_used(span: &'static Slab, pages: usize) -> &'static Slab {
    let rest = split(span, pages);
    mark_used(span);
    mark(rest, Kind::Used);
    rest
}

/// Changes the length of a span that is in use, in place. False if what follows it is in use, too.
pub fn resize(slow: SlowPath, span: &'static Slab, pages: usize) -> bool {
    let (done, refusals) = {
        let mut heap = PAGE_HEAP.lock(slow);
        (heap.resize(span, pages), heap.ground.take_refusals())
    };
    refusals.say();
    done
}

/// Whether memory may be moved from one span to another: the kernel takes its node along, and can't move explicit huge
/// pages; and what is renewed must be like what it lies in, of which it knows no wish.
pub fn can_move(slow: SlowPath, from: &Slab, to: &Slab) -> bool {
    may_move(from, to) && !lean::is_on() && PAGE_HEAP.lock(slow).ground.is_as_the_system_has_it()
}

fn may_move(from: &Slab, to: &Slab) -> bool {
    arena::lane_of(from) == arena::lane_of(to) && !arena::is_permanent(from) && !arena::is_permanent(to)
}

/// Bytes of free spans that have memory behind them.
pub fn resident_free(slow: SlowPath) -> usize {
    PAGE_HEAP.lock(slow).resident_free()
}

/// Gives reserved addresses back that an address space of `limit` bytes has no place for.
pub fn fit_reservation(slow: SlowPath, limit: usize) {
    PAGE_HEAP.lock(slow).fit(limit);
}

/// The lock, for `fork`.
pub fn fork_lock() -> &'static dyn ForkLock {
    &*PAGE_HEAP
}

impl<S: System> PageHeap<S> {
    /// Nothing reserved yet.
    const fn new(system: S) -> Self {
        PageHeap {
            ground: Ground::new(system),
            lanes: Lanes::new(),
            used_lanes: 0,
            used: 0,
            excess: Excess::new(),
            allowance: Allowance::new(),
        }
    }

    /// Decides where memory is to come from.
    #[cold]
    fn start(&mut self, wishes: Wishes) {
        self.ground.decide(wishes);
        let lanes = self.ground.lanes();
        let has_lanes = self.lanes.make(lanes);
        let frontiers = self.lanes.iter_mut().map(|lane| &mut lane.frontier);
        if has_lanes && (lanes == 1 || Frontier::reserve_for_all(&mut self.ground, lanes, frontiers)) {
            self.used_lanes = lanes;
        } else {
            self.ground.join_lanes();
            self.used_lanes = 1;
        }
    }

    /// The lane that the calling thread is to have memory from.
    fn lane_of_thread(&mut self) -> usize {
        match self.used_lanes {
            1 => 0,
            0 => {
                self.start(Wishes::of_the_settings());
                self.lane_of_thread()
            }
            lanes => self.ground.system.current_node().min(lanes - 1),
        }
    }

    /// The lane that a span belongs to.
    fn lane_of(&mut self, span: &Slab) -> &mut Lane {
        &mut self.lanes[arena::lane_of(span)]
    }

    fn insert(&mut self, span: &'static Slab) {
        self.lane_of(span).free.insert(span);
    }

    /// Bytes in free spans that have memory behind them which the kernel would take back.
    fn resident_free(&self) -> usize {
        self.lanes.iter().take(self.used_lanes).map(|lane| lane.free.resident()).sum()
    }

    fn fit(&mut self, limit: usize) {
        for lane in self.lanes.iter_mut().take(self.used_lanes) {
            lane.frontier.fit(&mut self.ground, limit / self.used_lanes);
        }
    }

    fn alloc(&mut self, pages: usize, align: usize) -> Option<&'static Slab> {
        let wanted = pages.checked_add(align - 1)?;
        let own = self.lane_of_thread();
        let mut found = self.take(own, wanted);
        // Memory of another node is better than none.
        for lane in 0..self.used_lanes {
            if found.is_none() && lane != own {
                found = self.take(lane, wanted);
            }
        }
        let span = found?;
        let number = span.address() as usize / ARENA_PAGE;
        let ahead = number.next_multiple_of(align) - number;
        let span = self.lane_of(span).free.cut_out(span, ahead, pages);
        self.used += span.bytes();
        self.note_idle();
        Some(span)
    }

    /// Takes a span without memory, if there is one.
    fn alloc_untouched(&mut self, pages: usize) -> Option<&'static Slab> {
        let own = self.lane_of_thread();
        let free = &mut self.lanes[own].free;
        let span = match free.best_fit_untouched(pages) {
            Some(span) => {
                free.remove(span);
                free.cut_out(span, 0, pages)
            }
            None => self.take_new(own, pages).span?,
        };
        self.used += span.bytes();
        Some(span)
    }

    /// Takes pages that nobody had yet. What became free on the way is in its bin.
    fn take_new(&mut self, at: usize, pages: usize) -> Taken {
        let lane = &mut self.lanes[at];
        let taken = lane.frontier.take(&mut self.ground, at, pages);
        if let Some(span) = taken.span {
            // What became free may follow it.
            mark(span, Kind::Used);
        }
        if let Some(free) = taken.free {
            lane.free.insert(free);
        }
        taken
    }

    /// Takes a span that is used from its start: where none has memory behind all of it, one that has some behind its
    /// start.
    fn alloc_from_start(&mut self, pages: usize) -> Option<Ready> {
        self.alloc_over_idle(pages, FreeSpans::take_lengthened)
    }

    /// Takes a span for a large block: where none has memory behind all of it, one that has some anywhere.
    fn alloc_large(&mut self, pages: usize) -> Option<Ready> {
        self.alloc_over_idle(pages, FreeSpans::take_mixed)
    }

    /// Takes a span. Where none has memory behind all of it, one that `take` finds, which has some.
    fn alloc_over_idle(&mut self, pages: usize, take: fn(&mut FreeSpans, usize) -> Option<Ready>) -> Option<Ready> {
        let own = self.lane_of_thread();
        let free = &mut self.lanes[own].free;
        if pages == 1 || free.resident() == 0 || free.fits_resident(pages) {
            return self.alloc(pages, 1).map(with_ready);
        }
        let taken = take(free, pages).or_else(|| self.lengthen_last(own, pages));
        let Some((span, ready)) = taken else { return self.alloc(pages, 1).map(with_ready) };
        self.used += span.bytes();
        self.note_idle();
        Some((span, ready))
    }

    /// Takes the free span with memory that lies last, with what it lacks from pages that nobody had yet.
    fn lengthen_last(&mut self, lane: usize, pages: usize) -> Option<Ready> {
        let Lane { free, frontier } = &mut self.lanes[lane];
        let (begin, behind) = free.last_resident(frontier.last()?)?;
        let (ready, without) = (begin.pages.get(), behind.map_or(0, |behind| behind.pages.get()));
        let missing = pages.checked_sub((ready + without) as usize)?;
        free.remove(begin);
        behind.inspect(|behind| free.remove(behind));
        begin.pages.set(ready + without);
        let done = frontier.extend(&mut self.ground, begin, missing);
        if !done {
            behind.inspect(|behind| free.insert(behind));
            begin.pages.set(ready);
            free.insert(begin);
            return None;
        }
        mark(begin, Kind::Used);
        Some((begin, ready))
    }

    /// Tells the watch over idle memory how much there is.
    fn note_idle(&mut self) {
        let idle = self.resident_free();
        self.excess.note(idle);
    }

    /// Tells it that the program has taken so many bytes. Returns the bytes for which nobody has had a use.
    fn note_taken(&mut self, bytes: usize) -> usize {
        let idle = self.resident_free();
        self.excess.take(bytes, idle);
        self.excess.due()
    }

    /// Takes a span of at least `wanted` pages from a lane; it is in no bin.
    fn take(&mut self, at: usize, wanted: usize) -> Option<&'static Slab> {
        loop {
            let free = &mut self.lanes[at].free;
            if let Some(span) = free.best_fit(wanted) {
                free.remove(span);
                if span.is_zero() {
                    self.excess.refill(wanted * ARENA_PAGE);
                }
                return Some(span);
            }
            let taken = self.take_new(at, wanted);
            if taken.span.is_some() || taken.free.is_none() {
                return taken.span;
            }
        }
    }

    /// From the start of the largest free span, so that the room behind the block is as long as it can be.
    fn alloc_with_room(&mut self, pages: usize) -> Option<&'static Slab> {
        let both = pages.checked_mul(2)?;
        let own = self.lane_of_thread();
        let free = &mut self.lanes[own].free;
        let Some(span) = free.largest().filter(|span| span.pages.get() as usize >= both) else {
            return self.alloc(pages, 1);
        };
        free.remove(span);
        let span = free.cut_out(span, 0, pages);
        self.used += span.bytes();
        Some(span)
    }

    fn resize(&mut self, span: &'static Slab, pages: usize) -> bool {
        let now = span.pages.get() as usize;
        if pages < now {
            let rest = split(span, pages);
            rest.set_zero(lean::is_on() && lean::close(rest, 0, rest.bytes()));
            mark_used(span);
            self.used -= rest.bytes();
            self.insert(rest);
            return true;
        }
        let missing = pages - now;
        if missing == 0 {
            return true;
        }
        let after = span.page(now as u32);
        let lane = &mut self.lanes[arena::lane_of(span)];
        let same = after.zero_and_arena.get() >> 1 == span.zero_and_arena.get() >> 1;
        if after.kind.get() == Kind::Free && same && after.pages.get() as usize >= missing {
            lane.free.remove(after);
            let rest = (after.pages.get() as usize > missing).then(|| split(after, missing));
            span.pages.set(pages as u32);
            mark_used(span);
            if let Some(rest) = rest {
                lane.free.insert(rest);
            }
        } else {
            if !lane.frontier.extend(&mut self.ground, span, missing) {
                return false;
            }
            mark_used(span);
        }
        self.used += missing * ARENA_PAGE;
        true
    }

    /// A span that counts as used, made longer by free neighbours without memory, which count as used then.
    fn join_empty(&mut self, span: &'static Slab) -> &'static Slab {
        let bytes = span.bytes();
        span.set_zero(true);
        let span = self.lane_of(span).free.join(span);
        mark(span, Kind::Used);
        self.used += span.bytes() - bytes;
        span
    }

    /// Takes a span back that was in use.
    fn free(&mut self, span: &'static Slab) {
        self.used -= span.bytes();
        self.insert(span);
        self.note_idle();
    }

    /// Frees a span whose pages from `pages` on read as zero.
    fn free_touched(&mut self, span: &'static Slab, pages: usize) {
        if pages < span.pages.get() as usize {
            let rest = cut_used(span, pages);
            rest.set_zero(true);
            self.free(rest);
        }
        self.free(span);
    }
}
