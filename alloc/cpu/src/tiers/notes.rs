//! What others keep by a thread's heap, a struct for each owner: the sampler, the registry, who closes the fast path,
//! who sees every call, and who looks on from outside.
//!
//! Zeroed memory is a valid value of each, and says that nothing happened yet.

use core::cell::{Cell, UnsafeCell};
use core::sync::atomic::AtomicPtr;

use poolscope_capture::{MAX_DEPTH, ThreadState, Trail};

use crate::layout::size_class::SMALL_CLASSES;
use crate::sampling::budget::Budget;
use crate::sampling::governor::Governor;
use crate::script;
use crate::sync::spin_lock::SpinLock;
use crate::tiers::thread_cache::Heap;

/// Writes a word of a heap where that changes it: a page that has nothing but zeroes takes no memory, and few threads
/// use all classes.
#[inline(always)]
pub fn update<T: Copy + PartialEq>(cell: &Cell<T>, value: T) {
    if cell.get() != value {
        cell.set(value);
    }
}

/// The sampler's part of a heap (`thread_cache/budgets.rs`, `sampler/`).
///
/// A budget is counted down by what is allocated, and a sample is due where it ends. All is the heap's thread's alone,
/// but for `samples`, which readers of the segment are shown.
#[repr(C)]
pub struct Sampling {
    /// Holds the samples to a rate.
    pub governor: Governor,
    /// State of the random number generator.
    pub random: Cell<u64>,
    /// Samples taken.
    pub samples: Cell<u64>,
    /// The leak checker's scope that the thread is in; every allocation is recorded while it is not 0.
    pub scope: Cell<u32>,
    /// How often the thread has said that what it allocates is no leak, and not taken it back.
    pub ignores: Cell<u32>,
    /// What stands in the thread's stacks beside their frames.
    pub marks: Marks,
    /// The thread is taking a sample: what it allocates meanwhile is not sampled.
    pub in_sampler: Cell<bool>,
    /// Bytes until the next sample, for each small class. Medium ones have theirs with their stack, and large ones by
    /// where they come from.
    pub budget: [Budget; SMALL_CLASSES],
    /// What captures of the thread's stack need (`entry/capture.rs`): one at a time.
    pub capture: UnsafeCell<Capture>,
}

/// Blocks that a heap's threads got past their cache: large ones (`serve/large.rs`) and samples (`sampler/mod.rs`). The
/// counters of its classes have the others.
pub struct Uncached {
    /// Blocks.
    pub blocks: Cell<u64>,
    /// Their bytes, with those that large ones grew by in place.
    pub bytes: Cell<u64>,
}

impl Uncached {
    /// Counts so many blocks more, and bytes.
    pub fn count(&self, blocks: u64, bytes: usize) {
        self.blocks.set(self.blocks.get() + blocks);
        self.bytes.set(self.bytes.get() + bytes as u64);
    }
}

/// The registry's part of a heap (`threads/heaps.rs`, `process/start.rs`): whose it is. Written by the heap's thread
/// when it begins, and with the registry's lock.
pub struct Registration {
    /// Kernel id of the thread.
    pub thread_id: Cell<u32>,
    /// Its thread began in a child that had this memory (`vfork`): the id is another process's.
    pub began_in_child: Cell<bool>,
    /// Index of the heap in the segment, and in the order of creation.
    pub index: Cell<u32>,
    /// Threads that have had it.
    pub uses: Cell<u64>,
    /// Next in the list of heaps that wait for a thread.
    pub next_unused: Cell<Option<&'static Heap>>,
    /// Next in the list of all heaps; written once.
    pub next_heap: Cell<Option<&'static Heap>>,
}

/// How a heap's fast path is closed (`threads/detour.rs`).
///
/// A thread's first word says which heap its fast path uses. Another thread closes the path by changing that word, with
/// `closing` held; `held_open` says that it must not be taken for idle all the same.
pub struct Path {
    /// Where its thread's first word lies; null without a thread. Any thread's.
    pub thread_word: AtomicPtr<*mut Heap>,
    /// It is none of the static heaps.
    pub belongs_to_a_thread: Cell<bool>,
    /// Held by who closes its thread's fast path, for as long as the thread must not go on.
    pub closing: SpinLock<()>,
    /// Its thread is in the slow path although its word doesn't say so: a capture runs with an open fast path.
    pub held_open: Cell<bool>,
}

/// A heap's part of those who see every call: hooks, and recordings (`hooks/`, `tracer/`). The heap's thread's alone.
pub struct Calls {
    /// The thread is in a hook: what it does there is reported to nobody.
    pub in_hook: Cell<bool>,
    /// It is in a `realloc` that is reported as a whole.
    pub in_realloc: Cell<bool>,
    /// It has taken over a slab since the last refill, whose blocks were another thread's.
    pub took_slab: Cell<bool>,
    /// It has taken in blocks that other threads freed: the next event of a trace is to have a new time.
    pub took_in: Cell<bool>,
    /// What the thread needs to trace; null before it did so. Only the tracer knows its type.
    pub trace: Cell<*mut ()>,
}

/// A heap's part of those who look on from outside: the collector and the census.
pub struct Watch {
    /// Times that its thread was in the slow path; wraps. The thread's; the others read it.
    pub visits: Cell<u64>,
    /// The collector's notes.
    pub idle: Idle,
    /// The number of `census::EPOCH` when the heap's thread counted everything. The thread's.
    pub epoch: Cell<u32>,
    /// What `visits` was at the last census.
    pub counted_at: Cell<u64>,
}

/// What the census knows of a heap's class. Zeroed memory is nothing.
pub struct ClassNotes {
    /// What the heap's thread had counted as freed before the pages were walked, and the blocks that it has freed and
    /// not counted: in this order, so that none is counted twice.
    pub frees: Cell<u64>,
    pub uncounted: Cell<u32>,
    /// Blocks that wait in the outbox.
    pub unsent: Cell<u32>,
    /// Where the list of a small class began, and how many blocks it had, when the thread had been in the slow path
    /// [`Watch::counted_at`] times.
    pub list: Cell<(usize, u32)>,
}

/// What the collector knows of a heap. Zeroed memory is nothing.
#[derive(Default)]
pub struct Idle {
    /// What [`Watch::visits`] was at the last look.
    pub visits: Cell<u64>,
    /// When that was, in milliseconds of the monotonic clock.
    pub since: Cell<u64>,
    /// Its cache was given back, and its thread has not been in the slow path since.
    pub collected: Cell<bool>,
    /// Times that its cache was left alone since its thread was in the slow path.
    pub refusals: Cell<u8>,
}

/// What stands in a thread's stacks beside their frames. Zeroed memory is nothing, which one comparison says.
pub struct Marks(Cell<u32>);

impl Marks {
    /// An interpreter may run functions in them. No label has so high a number.
    const SCRIPT: u32 = 1 << 31;

    /// Of a thread that begins.
    pub fn begin(&self) {
        self.0.set(0);
    }

    /// From now on an interpreter may run functions in them.
    pub fn set_script(&self) {
        self.0.set(self.0.get() | Self::SCRIPT);
    }

    /// Whether there is anything.
    #[inline(always)]
    pub fn is_any(&self) -> bool {
        self.0.get() != 0
    }

    /// Whether an interpreter may run functions in them.
    #[inline(always)]
    pub fn has_script(&self) -> bool {
        self.0.get() & Self::SCRIPT != 0
    }

    /// The label that the thread is under; 0 if it is under none.
    #[inline(always)]
    pub fn label(&self) -> u32 {
        self.0.get() & !Self::SCRIPT
    }

    /// Puts it under another one, or none. The one that it was under.
    pub fn set_label(&self, label: u32) -> u32 {
        let before = self.0.get();
        self.0.set(before & Self::SCRIPT | label & !Self::SCRIPT);
        before & !Self::SCRIPT
    }
}

/// What a thread's captures need. Zeroed memory is that of a thread without one yet.
pub struct Capture {
    pub state: ThreadState,
    /// The latest one. It has no place on a stack that may be a coroutine's.
    pub frames: [u64; MAX_DEPTH],
    /// What is remembered of the stack, for threads that are captured often; null before that.
    pub trail: *mut Trail,
    /// What an interpreter ran in it; null before it was asked for.
    pub calls: *mut script::Calls,
    /// Captures since one that asked whether modules are still there.
    pub unconfirmed: u32,
}
