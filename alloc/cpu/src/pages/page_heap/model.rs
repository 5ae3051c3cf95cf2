//! The page heap against a plain model: random programs on a simulated machine that runs out of memory at times.

use std::collections::BTreeMap;
use std::vec::Vec;

use proptest::prelude::*;

use super::Wishes;
use super::free_spans::bin_of;
use super::release::EXCHANGED_IDLE;
use super::tests::{Heap, MIB};
use crate::layout::arena::{self, ARENA_PAGE};
use crate::layout::slab::{Kind, Slab};
use crate::pages::system::simulated::Simulated;
use crate::settings::{Huge, Numa};

/// What a program does.
#[derive(Clone, Debug)]
enum Step {
    Alloc { pages: usize, align_log: u32 },
    AllocWithRoom { pages: usize },
    AllocFromStart { pages: usize },
    AllocLarge { pages: usize },
    Free { which: usize },
    FreeTouched { which: usize, pages: usize },
    FreeZeroed { which: usize },
    Resize { which: usize, pages: usize },
    Release { pages: usize, works: bool },
    ReleaseShortest { works: bool },
    ReleaseExchanged { pages: usize, works: bool },
    RunOn { node: usize },
    Memory { pages: Option<usize> },
}

fn step() -> impl Strategy<Value = Step> {
    let pages = || prop_oneof![4 => 1..20usize, 2 => 20..120usize, 1 => 120..500usize];
    prop_oneof![
        6 => (pages(), 0..7u32).prop_map(|(pages, log)| Step::Alloc { pages, align_log: log.saturating_sub(3) }),
        1 => pages().prop_map(|pages| Step::AllocWithRoom { pages }),
        3 => pages().prop_map(|pages| Step::AllocFromStart { pages }),
        3 => pages().prop_map(|pages| Step::AllocLarge { pages }),
        5 => any::<usize>().prop_map(|which| Step::Free { which }),
        3 => (any::<usize>(), pages()).prop_map(|(which, pages)| Step::FreeTouched { which, pages }),
        1 => any::<usize>().prop_map(|which| Step::FreeZeroed { which }),
        3 => (any::<usize>(), pages()).prop_map(|(which, pages)| Step::Resize { which, pages }),
        1 => (pages(), prop::bool::weighted(0.8)).prop_map(|(pages, works)| Step::Release { pages, works }),
        1 => prop::bool::weighted(0.8).prop_map(|works| Step::ReleaseShortest { works }),
        2 => (pages(), prop::bool::weighted(0.8)).prop_map(|(pages, works)| Step::ReleaseExchanged { pages, works }),
        1 => (0..3usize).prop_map(|node| Step::RunOn { node }),
        1 => prop_oneof![(0..400usize).prop_map(Some), Just(None)].prop_map(|pages| Step::Memory { pages }),
    ]
}

fn wishes() -> impl Strategy<Value = (Wishes, usize)> {
    let huge = prop_oneof![Just(Huge::System), Just(Huge::Off), Just(Huge::Madvise), Just(Huge::Explicit)];
    let numa = prop_oneof![Just(Numa::Off), Just(Numa::Local)];
    (huge, numa, 0..12usize).prop_map(|(huge, numa, pool)| (Wishes { huge, numa, arena: 64 * MIB }, pool))
}

/// What there is to know of the heap from outside.
struct Model {
    heap: Heap,
    /// Spans in use: pages, by the first one's address, and the descriptor.
    live: BTreeMap<usize, (usize, &'static Slab)>,
}

/// A free span as the descriptors say it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Free {
    address: usize,
    pages: usize,
    lane: usize,
    /// Its memory reads as zero, or the kernel is never given it back.
    zero: bool,
    permanent: bool,
}

impl Model {
    /// Looks at every page that was ever handed out. Those that are not in use must be in free spans, and two free
    /// spans of one state never touch.
    fn free_spans(&self) -> Vec<Free> {
        let mut free = Vec::new();
        for lane in 0..self.heap.used_lanes {
            let spans = &self.heap.lanes[lane].free;
            spans.for_each(|bin_fits, span| {
                assert!(bin_fits, "a span of {} pages waits in the bin of others", span.pages.get());
                assert_eq!(span.kind.get(), Kind::Free);
                assert_eq!(arena::lane_of(span), lane);
                let last = span.page(span.pages.get() - 1);
                assert_eq!((last.pages.get(), last.kind.get()), (span.pages.get(), Kind::Free));
                free.push(Free {
                    address: span.address() as usize,
                    pages: span.pages.get() as usize,
                    lane,
                    zero: span.is_zero(),
                    permanent: arena::is_permanent(span),
                });
            });
        }
        free.sort_by_key(|span| span.address);
        free
    }

    fn check(&self) {
        let free = self.free_spans();
        let mut all: Vec<(usize, usize)> = self.live.iter().map(|(&at, &(pages, _))| (at, pages)).collect();
        all.extend(free.iter().map(|span| (span.address, span.pages)));
        all.sort_unstable();
        for pair in all.windows(2) {
            assert!(pair[0].0 + pair[0].1 * ARENA_PAGE <= pair[1].0, "{pair:x?} overlap");
        }
        for pair in free.windows(2) {
            let touch = pair[0].address + pair[0].pages * ARENA_PAGE == pair[1].address;
            let alike =
                (pair[0].zero, pair[0].permanent, pair[0].lane) == (pair[1].zero, pair[1].permanent, pair[1].lane);
            assert!(!(touch && alike), "{pair:x?} are not one");
        }
        let taken: usize = (0..self.heap.used_lanes).map(|lane| self.heap.lanes[lane].frontier.taken_pages()).sum();
        let counted: usize = all.iter().map(|&(_, pages)| pages).sum();
        // An arena that was left for a larger one is not counted there any more.
        assert!(counted >= taken, "{} pages are neither in use nor free", taken - counted);
        for span in &free {
            if span.zero {
                assert_zero(span.address, span.pages);
            }
        }
        let resident: usize =
            free.iter().filter(|span| !span.zero && !span.permanent).map(|span| span.pages * ARENA_PAGE).sum();
        assert_eq!(self.heap.resident_free(), resident);
        let used: usize = self.live.values().map(|&(pages, _)| pages * ARENA_PAGE).sum();
        assert_eq!(self.heap.used, used);
    }

    /// A span that the heap has just given out.
    fn enter(&mut self, span: &'static Slab, pages: usize) {
        assert_eq!(span.pages.get() as usize, pages);
        let address = span.address() as usize;
        if span.is_zero() {
            assert_zero(address, pages);
        }
        soil(address, 0, pages);
        assert!(self.live.insert(address, (pages, span)).is_none(), "{address:x} was given out twice");
    }

    /// Gives a span that is free, and out of the bins, back to the machine, which may refuse it.
    fn give_back(&mut self, span: &'static Slab) {
        // SAFETY: nobody has the span.
        let released =
            unsafe { crate::pages::system::System::decommit(&self.heap.machine, span.address(), span.bytes()) };
        span.set_zero(released);
        self.heap.free(span);
    }

    /// Whether there are so many free pages in a row of which some have memory and would go back.
    fn has_mixed_row(&self, free: &[Free], lane: usize, pages: usize) -> bool {
        let own: Vec<&Free> = free.iter().filter(|span| span.lane == lane && !span.permanent).collect();
        let touch = |a: &&Free, b: &&Free| a.address + a.pages * ARENA_PAGE == b.address;
        let is_mixed = |row: &[&Free]| row.iter().any(|span| !span.zero);
        own.chunk_by(touch).any(|row| is_mixed(row) && row.iter().map(|span| span.pages).sum::<usize>() >= pages)
    }

    fn pick(&self, which: usize) -> Option<&'static Slab> {
        let at = which.checked_rem(self.live.len())?;
        self.live.values().nth(at).map(|&(_, span)| span)
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Alloc { pages, align_log } => {
                let before = self.free_spans();
                let own = if self.heap.used_lanes == 1 { 0 } else { self.heap.machine.node.get() };
                let fits = before.iter().filter(|span| span.lane == own && span.pages >= pages);
                // What has memory behind it comes first.
                let smallest = fits.min_by_key(|span| (span.zero, span.pages)).copied();
                let Some(span) = self.heap.alloc(pages, 1 << align_log) else {
                    assert!(align_log > 0 || smallest.is_none(), "{pages} pages were free");
                    let far = before.iter().any(|span| span.pages >= pages);
                    assert!(align_log > 0 || !far, "another lane has {pages} pages");
                    return;
                };
                assert!((span.address() as usize).is_multiple_of(ARENA_PAGE << align_log));
                if let (0, Some(smallest)) = (align_log, smallest) {
                    let taken = before.iter().find(|free| free.address == span.address() as usize);
                    let taken = taken.map(|free| (free.zero, free.pages));
                    assert_eq!(taken, Some((smallest.zero, smallest.pages)), "{smallest:x?} is a best fit");
                }
                self.enter(span, pages);
            }
            Step::AllocWithRoom { pages } => {
                if let Some(span) = self.heap.alloc_with_room(pages) {
                    self.enter(span, pages);
                }
            }
            Step::AllocFromStart { pages } => {
                let before = self.free_spans();
                let own = if self.heap.used_lanes == 1 { 0 } else { self.heap.machine.node.get() };
                let fits = before.iter().any(|free| free.lane == own && !free.zero && free.pages >= pages);
                let Some((span, ready)) = self.heap.alloc_from_start(pages) else { return };
                let (address, ready) = (span.address() as usize, ready as usize);
                if ready > 0 && ready < pages {
                    let at = before.iter().position(|free| free.address == address).expect("a free span began there");
                    assert!(!fits && !span.is_zero(), "{before:?} has {pages} pages with memory in one place");
                    assert!(!before[at].zero && before[at].pages == ready, "{before:?}");
                    assert_zero(address + ready * ARENA_PAGE, pages - ready);
                } else {
                    assert_eq!(ready, if span.is_zero() { 0 } else { pages });
                }
                self.enter(span, pages);
            }
            Step::AllocLarge { pages } => {
                let before = self.free_spans();
                let own = if self.heap.used_lanes == 1 { 0 } else { self.heap.machine.node.get() };
                let fits = before.iter().any(|free| free.lane == own && !free.zero && free.pages >= pages);
                let Some((span, ready)) = self.heap.alloc_large(pages) else { return };
                let address = span.address() as usize;
                let end = address + pages * ARENA_PAGE;
                let inside = before.iter().filter(|free| !free.zero).map(|free| {
                    let (from, to) = (free.address.max(address), (free.address + free.pages * ARENA_PAGE).min(end));
                    to.saturating_sub(from) / ARENA_PAGE
                });
                assert_eq!(inside.sum::<usize>(), ready as usize, "{before:?}");
                assert!(!fits || ready as usize == pages, "{before:?} has {pages} pages with memory in one place");
                for zero in before.iter().filter(|free| free.zero) {
                    let (from, to) = (zero.address.max(address), (zero.address + zero.pages * ARENA_PAGE).min(end));
                    assert_zero(from, to.saturating_sub(from) / ARENA_PAGE);
                }
                if ready == 0 {
                    assert!(!self.has_mixed_row(&before, own, pages), "{before:?} has {pages} pages, some with memory");
                }
                self.enter(span, pages);
            }
            Step::FreeTouched { which, pages } => {
                let Some(span) = self.pick(which) else { return };
                let address = span.address() as usize;
                let (all, _) = self.live.remove(&address).unwrap();
                clean(address + pages.min(all) * ARENA_PAGE, all - pages.min(all));
                span.set_zero(false);
                self.heap.free_touched(span, pages);
            }
            Step::Free { which } | Step::FreeZeroed { which } => {
                let Some(span) = self.pick(which) else { return };
                let (pages, _) = self.live.remove(&(span.address() as usize)).unwrap();
                let zero = matches!(step, Step::FreeZeroed { .. });
                if zero {
                    clean(span.address() as usize, pages);
                }
                span.set_zero(zero);
                self.heap.free(span);
            }
            Step::Resize { which, pages } => {
                let Some(span) = self.pick(which) else { return };
                let address = span.address() as usize;
                let before = self.live[&address].0;
                let done = self.heap.resize(span, pages);
                assert!(done || pages > before, "a span can always become shorter");
                if done {
                    assert_eq!((span.pages.get() as usize, span.address() as usize), (pages, address));
                    soil(address, before.min(pages), pages);
                    self.live.insert(address, (pages, span));
                }
            }
            Step::ReleaseShortest { works } => {
                self.heap.machine.takes_back.set(works);
                let before = self.free_spans();
                let resident = || before.iter().filter(|span| !span.zero && !span.permanent);
                let beyond = self.heap.has_excess(1) && !self.heap.ground.has_huge;
                let Some(span) = self.heap.take_excess(usize::MAX) else {
                    assert!(!(beyond && resident().next().is_some()), "{before:?} has spans that lie idle");
                    return;
                };
                let lane = arena::lane_of(span);
                let shortest = resident().filter(|span| span.lane == lane).map(|span| bin_of(span.pages)).min();
                assert!(beyond && shortest == Some(bin_of(span.pages.get() as usize)), "{before:?} has a shorter one");
                self.give_back(span);
            }
            Step::ReleaseExchanged { pages, works } => {
                self.heap.machine.takes_back.set(works);
                let before = self.free_spans();
                let resident = before.iter().any(|span| !span.zero && !span.permanent);
                let beyond = self.heap.has_excess(EXCHANGED_IDLE) && !self.heap.ground.has_huge;
                let Some(span) = self.heap.take_exchanged(pages) else {
                    assert!(!(beyond && resident), "{before:?} has spans that lie idle");
                    return;
                };
                assert!(span.pages.get() as usize <= pages, "more goes back than is taken");
                self.give_back(span);
            }
            Step::Release { pages, works } => {
                self.heap.machine.takes_back.set(works);
                let Some(span) = self.heap.take_resident(1, pages) else {
                    assert_eq!(self.heap.resident_free(), 0);
                    return;
                };
                self.give_back(span);
            }
            Step::RunOn { node } => self.heap.machine.node.set(node),
            Step::Memory { pages } => {
                self.heap.machine.memory.set(pages.map_or(usize::MAX, |pages| pages * ARENA_PAGE))
            }
        }
    }
}

/// The words at both ends of each page.
fn words(address: usize, from: usize, to: usize) -> impl Iterator<Item = *mut u64> {
    let page = move |page: usize| [address + page * ARENA_PAGE, address + (page + 1) * ARENA_PAGE - 8];
    (from..to).flat_map(page).map(|address| address as *mut u64)
}

fn assert_zero(address: usize, pages: usize) {
    for word in words(address, 0, pages) {
        // SAFETY: pages that were handed out once can be read.
        assert_eq!(unsafe { word.read_volatile() }, 0, "{word:?} of the span at {address:x} is not zero");
    }
}

fn soil(address: usize, from: usize, to: usize) {
    // SAFETY: the span is in use.
    words(address, from, to).for_each(|word| unsafe { word.write_volatile(!0) });
}

fn clean(address: usize, pages: usize) {
    // SAFETY: the span is in use.
    words(address, 0, pages).for_each(|word| unsafe { word.write_volatile(0) });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_program_does_spans_are_whole_and_what_the_heap_says_of_them_is_true(
        (wishes, huge_pool) in wishes(),
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let machine = Simulated::with_nodes("0-2");
        machine.huge_pool.set(huge_pool);
        let mut model = Model { heap: Heap::new(&machine, wishes), live: BTreeMap::new() };
        for step in &steps {
            model.run(step);
            model.check();
        }
        // Everything that was used is one span for each run of pages in the end.
        machine.memory.set(usize::MAX);
        for (_, (_, span)) in core::mem::take(&mut model.live) {
            span.set_zero(false);
            model.heap.free(span);
        }
        model.check();
        prop_assert_eq!(model.heap.used, 0);
    }
}
