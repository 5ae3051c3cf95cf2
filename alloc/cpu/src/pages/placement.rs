//! Which huge pages and NUMA nodes the page heap asks for: decided once from the settings and the machine, and taken
//! back where the system refuses. What it refuses is said when no lock is held any more.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering};

use crate::kernel::message::Message;
use crate::pages::system::{Policy, System};
use crate::segment::counters::{self, TierCounter};
use crate::settings::{self, Huge, NodeSet, Numa};

/// What is to be asked for.
#[derive(Clone, Copy, Debug)]
pub struct Wishes {
    /// Huge pages.
    pub huge: Huge,
    /// Nodes.
    pub numa: Numa,
    /// Bytes of the first arena.
    pub arena: usize,
}

impl Wishes {
    /// What the settings say.
    pub fn of_the_settings() -> Wishes {
        let settings = settings::current();
        let (huge, numa) =
            if settings.plain() { (Huge::System, Numa::Off) } else { (settings.huge(), settings.numa()) };
        Wishes { huge, numa, arena: settings.arena() as usize }
    }
}

/// The system, and what is asked of it.
pub struct Ground<S> {
    /// The system.
    pub system: S,
    /// Huge pages that are asked for.
    pub huge: Huge,
    /// Where memory comes from.
    source: Source,
    /// Whether there are transparent huge pages in any arena.
    pub has_huge: bool,
    /// Bytes of the first arena.
    pub arena_bytes: usize,
    /// Arenas that were reserved.
    pub arenas: u32,
    /// Bytes of the largest one that may be reserved next, once it is decided what is asked for.
    pub next_arena: usize,
    refusals: Refusals,
}

/// Where memory comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    /// One policy for all.
    One(Policy),
    /// The node that a thread runs on. These have memory.
    Local(NodeSet),
}

impl<S: System> Ground<S> {
    /// Nothing decided yet.
    pub const fn new(system: S) -> Self {
        Ground {
            system,
            huge: Huge::System,
            source: Source::One(Policy::AsTheProcess),
            has_huge: false,
            arena_bytes: 0,
            arenas: 0,
            // All zeroes take no room in the library's file, and no memory until they are written.
            next_arena: 0,
            refusals: Refusals::NONE,
        }
    }

    /// Decides what is asked for.
    pub fn decide(&mut self, wishes: Wishes) {
        self.huge = wishes.huge;
        self.arena_bytes = wishes.arena;
        self.next_arena = usize::MAX;
        self.source = match wishes.numa {
            Numa::Off => Source::One(Policy::AsTheProcess),
            Numa::Local => match self.system.nodes() {
                // The one node is every thread's own.
                nodes if nodes.bits().is_power_of_two() => Source::One(Policy::AsTheProcess),
                nodes => Source::Local(nodes),
            },
            Numa::Interleave => Source::One(Policy::Interleave(self.system.nodes())),
            Numa::Bind(listed) => {
                let there = listed.bits() & self.system.nodes().bits();
                if there != listed.bits() {
                    self.refusals.missing_nodes = listed.bits() & !there;
                }
                Source::One(NodeSet::from_bits(there).map_or(Policy::AsTheProcess, Policy::Bind))
            }
        };
        // The system promises explicit huge pages for all nodes together. If those of the bound ones are used up, the
        // program would end by `SIGBUS` where it touches the next one.
        if let (Huge::Explicit, Source::One(Policy::Bind(nodes))) = (self.huge, self.source)
            && nodes != self.system.nodes()
        {
            self.huge = Huge::Madvise;
            self.refusals.explicit_bound = true;
        }
    }

    /// Lanes that the page heap needs: one for each node, by its number, if each thread is to have memory of its own.
    pub fn lanes(&self) -> usize {
        match self.source {
            Source::One(_) => 1,
            Source::Local(nodes) => nodes.highest() + 1,
        }
    }

    /// Whether nothing is asked for: memory is as the system gives it.
    pub fn is_as_the_system_has_it(&self) -> bool {
        self.huge == Huge::System && self.source == Source::One(Policy::AsTheProcess)
    }

    /// Gives up on memory by node: there are not addresses enough.
    pub fn join_lanes(&mut self) {
        self.source = Source::One(Policy::AsTheProcess);
    }

    /// Says which nodes the memory of a range comes from, which is for threads of `lane`.
    ///
    /// # Safety
    /// The range is the caller's.
    pub unsafe fn bind(&mut self, p: *mut u8, len: usize, lane: usize) {
        let policy = match self.source {
            Source::One(policy) => policy,
            Source::Local(nodes) if nodes.has(lane) => Policy::Prefer(lane),
            // A node without memory: the kernel knows which one is near.
            Source::Local(_) => Policy::AsTheProcess,
        };
        if policy == Policy::AsTheProcess {
            return;
        }
        counters::add(TierCounter::SystemCalls, 1);
        // SAFETY: the caller's promise.
        let error = unsafe { self.system.bind(p, len, policy) };
        if error != 0 {
            counters::add(TierCounter::PlacementRefused, 1);
            self.refusals.bind_error = error;
        }
    }

    /// Notes that there are no explicit huge pages to be had any more.
    pub fn refuse_explicit(&mut self, error: i32) {
        counters::add(TierCounter::PlacementRefused, 1);
        self.huge = Huge::Madvise;
        self.refusals.explicit_error = error;
    }

    /// Notes that the kernel has no transparent huge pages.
    pub fn refuse_transparent(&mut self, error: i32) {
        counters::add(TierCounter::PlacementRefused, 1);
        self.huge = Huge::System;
        self.refusals.transparent_error = error;
    }

    /// What was refused since the last call.
    #[inline]
    pub fn take_refusals(&mut self) -> Refusals {
        core::mem::replace(&mut self.refusals, Refusals::NONE)
    }
}

/// What the system refused: error numbers, 0 for nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "they are to be said"]
pub struct Refusals {
    /// Of explicit huge pages.
    pub explicit_error: i32,
    /// Explicit huge pages were asked for on some of the nodes alone, which nobody can promise.
    pub explicit_bound: bool,
    /// Of transparent ones.
    pub transparent_error: i32,
    /// Of a NUMA policy.
    pub bind_error: i32,
    /// Nodes that were asked for, and that the process can't have; a bit for each.
    pub missing_nodes: u64,
}

impl Refusals {
    /// Nothing.
    pub const NONE: Refusals =
        Refusals { explicit_error: 0, explicit_bound: false, transparent_error: 0, bind_error: 0, missing_nodes: 0 };

    /// Says them on standard error: once each of what was asked for by name, and only on request what the pool does
    /// well without. No lock is held.
    #[inline]
    pub fn say(self) {
        if self != Refusals::NONE {
            self.say_cold();
        }
    }

    #[cold]
    fn say_cold(self) {
        let settings = settings::current();
        if let Some(nodes) = NodeSet::from_bits(self.missing_nodes) {
            let mut message = Message::new("POOLSCOPE_NUMA=");
            // A message that does not fit is cut.
            let _ = write!(message, "{}: this process has no memory on node {nodes}; ", settings.numa());
            let rest = match settings.numa() {
                Numa::Bind(listed) => NodeSet::from_bits(listed.bits() & !self.missing_nodes),
                _ => None,
            };
            let _ = match rest {
                Some(rest) => write!(message, "node {rest} is used alone"),
                None => message.write_str("memory comes from where the system takes it"),
            };
            message.print();
        }
        if self.bind_error != 0 && !BIND_SAID.swap(true, Ordering::Relaxed) {
            let mut message = Message::new("POOLSCOPE_NUMA=");
            let _ = write!(
                message,
                "{}: mbind failed ({}); memory comes from where the system takes it",
                settings.numa(),
                ErrorName(self.bind_error)
            );
            message.print();
        }
        if !settings.verbose() {
            return;
        }
        if self.explicit_error != 0 {
            let mut message = Message::new("POOLSCOPE_HUGE=explicit: no more explicit huge pages (");
            let _ = write!(message, "{}); transparent ones are asked for from here on", ErrorName(self.explicit_error));
            message.print();
        }
        if self.explicit_bound {
            Message::new("POOLSCOPE_HUGE=explicit: the system promises no explicit huge pages on single nodes; ")
                .text("transparent ones are asked for")
                .print();
        }
        if self.transparent_error != 0 {
            let mut message = Message::new("no transparent huge pages (");
            let _ = write!(message, "{})", ErrorName(self.transparent_error));
            message.print();
        }
    }
}

/// Whether a NUMA policy that was refused was said.
static BIND_SAID: AtomicBool = AtomicBool::new(false);

/// An error number, with what it means here.
struct ErrorName(i32);

impl fmt::Display for ErrorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let meaning = match self.0 {
            libc::ENOMEM => "there is no memory left of that kind",
            libc::EPERM | libc::EACCES => "it is not allowed",
            libc::ENOSYS => "the kernel has no such call",
            libc::EINVAL => "the kernel has no such thing",
            _ => "the kernel refused",
        };
        write!(f, "error {}: {meaning}", self.0)
    }
}
