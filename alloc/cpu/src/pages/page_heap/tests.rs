//! The page heap on simulated machines.

use std::boxed::Box;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::vec::Vec;

use super::{PageHeap, Wishes};
use crate::layout::arena::{self, ARENA_PAGE};
use crate::layout::slab::Slab;
use crate::pages::frontier::PLAIN;
use crate::pages::placement::Refusals;
use crate::pages::system::simulated::Simulated;
use crate::pages::system::{Explicit, HUGE_PAGE, Policy};
use crate::settings::{Huge, NodeSet, Numa};

pub const MIB: usize = 1 << 20;
const PLAIN_WISHES: Wishes = Wishes { huge: Huge::Madvise, numa: Numa::Off, arena: 256 * MIB };

/// A page heap on a machine; its addresses go when it is dropped.
pub struct Heap {
    heap: Box<PageHeap<Rc<Simulated>>>,
    pub machine: Rc<Simulated>,
}

impl Heap {
    pub fn new(machine: &Rc<Simulated>, wishes: Wishes) -> Heap {
        let mut heap = Box::new(PageHeap::new(machine.clone()));
        heap.start(wishes);
        Heap { heap, machine: machine.clone() }
    }

    /// A span for a thread on this node.
    fn alloc_on(&mut self, node: usize, pages: usize) -> Option<&'static Slab> {
        self.machine.node.set(node);
        self.alloc(pages, 1)
    }

    /// The policy of a span's memory.
    fn policy(&self, span: &'static Slab) -> Option<Policy> {
        Simulated::at(&self.machine.bound, span.address())
    }
}

impl Deref for Heap {
    type Target = PageHeap<Rc<Simulated>>;
    fn deref(&self) -> &Self::Target {
        &self.heap
    }
}

impl DerefMut for Heap {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.heap
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        self.machine.unmap_all();
    }
}

fn nodes(text: &str) -> NodeSet {
    NodeSet::parse(text.as_bytes()).unwrap()
}

fn local() -> Wishes {
    Wishes { numa: Numa::Local, ..PLAIN_WISHES }
}

fn explicit() -> Wishes {
    Wishes { huge: Huge::Explicit, ..PLAIN_WISHES }
}

/// Takes spans of 1 MiB until this many bytes were taken.
fn fill(heap: &mut Heap, bytes: usize) -> Vec<&'static Slab> {
    (0..bytes / MIB).map(|_| heap.alloc(MIB / ARENA_PAGE, 1).unwrap()).collect()
}

#[test]
fn a_thread_gets_memory_of_the_node_that_it_runs_on() {
    let machine = Simulated::with_nodes("0-3");
    let mut heap = Heap::new(&machine, local());
    for round in 0..3 {
        for node in [2, 0, 3, 1] {
            let span = heap.alloc_on(node, 1 + 50 * round).unwrap();
            assert_eq!(heap.policy(span), Some(Policy::Prefer(node)));
            assert_eq!(arena::lane_of(span), node);
            assert!(arena::page_of(span.address()).is_some_and(|page| core::ptr::eq(page, span)));
        }
    }
    assert_eq!(heap.ground.arenas, 1, "one compare finds the blocks of all nodes");
    assert_eq!(heap.ground.take_refusals(), Refusals::NONE);
}

#[test]
fn a_freed_span_goes_back_to_its_node_whoever_frees_it() {
    let machine = Simulated::with_nodes("0-3");
    let mut heap = Heap::new(&machine, local());
    let span = heap.alloc_on(1, 10).unwrap();
    machine.node.set(2);
    heap.free(span);
    let other = heap.alloc_on(2, 10).unwrap();
    assert_eq!(heap.policy(other), Some(Policy::Prefer(2)));
    let again = heap.alloc_on(1, 10).unwrap();
    assert_eq!(again.address(), span.address());
}

#[test]
fn memory_is_moved_within_a_node_only() {
    let machine = Simulated::with_nodes("0-1");
    let mut heap = Heap::new(&machine, local());
    let (a, b, c) = (heap.alloc_on(0, 8).unwrap(), heap.alloc_on(0, 16).unwrap(), heap.alloc_on(1, 16).unwrap());
    assert!(super::may_move(a, b));
    assert!(!super::may_move(a, c));
}

#[test]
fn a_node_without_memory_gets_it_where_the_kernel_finds_it_near() {
    let machine = Simulated::with_nodes("0,2");
    let mut heap = Heap::new(&machine, local());
    let span = heap.alloc_on(1, 1).unwrap();
    assert_eq!(heap.policy(span), None);
    let span = heap.alloc_on(2, 1).unwrap();
    assert_eq!(heap.policy(span), Some(Policy::Prefer(2)));
    // A node above all that have memory.
    assert!(heap.alloc_on(7, 1).is_some());
}

#[test]
fn when_a_nodes_addresses_are_used_up_it_gets_more_of_its_own() {
    let machine = Simulated::with_nodes("0-3");
    let mut heap = Heap::new(&machine, local());
    machine.node.set(3);
    for span in fill(&mut heap, 300 * MIB) {
        assert_eq!(heap.policy(span), Some(Policy::Prefer(3)));
    }
    assert!(heap.ground.arenas > 1);
    let span = heap.alloc_on(0, 1).unwrap();
    assert_eq!(heap.policy(span), Some(Policy::Prefer(0)));
}

#[test]
fn another_nodes_memory_is_better_than_none() {
    let machine = Simulated::with_nodes("0-1");
    let mut heap = Heap::new(&machine, local());
    let span = heap.alloc_on(0, 100).unwrap();
    heap.free(span);
    machine.memory.set(0);
    let other = heap.alloc_on(1, 100).unwrap();
    assert_eq!(other.address(), span.address());
    assert!(heap.alloc_on(1, 100).is_none());
}

#[test]
fn with_one_node_nothing_is_bound() {
    let machine = Simulated::with_nodes("0");
    let mut heap = Heap::new(&machine, local());
    assert_eq!(heap.used_lanes, 1);
    heap.alloc_on(0, 1).unwrap();
    assert!(machine.bound.borrow().is_empty());
}

#[test]
fn interleaved_and_bound_memory_is_so_in_every_arena() {
    for (numa, policy) in
        [(Numa::Interleave, Policy::Interleave(nodes("0-3"))), (Numa::Bind(nodes("1,3")), Policy::Bind(nodes("1,3")))]
    {
        let machine = Simulated::with_nodes("0-3");
        let mut heap = Heap::new(&machine, Wishes { numa, arena: 64 * MIB, ..PLAIN_WISHES });
        for span in fill(&mut heap, 200 * MIB) {
            assert_eq!(heap.policy(span), Some(policy));
        }
        assert!(heap.ground.arenas > 1);
        assert_eq!(heap.ground.take_refusals(), Refusals::NONE);
    }
}

#[test]
fn nodes_that_are_not_there_are_named_and_the_others_are_used() {
    let machine = Simulated::with_nodes("0-1");
    let mut heap = Heap::new(&machine, Wishes { numa: Numa::Bind(nodes("1,5")), ..PLAIN_WISHES });
    let span = heap.alloc(1, 1).unwrap();
    assert_eq!(heap.policy(span), Some(Policy::Bind(nodes("1"))));
    assert_eq!(heap.ground.take_refusals(), Refusals { missing_nodes: 1 << 5, ..Refusals::NONE });

    let mut heap = Heap::new(&machine, Wishes { numa: Numa::Bind(nodes("5")), ..PLAIN_WISHES });
    let span = heap.alloc(1, 1).unwrap();
    assert_eq!(heap.policy(span), None);
    assert_eq!(heap.ground.take_refusals(), Refusals { missing_nodes: 1 << 5, ..Refusals::NONE });
}

#[test]
fn a_kernel_that_binds_nothing_costs_no_memory() {
    for error in [libc::ENOSYS, libc::EPERM, libc::ENOMEM] {
        for numa in [Numa::Local, Numa::Interleave, Numa::Bind(nodes("1"))] {
            let machine = Simulated::with_nodes("0-3");
            machine.bind_error.set(error);
            let mut heap = Heap::new(&machine, Wishes { numa, ..PLAIN_WISHES });
            assert!(heap.alloc_on(1, 100).is_some());
            assert_eq!(heap.ground.take_refusals(), Refusals { bind_error: error, ..Refusals::NONE });
        }
    }
}

#[test]
fn without_addresses_for_all_nodes_there_is_one_lane() {
    let machine = Simulated::with_nodes("0-3");
    machine.limit.set(32 * MIB);
    let mut heap = Heap::new(&machine, local());
    assert_eq!(heap.used_lanes, 1);
    assert!(heap.alloc_on(3, 10).is_some());
}

#[test]
fn a_limit_of_addresses_leaves_each_node_its_share() {
    let machine = Simulated::with_nodes("0-3");
    let mut heap = Heap::new(&machine, local());
    let spans: Vec<_> = (0..4).map(|node| heap.alloc_on(node, 10).unwrap()).collect();
    let reserved = |machine: &Simulated| machine.reserved.borrow().iter().map(|(from, to)| to - from).sum::<usize>();
    assert_eq!(reserved(&machine), 256 * MIB);
    heap.fit(64 * MIB);
    // Each has the step that it was given, and the table.
    assert!(reserved(&machine) < 40 * MIB, "{}", reserved(&machine));
    for span in spans {
        heap.free(span);
    }
    assert!((0..4).all(|node| heap.alloc_on(node, 10).is_some()));
}

#[test]
fn a_small_heap_asks_for_no_huge_pages_and_a_large_one_does_behind_its_start() {
    let machine = Simulated::with_nodes("0");
    let mut heap = Heap::new(&machine, PLAIN_WISHES);
    let first = fill(&mut heap, PLAIN / 2);
    assert!(machine.advised.borrow().is_empty());
    let more = fill(&mut heap, 3 * PLAIN);
    let wanted = |span: &&'static Slab| Simulated::at(&machine.advised, span.address());
    assert!(first.iter().all(|span| wanted(span).is_none()));
    assert_eq!(wanted(more.last().unwrap()), Some(true));
    for &(from, to, _) in &*machine.advised.borrow() {
        assert!(from.is_multiple_of(HUGE_PAGE) && to.is_multiple_of(HUGE_PAGE), "{from:x}-{to:x}");
    }
    // Range follows range, so that they are one mapping.
    let advised = machine.advised.borrow();
    assert!(advised.windows(2).all(|pair| pair[0].1 == pair[1].0));
}

#[test]
fn without_huge_pages_the_kernel_is_told_so_of_each_arena_from_the_start() {
    let machine = Simulated::with_nodes("0");
    let mut heap = Heap::new(&machine, Wishes { huge: Huge::Off, arena: 64 * MIB, ..PLAIN_WISHES });
    for span in fill(&mut heap, 200 * MIB) {
        assert_eq!(Simulated::at(&machine.advised, span.address()), Some(false));
    }
}

#[test]
fn a_kernel_without_transparent_huge_pages_is_asked_once() {
    let machine = Simulated::with_nodes("0");
    machine.advise_error.set(libc::EINVAL);
    let mut heap = Heap::new(&machine, PLAIN_WISHES);
    fill(&mut heap, 2 * PLAIN);
    assert_eq!(heap.ground.take_refusals(), Refusals { transparent_error: libc::EINVAL, ..Refusals::NONE });
    machine.advise_error.set(0);
    fill(&mut heap, PLAIN / 2);
    assert!(machine.advised.borrow().is_empty());
}

#[test]
fn whole_huge_pages_go_back_before_parts_of_others() {
    let machine = Simulated::with_nodes("0");
    let mut heap = Heap::new(&machine, PLAIN_WISHES);
    fill(&mut heap, PLAIN + 16 * MIB);
    let large = heap.alloc(8 * MIB / ARENA_PAGE + 5, 1).unwrap();
    let _between = heap.alloc(1, 1).unwrap();
    large.set_zero(false);
    heap.free(large);
    let mut released = 0;
    let first = heap.take_resident(1, 1).unwrap();
    assert!((first.address() as usize).is_multiple_of(HUGE_PAGE) && first.bytes() == HUGE_PAGE);
    released += first.bytes();
    while let Some(span) = heap.take_resident(1, usize::MAX) {
        released += span.bytes();
    }
    assert!(released >= 8 * MIB + 5 * ARENA_PAGE);
}

#[test]
fn explicit_huge_pages_are_used_as_far_as_they_go() {
    let machine = Simulated::with_nodes("0");
    machine.huge_pool.set(10);
    let mut heap = Heap::new(&machine, explicit());
    let spans = fill(&mut heap, 40 * MIB);
    let explicit: Vec<bool> =
        spans.iter().map(|span| Simulated::at(&machine.explicit, span.address()).is_some()).collect();
    assert_eq!(explicit.iter().filter(|&&explicit| explicit).count(), 20, "{explicit:?}");
    assert_eq!(machine.huge_pool.get(), 0);
    assert_eq!(heap.ground.take_refusals(), Refusals { explicit_error: libc::ENOMEM, ..Refusals::NONE });
    assert_eq!(heap.ground.arenas, 1);
    // They are never given back, and are used again.
    for span in spans {
        span.set_zero(false);
        heap.free(span);
    }
    assert_eq!(heap.resident_free(), 20 * MIB);
    let mut released = 0;
    while let Some(span) = heap.take_resident(1, usize::MAX) {
        assert_eq!(Simulated::at(&machine.explicit, span.address()), None);
        released += span.bytes();
        span.set_zero(true);
        heap.free(span);
    }
    assert_eq!(released, 20 * MIB);
    let again = heap.alloc(20 * MIB / ARENA_PAGE, 1).unwrap();
    assert!(Simulated::at(&machine.explicit, again.address()).is_some());
}

#[test]
fn no_span_is_partly_of_explicit_huge_pages() {
    let machine = Simulated::with_nodes("0");
    machine.huge_pool.set(3);
    let mut heap = Heap::new(&machine, explicit());
    let first = heap.alloc(5 * MIB / ARENA_PAGE, 1).unwrap();
    assert!(!heap.resize(first, 7 * MIB / ARENA_PAGE), "1 MiB is left of the third page, and there is no fourth");
    // Too long for that one, too: it becomes a free span.
    let second = heap.alloc(2 * MIB / ARENA_PAGE, 1).unwrap();
    assert_eq!(Simulated::at(&machine.explicit, second.address()), None);
    assert!(!super::may_move(first, second));
    let third = heap.alloc(MIB / ARENA_PAGE, 1).unwrap();
    assert!(Simulated::at(&machine.explicit, third.address()).is_some());
    assert!(heap.resize(second, 4 * MIB / ARENA_PAGE));
    // Nor does one grow into what is free of the other kind.
    heap.free(second);
    assert_eq!(third.address() as usize + third.bytes(), second.address() as usize);
    assert!(!heap.resize(third, 2 * MIB / ARENA_PAGE));
}

#[test]
fn explicit_huge_pages_are_bound_as_everything_else() {
    let machine = Simulated::with_nodes("0-3");
    machine.huge_pool.set(16);
    let mut heap = Heap::new(&machine, Wishes { numa: Numa::Local, ..explicit() });
    for node in 0..4 {
        let span = heap.alloc_on(node, 2 * MIB / ARENA_PAGE).unwrap();
        assert!(Simulated::at(&machine.explicit, span.address()).is_some());
        assert_eq!(heap.policy(span), Some(Policy::Prefer(node)));
        // After the mapping, which took the place of one that was bound.
        assert!(machine.bound.borrow().iter().rfind(|bound| bound.0 == span.address() as usize).is_some());
    }
}

#[test]
fn an_empty_pool_of_huge_pages_means_transparent_ones() {
    let machine = Simulated::with_nodes("0");
    let mut heap = Heap::new(&machine, explicit());
    let spans = fill(&mut heap, 3 * PLAIN);
    assert_eq!(heap.ground.take_refusals(), Refusals { explicit_error: libc::ENOMEM, ..Refusals::NONE });
    assert_eq!(Simulated::at(&machine.advised, spans.last().unwrap().address()), Some(true));
}

#[test]
fn addresses_that_may_be_lost_are_not_touched_again() {
    let machine = Simulated::with_nodes("0");
    machine.huge_pool.set(4);
    let mut heap = Heap::new(&machine, explicit());
    let first = heap.alloc(2 * MIB / ARENA_PAGE, 1).unwrap();
    machine.huge_result.set(Explicit::Lost(libc::EINVAL));
    let second = heap.alloc(2 * MIB / ARENA_PAGE, 1).unwrap();
    assert_eq!(heap.ground.arenas, 2, "the first arena ends where the loss began");
    assert!((second.address() as usize).abs_diff(first.address() as usize) >= 4 * MIB);
    assert_eq!(heap.ground.take_refusals(), Refusals { explicit_error: libc::EINVAL, ..Refusals::NONE });
}

/// The kernel sets them aside for all nodes together.
#[test]
fn explicit_huge_pages_are_not_bound_to_some_of_the_nodes() {
    for (listed, explicit_ones) in [("1,3", false), ("0-3", true)] {
        let machine = Simulated::with_nodes("0-3");
        machine.huge_pool.set(8);
        let mut heap = Heap::new(&machine, Wishes { numa: Numa::Bind(nodes(listed)), ..explicit() });
        let span = heap.alloc(1, 1).unwrap();
        assert_eq!(heap.policy(span), Some(Policy::Bind(nodes(listed))));
        assert_eq!(Simulated::at(&machine.explicit, span.address()).is_some(), explicit_ones, "{listed}");
        let refusals = Refusals { explicit_bound: !explicit_ones, ..Refusals::NONE };
        assert_eq!(heap.ground.take_refusals(), refusals, "{listed}");
    }
}
