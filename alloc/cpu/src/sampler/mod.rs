//! Sampling: which allocations are recorded, with their stack, and where.
//!
//! The thread cache cuts its lists so that the allocation that holds the next sampled byte enters the slow path
//! ([`crate::sampling::budget`]); that one comes here. [`sample_block`] captures the stack before it takes any lock,
//! then serves the block from a slab of sampled blocks and records it in the live table and in the totals of its stack.
//! Everything behind the lock is rare: once in half a mebibyte, unless every allocation is recorded.

pub mod copies;
pub mod device_records;
mod devices;
mod functions;
mod growing;
mod known_stacks;
pub mod labels;
mod live_table;
mod peak;
mod probes;
mod recent_stacks;
mod sampled_slabs;
pub mod scoped;
pub mod scopes;
pub mod search;
mod slot_lists;
mod stack_table;
mod weave;

use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicU64, Ordering};

use poolscope_capture::Caller;
use poolscope_wire::reach::verdict;
use poolscope_wire::{LiveRecord, OBJECT_ONE, Region, flags, kind, thread_state};

use crate::census;
use crate::entry::capture::{self, Stack};
use crate::entry::{self, Entry};
use crate::kernel::aside::aside;
use crate::kernel::os;
use crate::layout::block::BlockPtr;
use crate::layout::misuse;
use crate::layout::size_class::SizeClass;
use crate::layout::slab::Slab;
use crate::pages::keeper;
use crate::sampling::budget::{self, Budget};
use crate::segment::counters::{self, ClassCounter, TierCounter};
use crate::segment::modules;
use crate::segment::ownership::{self, mark_own, own_segment};
use crate::segment::publish::write_classes;
use crate::segment::{self, Identity, Segment};
use crate::settings;
use crate::sync::apart::Apart;
use crate::sync::spin_lock::{ForkLock, SlowPath, SpinLock};
use crate::threads::heaps;
use crate::threads::thread_pointer;
use crate::tiers::give_back;
use crate::tiers::publish::{publish_classes, publish_samples, publish_thread};
use crate::tiers::thread_cache::Heap;

pub use devices::{attach, detach, device_holders, forget_foreign, publish_device, record_foreign};
use functions::Functions;
pub use functions::{weave_into, with_function};
use growing::Growing;
pub use growing::{catch_up, resize_block, resize_large};
use labels::{Labels, tell};
pub use labels::{is_refused, with_labels};
use live_table::LiveTable;
use peak::{HOST, Peaks};
pub use sampled_slabs::UNRECORDED;
use sampled_slabs::{FREE, SampledSlabs, slot};
use scopes::Scopes;
use stack_table::{CapturedStack, StackTable, bytes, count_alloc, count_free};

/// So long the end of the process waits for another thread's sample.
const FINISH_PATIENCE_NS: u64 = 1_000_000_000;

/// Apart from the word of its lock: each write to a line that others spin on takes it from all of them.
#[repr(align(128))]
struct Sampler {
    identity: Identity,
    segment: Option<Segment>,
    stacks: StackTable,
    functions: Functions,
    live: LiveTable,
    growing: Growing,
    peaks: Peaks,
    scopes: Scopes,
    labels: Labels,
    slabs: SampledSlabs,
    modules: modules::Published,
    /// Heaps that have a record in the segment.
    threads: u32,
    /// One bit for each pool of device memory that has a record there.
    devices: u32,
}

// SAFETY: only reached under the lock below.
unsafe impl Send for Sampler {}

static SAMPLER: Apart<SpinLock<Sampler>> = Apart(SpinLock::new(Sampler {
    identity: Identity { generation: 0, exact: false, forked: false },
    segment: None,
    stacks: StackTable::new(),
    functions: Functions::new(),
    live: LiveTable::new(),
    growing: Growing::new(),
    peaks: Peaks::new(),
    scopes: Scopes::new(),
    labels: Labels::new(),
    slabs: SampledSlabs::new(),
    modules: modules::Published::new(),
    threads: 0,
    devices: 0,
}));

/// Begins sampling: called once, by the first thread that allocates.
pub fn start(slow: SlowPath) {
    let mut sampler = SAMPLER.lock(slow);
    let identity = Identity { generation: os::random_seed(), exact: period() <= 1, forked: false };
    sampler.identity = identity;
    ownership::start();
    let Some(segment) = Segment::create(identity) else { return };
    write_classes(&segment);
    segment.publish();
    mark_own();
    let Sampler { stacks, live, .. } = &mut *sampler;
    if stacks.start(&segment) && live.start(&segment) {
        sampler.segment = Some(segment);
    }
}

/// Mean bytes between two samples.
#[inline]
pub fn period() -> u64 {
    settings::current().period()
}

/// Tells readers that the period has changed while the program runs.
pub fn period_changed() {
    // A signal handler that interrupted the slow path can't: readers see the period of before.
    let Entry::Heap(entered) = entry::enter() else { return };
    let mut sampler = SAMPLER.lock(entered.slow);
    if period() > 1 {
        sampler.identity.exact = false;
    }
    let Some(segment) = sampler.own_segment() else { return };
    let header = segment.header();
    header.period_bytes = period().max(1);
    if !sampler.identity.exact {
        header.flags &= !flags::EXACT;
    }
}

/// Copies the segment to a file, which `how` says how to open ([`segment::copy`]).
pub fn copy_segment(slow: SlowPath, path: &CStr, how: c_int) -> Result<(), c_int> {
    let mut sampler = SAMPLER.lock(slow);
    let segment = sampler.segment.filter(|segment| own_segment() && segment.is_of(os::process_id()));
    if segment.is_some() {
        sampler.catch_up();
    }
    segment.map_or(Err(libc::ENODATA), |segment| crate::segment::copy(&segment, path, how))
}

/// At a normal exit of the process.
pub fn finish(slow: SlowPath) {
    // Another thread may have the lock for a moment. In a child of the bare `clone` nobody lets it go: then the segment
    // stays.
    let end = os::clock_ns(libc::CLOCK_MONOTONIC) + FINISH_PATIENCE_NS;
    let mut tries = 0;
    let mut sampler = loop {
        match SAMPLER.try_lock(slow) {
            Some(sampler) => break sampler,
            None if os::clock_ns(libc::CLOCK_MONOTONIC) > end => return,
            None => os::give_way(tries),
        }
        tries += 1;
    };
    // A child of `vfork` runs in its parent's memory, but it is not the process of this segment.
    if let Some(segment) = sampler.segment.filter(|_| own_segment())
        && segment.is_of(os::process_id())
    {
        sampler.catch_up();
        if let Some(path) = settings::current().dump_at_exit() {
            // To those that read the copy the process has ended.
            segment.header().state = poolscope_wire::state::EXITED;
            copies::at_exit(&segment, path);
        }
        crate::segment::finish();
    }
}

/// A block to be recorded: what was asked for and what it stands for.
struct Due {
    size: usize,
    weight: u64,
    time_ns: u64,
    kind: u16,
    device: u32,
}

/// What is to be recorded of a sampled block of `size` bytes, with the weight by its budget, which begins anew.
#[inline(always)]
fn take_due(heap: &Heap, budget: &Budget, size: usize, weight: impl FnOnce(&Budget) -> u64) -> Due {
    let time_ns = os::clock_ns(libc::CLOCK_MONOTONIC);
    if heap.records_all() {
        return Due { size, weight: OBJECT_ONE, time_ns, kind: kind::HOST, device: 0 };
    }
    let weight = weight(budget);
    heap.sampling.governor.sampled(budget, time_ns);
    heap.note_stocked();
    heap.begin_budget(budget);
    Due { size, weight, time_ns, kind: kind::HOST, device: 0 }
}

/// Captures the stack of `caller` with no lock held. Where every allocation is recorded, nothing that this allocates
/// leaves blocks to those after it.
fn capture_stack(slow: SlowPath, heap: &'static Heap, caller: &Caller) -> Stack {
    let stack = capture::of(heap, caller);
    capture::note_calls(heap, &stack);
    begin_recording(slow, heap);
    stack
}

fn begin_recording(slow: SlowPath, heap: &'static Heap) {
    if heap.records_all() {
        heap.begin_recording(slow);
    }
}

/// Serves and records a sampled request of `size` bytes from `class`, of the program's call at `caller`.
/// `None` without memory.
#[cold]
pub fn sample_block(
    slow: SlowPath,
    heap: &'static Heap,
    class: SizeClass,
    size: usize,
    caller: &Caller,
) -> Option<*mut u8> {
    let due = take_due(heap, heap.budget(class), size, |budget| budget.weight(class.block()));
    let stack = capture_stack(slow, heap, caller);
    let mut sampler = SAMPLER.lock(slow);
    let Some((slab, block)) = sampler.slabs.alloc(slow, class, &heap.medium.zero) else {
        // The capture may have had the one that was noted.
        heap.medium.zero.set(BlockPtr::NULL);
        return None;
    };
    let p = block.address();
    slot(slab, p).set(sampler.record(heap, &stack, p as u64, &due));
    heap.count_sampled(class);
    let passed = sampler.labels.has_passed();
    drop(sampler);
    if heap.records_all() {
        if heap.medium.zero.get() != block {
            search::wipe(p, size);
        }
        forget_registers();
    }
    if passed {
        tell(slow, heap);
    }
    Some(p)
}

/// Has no register be left with the block's address that neither calls nor the program may use again before it is lost:
/// a search for leaks would find the block there.
#[inline(always)]
fn forget_registers() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: they are named as changed.
    unsafe {
        core::arch::asm!(
            "xor r8d, r8d",
            "xor r9d, r9d",
            "xor r10d, r10d",
            "xor r11d, r11d",
            out("r8") _,
            out("r9") _,
            out("r10") _,
            out("r11") _,
            options(nomem, nostack),
        );
    }
}

/// Records a large block of `size` bytes at `p`, in which `exposure` samples were to be expected, of the program's call
/// at `caller`; its slot in the live table.
#[cold]
pub fn sample_large(
    slow: SlowPath,
    heap: &'static Heap,
    p: *mut u8,
    size: usize,
    (budget, exposure): (&Budget, f64),
    caller: &Caller,
) -> u32 {
    let due = take_due(heap, budget, size, |_| budget::weight(exposure));
    let stack = capture_stack(slow, heap, caller);
    let mut sampler = SAMPLER.lock(slow);
    let slot = sampler.record(heap, &stack, p as u64, &due);
    let passed = sampler.labels.has_passed();
    drop(sampler);
    if passed {
        tell(slow, heap);
    }
    slot
}

/// Frees a block of a sampled slab.
#[cold]
pub fn free_block(slow: SlowPath, slab: &'static Slab, block: BlockPtr) {
    let idle = free_in_slab(slow, slab, block);
    if idle >= keeper::IDLE_MIN {
        release_later(slow, idle);
    }
}

/// Has idle memory go back: by the scavenger, or at once where there is none for it.
#[cold]
#[inline(never)]
fn release_later(slow: SlowPath, idle: usize) {
    keeper::notice(slow, idle);
    if idle >= keeper::retained() {
        release_empty(slow);
        release_records(slow, |_| 0);
    }
}

/// Returns the bytes of sampled slabs that hold no block then, and of records that nobody needs.
fn free_in_slab(slow: SlowPath, slab: &'static Slab, block: BlockPtr) -> usize {
    let mut sampler = SAMPLER.lock(slow);
    misuse::check_start(slab, block);
    if !sampled_slabs::was_cut(slab, block) {
        misuse::invalid(block.address());
    }
    let slot = slot(slab, block.address()).replace(FREE);
    if slot == FREE {
        misuse::freed_before(block.address(), slab.class.get().block());
    }
    sampler.forget(slot);
    counters::class_add(slab.class.get(), ClassCounter::SharedFrees, 1);
    let (empty, gone) = sampler.slabs.free(slab, block);
    let idle = empty + sampler.live.empty_bytes();
    drop(sampler);
    if let Some(slab) = gone {
        // Whole: the next sample of its size is to find room in it.
        give_back::span(slow, slab);
    }
    idle
}

/// Gives the memory of sampled blocks back that nobody uses.
pub fn release_empty(slow: SlowPath) {
    SAMPLER.lock(slow).slabs.release_empty(slow);
}

/// Gives memory of records back that nobody needs, smoothly over `delay_ms`.
/// Returns the bytes that stay and are still to go.
pub fn release_idle_records(slow: SlowPath, now_ms: u64, delay_ms: u64) -> usize {
    release_records(slow, |live| live.allowed(now_ms, delay_ms))
}

/// Gives it back, but for as many bytes as `allowed` says at first. Returns these.
fn release_records(slow: SlowPath, allowed: impl FnOnce(&mut LiveTable) -> usize) -> usize {
    let allowed = allowed(&mut SAMPLER.lock(slow).live);
    // The lock is let go again and again: samples wait for it.
    loop {
        let mut sampler = SAMPLER.lock(slow);
        // What a forked child's parent has in its segment is not the child's to give back.
        let Some(segment) = sampler.segment.filter(|_| own_segment()) else { return 0 };
        if !sampler.live.release(&segment, allowed) {
            return allowed;
        }
    }
}

/// Takes a large block's record out.
#[cold]
pub fn free_large(slow: SlowPath, slot: u32) {
    let mut sampler = SAMPLER.lock(slow);
    sampler.forget(slot);
    sampler.growing.leave(slot);
}

/// Gives back addresses that are reserved for records, before the address space is limited to `limit` bytes.
pub fn fit(slow: SlowPath, limit: usize) {
    let mut sampler = SAMPLER.lock(slow);
    // A forked child's first sample makes a segment that fits.
    if let Some(segment) = sampler.segment.filter(|_| own_segment()) {
        segment.fit(limit);
        sampler.live.fit(&segment);
    }
}

/// Samples of this process that found no room in the live table.
pub fn dropped(slow: SlowPath) -> u64 {
    SAMPLER.lock(slow).segment.map_or(0, |segment| segment.header().dropped_live)
}

/// To be called before the process changes who it is, or where its paths lead: it may find its segment's file by them no
/// more.
pub fn keep_segment_open(slow: SlowPath) {
    let _sampler = SAMPLER.lock(slow);
    segment::keep_open(own_segment());
}

/// Makes the segment of a forked child, which otherwise comes with its first sample.
pub fn begin_segment(slow: SlowPath) {
    SAMPLER.lock(slow).own_segment();
}

impl Sampler {
    /// The segment to record in; a forked child makes its own first.
    #[inline]
    fn own_segment(&mut self) -> Option<Segment> {
        if own_segment() { self.segment } else { self.begin_child() }
    }

    #[cold]
    #[inline(never)]
    fn begin_child(&mut self) -> Option<Segment> {
        let parent = self.segment.take();
        Segment::detach();
        self.identity.generation =
            self.identity.generation.wrapping_add(u64::from(os::process_id()) << 20) ^ os::random_seed();
        self.identity.forked = true;
        // Whatever comes of it: it is tried once.
        mark_own();
        census::note_child();
        // A forked child's first sample may be on a small stack.
        let mut segment = aside(|| Segment::create(self.identity))?;
        if let Some(parent) = parent
            && !self.inherit(&parent, &segment)
        {
            segment.discard();
            segment = Segment::in_memory(self.identity)?;
            if !self.inherit(&parent, &segment) {
                return None;
            }
        }
        write_classes(&segment);
        segment.publish();
        self.segment = Some(segment);
        self.catch_up();
        // What the parent's threads allocated is in the child, too; of them, only the one that forked is.
        heaps::for_each_heap(|heap| {
            let lives = core::ptr::eq(heap, thread_pointer::home());
            publish_thread(heap, if lives { thread_state::LIVE } else { thread_state::EXITED });
            publish_classes(heap);
        });
        self.segment
    }

    /// Copies what a forked child has from its parent. False if its segment has no room for the stacks, which blocks
    /// that live already point at.
    fn inherit(&mut self, parent: &Segment, segment: &Segment) -> bool {
        if !self.stacks.copy_to(parent, segment) {
            return false;
        }
        // The memory of devices stays with the parent: a driver is of no use in a forked child.
        for at in 0..self.live.len() {
            if self.live.get(at).is_some_and(|record| record.kind != kind::NONE && record.kind != kind::HOST) {
                self.live.drop_unpublished(at);
            }
        }
        self.live.publish_all(segment);
        self.peaks = Peaks::new();
        for at in 0..self.live.len() {
            if let Some(record) = self.live.get(at).filter(|record| record.kind != kind::NONE) {
                count_alloc(segment, record.stack, record.size, record.weight);
                self.peaks.grew(HOST, bytes(record.size, record.weight));
            }
        }
        self.modules.restart();
        if segment.commit(Region::Threads, self.threads) {
            segment.raise_count(Region::Threads, self.threads);
        }
        true
    }

    fn record(&mut self, heap: &Heap, stack: &Stack, address: u64, due: &Due) -> u32 {
        heap.sampling.samples.set(heap.sampling.samples.get() + 1);
        counters::add(TierCounter::Samples, 1);
        let Some(segment) = self.own_segment() else { return UNRECORDED };
        publish_samples(&segment, heap);
        self.modules.publish(&segment, self.stacks.len());
        let id = if heap.sampling.marks.is_any() {
            self.intern_marked(segment, heap, stack, due)
        } else {
            let captured = self.captured(stack, due);
            self.stacks.intern(&segment, &captured, recent_stacks::shelf)
        };
        count_alloc(&segment, id, due.size as u64, due.weight);
        self.peaks.grew((due.kind, due.device), bytes(due.size as u64, due.weight));
        if due.kind == kind::HOST {
            probes::allocated(address, due.size as u64, bytes(due.size as u64, due.weight));
        }
        let record = LiveRecord {
            stack: id,
            address,
            size: due.size as u64,
            weight: due.weight,
            // A forked child's first sample makes the segment after its time was taken. What is older than the segment
            // is the parent's.
            time_ns: due.time_ns.max(segment.header().start_monotonic_ns),
            tid: heap.registration.thread_id.get(),
            scope: self.scopes.of_record(heap.sampling.scope.get()),
            kind: due.kind,
            device: due.device,
            verdict: if heap.sampling.ignores.get() > 0 { verdict::IGNORED } else { verdict::NONE },
            ..LiveRecord::ZERO
        };
        self.scopes.took(record.scope, record.size);
        self.live.insert(&segment, record)
    }

    #[inline(always)]
    fn captured<'a>(&self, stack: &'a Stack, due: &Due) -> CapturedStack<'a> {
        let (frames, flags, epoch) = (stack.frames(), stack.flags(), self.modules.epoch());
        CapturedStack { frames, label: &[], flags, kind: due.kind, device: due.device, epoch }
    }

    /// The index of a stack under a label, or one in which an interpreter may have run functions.
    #[cold]
    #[inline(never)]
    fn intern_marked(&mut self, segment: Segment, heap: &Heap, stack: &Stack, due: &Due) -> u32 {
        let label = heap.sampling.marks.label();
        let words = if label == 0 { &[] } else { self.labels.words(label) };
        let calls = if heap.sampling.marks.has_script() { stack.calls() } else { None };
        let captured = CapturedStack { label: words, ..self.captured(stack, due) };
        let Sampler { functions, stacks, .. } = self;
        let id = match calls {
            Some(calls) => functions.intern(&segment, stacks, (&captured, stack.hash()), calls),
            None => functions.intern_bare(&segment, stacks, &captured),
        };
        if label != 0 {
            self.labels.took(label, id, bytes(due.size as u64, due.weight));
        }
        id
    }

    fn forget(&mut self, slot: u32) {
        let Some(segment) = self.own_segment() else { return };
        // Memory is about to fall.
        self.catch_up();
        if let Some(record) = self.live.remove(&segment, slot) {
            let memory = (record.kind, record.device);
            self.peaks.shrinks(&segment, self.stacks.len(), memory, bytes(record.size, record.weight));
            count_free(&segment, record.stack, record.size, record.weight);
            self.labels.changed(record.stack, bytes(record.size, record.weight), 0);
            self.scopes.gave(record.scope, record.size);
            probes::freed(record.address);
        }
    }
}

/// Publishes the modules that capture has seen since the last time. No lock that comes after the sampler's is held.
pub fn publish_modules(slow: SlowPath) {
    static PUBLISHED: AtomicU64 = AtomicU64::new(0);
    let generation = poolscope_capture::module_generation();
    if PUBLISHED.swap(generation, Ordering::Relaxed) == generation {
        return;
    }
    let mut sampler = SAMPLER.lock(slow);
    let Some(segment) = sampler.own_segment() else { return };
    let stacks = sampler.stacks.len();
    sampler.modules.publish(&segment, stacks);
}

/// Makes room for a new heap's record and writes it.
pub fn add_thread(slow: SlowPath, heap: &Heap) {
    {
        let mut sampler = SAMPLER.lock(slow);
        sampler.threads = sampler.threads.max(heap.registration.index.get() + 1);
        if let Some(segment) = sampler.segment.filter(|_| own_segment())
            && segment.commit(Region::Threads, heap.registration.index.get() + 1)
        {
            segment.raise_count(Region::Threads, heap.registration.index.get() + 1);
        }
    }
    publish_thread(heap, thread_state::LIVE);
}

/// Brings the segment up to date with the process.
pub fn publish_all(slow: SlowPath) {
    // A forked child makes its own segment first.
    let mut sampler = SAMPLER.lock(slow);
    let Some(segment) = sampler.own_segment() else { return };
    sampler.catch_up();
    drop(sampler);
    write_classes(&segment);
    census::take(slow);
}

/// The lock, for `fork`.
pub fn fork_lock() -> &'static dyn ForkLock {
    &*SAMPLER
}
