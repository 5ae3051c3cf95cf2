//! What lies idle goes back to the kernel: what the scavenger says, what nobody has had a use for, and as much as a
//! long block takes.

use super::free_spans::{EXACT_BINS, FreeSpans};
use super::{PAGE_HEAP, PageHeap, renew};
use crate::kernel::os;
use crate::layout::arena::ARENA_PAGE;
use crate::layout::slab::Slab;
use crate::pages::keeper;
use crate::pages::remap;
use crate::pages::system::{Kernel, System};
use crate::segment::counters::{self, TierCounter};
use crate::settings;
use crate::sync::spin_lock::SlowPath;

/// Idle memory that stays however little is in use.
const IDLE_MIN: usize = 1 << 20;
/// How many times as much goes back as the program takes meanwhile.
const PACE: usize = 4;
/// A block of so many bytes is exchanged: as much as it takes without memory goes back elsewhere, also in parts of long
/// spans, as far as more than so many times lies idle as is to and the [`Allowance`](super::allowance) has it. It found
/// no use for what lies idle, and is long enough to need as much again.
const EXCHANGED_MIN: usize = 1 << 20;
pub(super) const EXCHANGED_IDLE: usize = 4;

/// Gives the memory of all free spans back to the kernel. Returns the bytes.
pub fn release_all(slow: SlowPath) -> usize {
    release(slow, usize::MAX)
}

/// Gives the memory of free spans back to the kernel, about `wanted` bytes. Returns how many it were.
pub fn release(slow: SlowPath, wanted: usize) -> usize {
    let mut bytes = 0;
    while bytes < wanted {
        let span = PAGE_HEAP.lock(slow).take_resident(1, (wanted - bytes).div_ceil(ARENA_PAGE));
        let Some(span) = span else { break };
        bytes += span.bytes();
        if !release_span(slow, span) {
            break;
        }
    }
    bytes
}

/// Notes that the calling thread has taken `taken` bytes more. If more lies idle than is to, that for which nobody has
/// had a use goes back, [`PACE`] times as much as was taken at most: the shortest spans first, which have room for
/// least. Returns how many bytes it were.
#[cold]
pub fn release_excess(slow: SlowPath, taken: usize) -> usize {
    if settings::current().scavenge_ms().is_none() {
        return 0;
    }
    let due = PAGE_HEAP.lock(slow).note_taken(taken).min(PACE * taken);
    release_from(slow, due, PageHeap::take_excess)
}

/// Notes that a large block has taken `taken` bytes that have no memory. If more lies idle than is to, as much goes
/// back, or more if nobody has had a use for it. Returns how many bytes it were.
#[cold]
pub(super) fn exchange(slow: SlowPath, taken: usize) -> usize {
    let released = release_excess(slow, taken);
    let settings = settings::current();
    if taken < EXCHANGED_MIN || released >= taken || settings.scavenge_ms().is_none() {
        return released;
    }
    let allowed = {
        let mut heap = PAGE_HEAP.lock(slow);
        if !heap.has_excess(EXCHANGED_IDLE) {
            return released;
        }
        let now = os::clock_ns(libc::CLOCK_MONOTONIC);
        heap.allowance.take(taken - released, now, settings.goal().exchange_ns())
    };
    let exchanged = release_from(slow, allowed, PageHeap::take_exchanged);
    PAGE_HEAP.lock(slow).allowance.put_back(allowed - exchanged);
    released + exchanged
}

/// Gives so many bytes back at most, in spans that `take` finds for the pages that are left. Returns how many it were.
fn release_from(slow: SlowPath, bytes: usize, take: fn(&mut PageHeap, usize) -> Option<&'static Slab>) -> usize {
    let mut left = bytes;
    while left >= ARENA_PAGE {
        let Some(span) = take(&mut PAGE_HEAP.lock(slow), left / ARENA_PAGE) else { break };
        left -= span.bytes();
        if !release_span(slow, span) {
            break;
        }
    }
    bytes - left
}

/// Gives a span that was taken out of the bins back to the kernel and puts it back as a free one. The kernel call
/// runs without the lock. False if the kernel refused.
pub(super) fn release_span(slow: SlowPath, span: &'static Slab) -> bool {
    counters::add(TierCounter::SystemCalls, 1);
    // What memory was moved to, once, gets rid of its mappings.
    let may_renew = remap::has_moved() && PAGE_HEAP.lock(slow).ground.is_as_the_system_has_it();
    let (span, renewed) = if may_renew { renew(slow, span, 0) } else { (span, false) };
    // SAFETY: the span is free and was taken out of the bins: nothing else refers to its memory.
    let released = renewed || unsafe { Kernel.decommit(span.address(), span.bytes()) };
    span.set_zero(released);
    PAGE_HEAP.lock(slow).free(span);
    released
}

impl<S: System> PageHeap<S> {
    /// Whether more lies idle than is to, so many times.
    pub(super) fn has_excess(&self, times: usize) -> bool {
        let parts = settings::current().goal().idle_parts();
        parts.is_some_and(|[part, _]| self.resident_free() > times * IDLE_MIN.max(self.used / part))
    }

    /// Takes a free span out for [`release_span`] if it is to go at once: without a delay, or when there is no
    /// scavenger and free memory exceeds what is worth keeping.
    pub(super) fn take_to_release(&mut self) -> Option<&'static Slab> {
        match settings::current().scavenge_ms() {
            None => None,
            Some(0) => self.take_resident(1, usize::MAX),
            Some(_) if keeper::is_running() || self.resident_free() <= keeper::RETAIN_MIN.max(self.used / 4) => None,
            Some(_) => self.take_resident(EXACT_BINS / 4, usize::MAX),
        }
    }

    /// Takes the shortest free span with memory behind it, if more of such lies idle than is to and it has at most
    /// `pages` pages. It counts as used until it is freed again.
    pub(super) fn take_excess(&mut self, pages: usize) -> Option<&'static Slab> {
        self.take_idle(1, |free| free.take_shortest(pages))
    }

    /// Takes a free span for a block that is exchanged: the shortest, or `pages` pages of the longest where it has
    /// more.
    pub(super) fn take_exchanged(&mut self, pages: usize) -> Option<&'static Slab> {
        self.take_idle(EXCHANGED_IDLE, |free| free.take_shortest(pages).or_else(|| free.take_resident(1, pages, false)))
    }

    /// Takes a free span with memory behind it, if `times` what is to lie idle does.
    fn take_idle(
        &mut self,
        times: usize,
        mut take: impl FnMut(&mut FreeSpans) -> Option<&'static Slab>,
    ) -> Option<&'static Slab> {
        // The kernel would have to split huge pages.
        if self.ground.has_huge || !self.has_excess(times) {
            return None;
        }
        let span = self.lanes.iter_mut().take(self.used_lanes).find_map(|lane| take(&mut lane.free))?;
        self.used += span.bytes();
        self.excess.release(span.bytes());
        Some(span)
    }

    /// Takes a free span of at least `least` pages that has memory behind it, and about `most` pages of it. It counts
    /// as used until it is freed again.
    pub(super) fn take_resident(&mut self, least: usize, most: usize) -> Option<&'static Slab> {
        for whole in [true, false] {
            if whole && !self.ground.has_huge {
                continue;
            }
            for lane in self.lanes.iter_mut().take(self.used_lanes) {
                if let Some(span) = lane.free.take_resident(least, most, whole) {
                    self.used += span.bytes();
                    return Some(span);
                }
            }
        }
        None
    }
}
