//! Sampling: which allocations are recorded, with their stack, and where.
//!
//! The thread cache cuts its lists so that the allocation that holds the next sampled byte enters the slow path
//! ([`budget`]); that one comes here. [`sample_block`] captures the stack before it takes any lock, then serves the
//! block from a slab of sampled blocks and records it in the live table and in the totals of its stack. Everything
//! behind the lock is rare: once in half a mebibyte, unless every allocation is recorded.

pub mod budget;
mod live_table;
mod modules;
mod sampled_slabs;
mod stack_table;

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use poolscope_capture::{Captured, MAX_DEPTH, capture};
use poolscope_wire::{
    ClassCounters, ClassRecord, LiveRecord, OBJECT_ONE, Region, TIER_COUNTERS, ThreadRecord, kind, stack_flags,
    thread_state,
};

use crate::block::BlockPtr;
use crate::os;
use crate::segment::Segment;
use crate::settings::Settings;
use crate::size_class::{CLASSES, SizeClass, TABLE};
use crate::slab::Slab;
use crate::spin_lock::{SlowPath, SpinLock};
use crate::stats::{self, TierCounter};
use crate::thread_cache::Heap;
use crate::thread_pointer;

use live_table::LiveTable;
use sampled_slabs::{SampledSlabs, UNRECORDED, slot};
use stack_table::{CapturedStack, StackTable, count_alloc, count_free, count_resize};

struct Sampler {
    settings: Settings,
    segment: Option<Segment>,
    stacks: StackTable,
    live: LiveTable,
    slabs: SampledSlabs,
    modules: modules::Published,
    /// Heaps that have a record in the segment.
    threads: u32,
}

// SAFETY: only reached under the lock below.
unsafe impl Send for Sampler {}

static SAMPLER: SpinLock<Sampler> = SpinLock::new(Sampler {
    settings: Settings::default(),
    segment: None,
    stacks: StackTable::new(),
    live: LiveTable::new(),
    slabs: SampledSlabs::new(),
    modules: modules::Published::new(),
    threads: 0,
});

/// Mean bytes between two samples.
static PERIOD: AtomicU64 = AtomicU64::new(crate::settings::DEFAULT_PERIOD);
/// A word that is 1 in the process that made the segment and 0 in its forked children.
static OWN_SEGMENT: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());

/// Begins sampling: called once, by the first thread that allocates.
pub fn start(slow: SlowPath, settings: Settings) {
    PERIOD.store(settings.period, Ordering::Relaxed);
    let mut sampler = SAMPLER.lock(slow);
    sampler.settings = settings;
    OWN_SEGMENT.store(os::map_wiped_on_fork().cast(), Ordering::Release);
    let Some(segment) = Segment::create(&settings, false) else { return };
    write_classes(&segment);
    segment.publish();
    mark_own();
    let Sampler { stacks, live, .. } = &mut *sampler;
    if stacks.start(&segment) && live.start(&segment) {
        sampler.segment = Some(segment);
    }
}

/// At a normal exit of the process.
pub fn finish(slow: SlowPath) {
    publish_tiers();
    // A signal handler may end the process while this thread has the lock: then the segment stays.
    let Some(sampler) = SAMPLER.try_lock(slow) else { return };
    // A child of `vfork` runs in its parent's memory, but it is not the process of this segment.
    if let Some(segment) = sampler.segment.filter(|_| own_segment())
        && segment.header().pid == os::process_id()
    {
        crate::segment::finish(&sampler.settings);
    }
}

fn mark_own() {
    let word = OWN_SEGMENT.load(Ordering::Relaxed);
    if !word.is_null() {
        // SAFETY: the word is a mapped page.
        unsafe { (*word).store(1, Ordering::Release) };
    }
}

/// Whether the segment is this process's own, and not that of the parent it was forked from.
fn own_segment() -> bool {
    let word = OWN_SEGMENT.load(Ordering::Relaxed);
    // SAFETY: the word is a mapped page, or there is none (then forks are noticed by `fork_child` alone).
    word.is_null() || unsafe { (*word).load(Ordering::Relaxed) == 1 }
}

/// Whether every allocation of this heap is to be recorded.
#[inline]
pub fn records_all(heap: &Heap) -> bool {
    heap.scope.get() != 0 || PERIOD.load(Ordering::Relaxed) <= 1
}

/// Starts the budgets of a new heap.
pub fn start_heap(heap: &Heap) {
    heap.random.set((os::random_seed() ^ heap.tag() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for class in 0..CLASSES {
        heap.budget[class].set(draw(heap));
    }
    heap.large_budget.set(draw(heap));
}

/// Bytes to this heap's next sample of a class.
pub fn draw(heap: &Heap) -> i64 {
    let mut state = heap.random.get();
    let bytes = budget::draw(&mut state, PERIOD.load(Ordering::Relaxed).max(1));
    heap.random.set(state);
    bytes
}

/// Objects that a sampled block of `bytes` bytes stands for in this heap.
pub fn weight(heap: &Heap, bytes: usize) -> u64 {
    if records_all(heap) { OBJECT_ONE } else { budget::weight(bytes, PERIOD.load(Ordering::Relaxed)) }
}

/// The calling thread's stack.
struct Stack {
    frames: [u64; MAX_DEPTH],
    captured: Captured,
}

/// Captures the stack with this thread's heap in place: capture may allocate (when a module is seen first), and such
/// allocations are served but not sampled. No lock is held.
#[inline(never)]
fn capture_stack(heap: &'static Heap) -> Stack {
    let mut frames = [0; MAX_DEPTH];
    let before = thread_pointer::get();
    thread_pointer::set((&raw const *heap).cast_mut());
    heap.in_sampler.set(true);
    // SAFETY: the state belongs to this thread's heap, and nested captures are ruled out by `in_sampler`.
    let captured = capture(unsafe { &mut *heap.capture.get() }, &mut frames);
    heap.in_sampler.set(false);
    thread_pointer::set(before);
    if records_all(heap) {
        heap.empty_lists();
    }
    Stack { frames, captured }
}

/// Serves and records a sampled request of `size` bytes from `class`. `None` without memory.
#[cold]
pub fn sample_block(slow: SlowPath, heap: &'static Heap, class: SizeClass, size: usize) -> Option<*mut u8> {
    let stack = capture_stack(heap);
    let weight = weight(heap, class.block());
    let mut sampler = SAMPLER.lock(slow);
    let (slab, block) = sampler.slabs.alloc(slow, class)?;
    let p = block.address();
    slot(slab, p).set(sampler.record(heap, &stack, p, size, weight));
    Some(p)
}

/// Records a large block of `size` bytes at `p`; its slot in the live table.
#[cold]
pub fn sample_large(slow: SlowPath, heap: &'static Heap, p: *mut u8, size: usize, block: usize) -> u32 {
    let stack = capture_stack(heap);
    let weight = weight(heap, block);
    SAMPLER.lock(slow).record(heap, &stack, p, size, weight)
}

/// Frees a block of a sampled slab.
#[cold]
pub fn free_block(slow: SlowPath, slab: &'static Slab, block: BlockPtr) {
    let mut sampler = SAMPLER.lock(slow);
    let slot = slot(slab, block.address()).replace(UNRECORDED);
    sampler.forget(slot);
    sampler.slabs.free(slab, block);
}

/// Takes a large block's record out.
#[cold]
pub fn free_large(slow: SlowPath, slot: u32) {
    SAMPLER.lock(slow).forget(slot);
}

/// Notes that a sampled block changed its size in place.
#[cold]
pub fn resize_block(slow: SlowPath, slab: &'static Slab, p: *mut u8, size: usize) {
    let mut sampler = SAMPLER.lock(slow);
    let slot = slot(slab, p).get();
    sampler.resize(slot, size);
}

/// Notes that a sampled large block changed its size in place.
#[cold]
pub fn resize_large(slow: SlowPath, slot: u32, size: usize) {
    SAMPLER.lock(slow).resize(slot, size);
}

/// Calls `f` with each live record of a scope of the leak checker, and with the frames of its stack.
pub fn visit_scope(slow: SlowPath, scope: u32, mut f: impl FnMut(&LiveRecord, &[u64])) {
    let sampler = SAMPLER.lock(slow);
    let Some(segment) = sampler.segment else { return };
    for slot in 0..sampler.live.len() {
        let Some(record) = sampler.live.get(slot) else { continue };
        if record.kind != kind::NONE && record.scope == scope {
            f(record, stack_table::frames(&segment, record.stack));
        }
    }
}

/// Samples of this process that found no room in the live table.
pub fn dropped(slow: SlowPath) -> u64 {
    SAMPLER.lock(slow).segment.map_or(0, |segment| segment.header().dropped_live)
}

impl Sampler {
    /// The segment to record in; a forked child makes its own first.
    fn own_segment(&mut self) -> Option<Segment> {
        if own_segment() {
            return self.segment;
        }
        let parent = self.segment.take();
        Segment::detach();
        self.settings.generation =
            self.settings.generation.wrapping_add(u64::from(os::process_id()) << 20) ^ os::random_seed();
        // Whatever comes of it: it is tried once.
        mark_own();
        let mut segment = Segment::create(&self.settings, true)?;
        if let Some(parent) = parent
            && !self.inherit(&parent, &segment)
        {
            segment.discard();
            segment = Segment::in_memory(&self.settings, true)?;
            if !self.inherit(&parent, &segment) {
                return None;
            }
        }
        write_classes(&segment);
        segment.publish();
        self.segment = Some(segment);
        self.segment
    }

    /// Copies what a forked child has from its parent. False if its segment has no room for the stacks, which blocks
    /// that live already point at.
    fn inherit(&mut self, parent: &Segment, segment: &Segment) -> bool {
        if !self.stacks.copy_to(parent, segment) {
            return false;
        }
        self.live.publish_all(segment);
        for at in 0..self.live.len() {
            if let Some(record) = self.live.get(at).filter(|record| record.kind != kind::NONE) {
                count_alloc(segment, record.stack, record.size, record.weight);
            }
        }
        self.modules.restart();
        if segment.commit(Region::Threads, self.threads) {
            segment.raise_count(Region::Threads, self.threads);
        }
        true
    }

    fn record(&mut self, heap: &Heap, stack: &Stack, p: *mut u8, size: usize, weight: u64) -> u32 {
        heap.samples.set(heap.samples.get() + 1);
        stats::add(TierCounter::Samples, 1);
        let Some(segment) = self.own_segment() else { return UNRECORDED };
        let flags = if stack.captured.truncated { stack_flags::TRUNCATED } else { 0 }
            | if stack.captured.incomplete { stack_flags::INCOMPLETE } else { 0 };
        self.modules.publish(&segment, self.stacks.len());
        let frames = stack.frames.get(..stack.captured.depth).unwrap_or(&stack.frames);
        let captured = CapturedStack { frames, flags, epoch: self.modules.epoch() };
        let id = self.stacks.intern(&segment, &captured);
        count_alloc(&segment, id, size as u64, weight);
        let record = LiveRecord {
            stack: id,
            address: p as u64,
            size: size as u64,
            weight,
            time_ns: os::clock_ns(libc::CLOCK_MONOTONIC),
            tid: heap.thread_id.get(),
            scope: heap.scope.get(),
            kind: kind::HOST,
            ..LiveRecord::ZERO
        };
        self.live.insert(&segment, record)
    }

    fn forget(&mut self, slot: u32) {
        let Some(segment) = self.own_segment() else { return };
        if let Some(record) = self.live.remove(&segment, slot) {
            count_free(&segment, record.stack, record.size, record.weight);
        }
    }

    fn resize(&mut self, slot: u32, size: usize) {
        let Some(segment) = self.own_segment() else { return };
        if let Some(before) = self.live.resize(&segment, slot, size as u64) {
            count_resize(&segment, before.stack, before.size, size as u64, before.weight);
        }
    }
}

fn write_classes(segment: &Segment) {
    for (index, info) in TABLE.iter().enumerate() {
        let record = ClassRecord {
            block_bytes: info.block,
            slab_bytes: info.slab_pages * crate::arena::PAGE as u32,
            slab_blocks: info.capacity,
            reserved: 0,
        };
        // SAFETY: the page that holds all classes was committed when the segment was made.
        unsafe { segment.record::<ClassRecord>(Region::Classes, index as u32).write(record) };
    }
    segment.raise_count(Region::Classes, CLASSES as u32);
    segment.raise_count(Region::Tiers, TIER_COUNTERS.len() as u32);
}

/// Makes room for a new heap's record and writes it.
pub fn add_thread(slow: SlowPath, heap: &Heap) {
    {
        let mut sampler = SAMPLER.lock(slow);
        sampler.threads = sampler.threads.max(heap.index.get() + 1);
        if let Some(segment) = sampler.segment.filter(|_| own_segment())
            && segment.commit(Region::Threads, heap.index.get() + 1)
        {
            segment.raise_count(Region::Threads, heap.index.get() + 1);
        }
    }
    publish_thread(heap, thread_state::LIVE);
}

/// A heap's record in the segment, if there is one to write to.
fn thread_record(heap: &Heap) -> Option<*mut ThreadRecord> {
    let segment = Segment::current().filter(|_| own_segment())?;
    let index = heap.index.get();
    segment.is_committed(Region::Threads, index + 1).then(|| segment.record(Region::Threads, index))
}

/// Publishes what a heap says of its thread.
pub fn publish_thread(heap: &Heap, state: u32) {
    let Some(record) = thread_record(heap) else { return };
    // SAFETY: the record is committed, and this thread is its writer.
    unsafe {
        (*record).tid = heap.thread_id.get();
        (*record).uses = heap.uses.get();
        (*record).samples = heap.samples.get();
        (*record).state = state;
    }
}

/// Publishes a heap's counters of one class.
#[inline]
pub fn publish_class(heap: &Heap, class: SizeClass) {
    let Some(record) = thread_record(heap) else { return };
    let count = &heap.counts[class.index()];
    let counters = ClassCounters { allocs: count.allocs.get(), frees: count.frees.get(), refills: count.refills.get() };
    // SAFETY: the counters follow the record; this thread is their writer.
    unsafe { record.add(1).cast::<ClassCounters>().add(class.index()).write(counters) };
}

/// Publishes the process-wide counters.
pub fn publish_tiers() {
    let Some(segment) = Segment::current().filter(|_| own_segment()) else { return };
    for counter in TierCounter::ALL {
        // SAFETY: the page that holds all counters was committed when the segment was made; single words, of which
        // the last written wins.
        unsafe {
            segment.record::<u64>(Region::Tiers, *counter as u32).write_volatile(stats::get(*counter));
        }
    }
}

/// For `fork`: takes the lock.
pub fn lock_for_fork() {
    SAMPLER.lock_raw();
}

/// For `fork`: lets it go, in parent and child.
pub fn unlock_after_fork() {
    SAMPLER.unlock_raw();
}

/// In a forked child, under the lock: the segment is the parent's, also where the kernel can't wipe the word.
pub fn disown_segment() {
    let word = OWN_SEGMENT.load(Ordering::Relaxed);
    if word.is_null() {
        Segment::detach();
    } else {
        // SAFETY: the word is a mapped page.
        unsafe { (*word).store(0, Ordering::Release) };
    }
}
