//! A thread's part of a trace: its ring, and its table of stacks.

use core::sync::atomic::{AtomicU64, AtomicUsize};

use poolscope_capture::{Caller, Footprints, MAX_DEPTH, Trail, capture_quickly, complete, hash};
use poolscope_wire::trace::{
    BATCH, DEVICE_WORDS, DeviceEvent, RingHeader, STACK_SLOTS, TRACE_PAGE, alloc_word, free_word, stack_word, tag,
    value_word,
};

use super::ring::{Cursor, Ring};
use super::scripts::Scripts;
use super::session;
use crate::entry::capture;
use crate::kernel::os;
use crate::sampler;
use crate::script::{Calls, InStack};
use crate::sync::spin_lock::SlowPath;
use crate::tiers::thread_cache::Heap;

/// Words of the longest event but a stack.
const EVENT_WORDS: usize = 2;
/// Stacks that have one place in the table.
const WAYS: usize = 4;
const SETS: usize = STACK_SLOTS / WAYS;

/// The recorder is called when this part of the ring waits for it: then it has the rest of it to come in.
const CALLED_AT: usize = 8;

/// After so many batches, a stack is captured without the rules: modules that were replaced are noticed then.
const CONFIRM_EVERY: u32 = 16;

/// What a thread needs to trace. In memory that a forked child finds zeroed (`MADV_WIPEONFORK`), so that it does not go
/// on with its parent's. Made for a heap when it is first needed, and kept for as long as the heap.
#[repr(C)]
pub struct ThreadTrace {
    /// The request that the ring is part of; 0 without one.
    request: u64,
    /// Where the writer is.
    cursor: Cursor,
    ring: *mut RingHeader,
    ring_words: usize,
    /// Frees are to have stacks.
    free_stacks: bool,
    lossless: bool,
    /// Events since the last time was noted.
    events: u32,
    batches: u32,
    tid: u32,
    /// Events lost since the last one that found room.
    lost: u64,
    /// How far the ring could be written when the recorder was last called.
    called_at: usize,
    /// An address that no rule is known for, whatever was tried.
    unruly: usize,
    /// The next way to be used anew, of any set.
    victim: u32,
    frames: [u64; MAX_DEPTH],
    /// Those are the frames of the stack that was looked at last, so many, with these flags.
    has_frames: Option<(usize, u16)>,
    trail: Trail,
    footprints: Footprints,
    /// Hashes of the stacks that the slots mean; 0 for none.
    stacks: [[u64; WAYS]; SETS],
    /// A bit for each slot that the footprints may know.
    learned: [u64; STACK_SLOTS / 64],
    scripts: Scripts,
}

impl ThreadTrace {
    fn shared(&self) -> Ring<'static> {
        // SAFETY: the ring is mapped as long as this has it, `ring_words` words long behind its header; words are
        // shared with another process, which is what atomics are for.
        unsafe {
            let ring = self.ring;
            Ring {
                head: AtomicUsize::from_ptr((&raw mut (*ring).head).cast()),
                tail: AtomicUsize::from_ptr((&raw mut (*ring).tail).cast()),
                tail_check: AtomicUsize::from_ptr((&raw mut (*ring).tail_check).cast()),
                words: core::slice::from_raw_parts(ring.byte_add(TRACE_PAGE).cast(), self.ring_words),
            }
        }
    }

    /// Whether the next event will be lost as the last one was, because the ring is still full. Now and then such an
    /// event takes the long way all the same, which looks whether the recorder still lives.
    #[cold]
    fn is_still_full(&mut self) -> bool {
        let ring = self.shared();
        !self.lost.is_multiple_of(BATCH.into()) && !ring.has_room(&mut self.cursor, 2 + EVENT_WORDS)
    }

    /// Calls the recorder, which sleeps until so much waits for it, or for a tenth of a second. Once for each time that
    /// it has come.
    fn call_recorder(&mut self) {
        let ring = self.shared();
        let calls_for_it = |cursor: &Cursor| ring.waiting(cursor) >= ring.words.len() / CALLED_AT;
        if calls_for_it(&self.cursor)
            && ring.look(&mut self.cursor)
            && calls_for_it(&self.cursor)
            && self.called_at != self.cursor.limit
        {
            self.called_at = self.cursor.limit;
            session::call_recorder();
        }
    }

    fn count_lost(&mut self, is_free: bool) {
        self.lost += 1;
        // SAFETY: the ring is mapped, and its counters are this thread's.
        unsafe {
            let counter = if is_free { &raw mut (*self.ring).lost_frees } else { &raw mut (*self.ring).lost_allocs };
            counter.write_volatile(counter.read_volatile() + 1);
        }
    }
}

/// What the tracer keeps of the thread that has a heap: the heap knows nothing of it but where it lies.
#[inline(always)]
fn trace_word(heap: &Heap) -> *mut ThreadTrace {
    heap.calls.trace.get().cast()
}

/// The trace of the thread that is in the slow path with this heap, with a ring of the session that is on. `None` if
/// there is none to be had.
#[expect(clippy::mut_from_ref, reason = "a heap's trace is its thread's alone, which has it once at a time")]
#[inline(always)]
fn trace_of(heap: &'static Heap, slow: SlowPath) -> Option<&'static mut ThreadTrace> {
    let trace = trace_word(heap);
    // SAFETY: the heap's own, which only its thread touches, and that is here only once at a time.
    if let Some(trace) = unsafe { trace.as_mut() }
        && trace.request == session::current()
        && trace.request != 0
        && trace.tid == heap.registration.thread_id.get()
    {
        return Some(trace);
    }
    attach(heap, slow)
}

/// An allocation that is to be traced.
pub struct Alloc {
    trace: &'static mut ThreadTrace,
    /// `None` if there will be no room for it.
    slot: Option<u32>,
}

/// Looks at the stack of an allocation that is about to be traced, which begins at `caller`.
/// Nothing else is traced before it.
#[inline(always)]
pub fn begin_alloc(heap: &'static Heap, slow: SlowPath, caller: Caller) -> Option<Alloc> {
    let trace = trace_of(heap, slow)?;
    let is_lost = trace.lost > 0 && trace.is_still_full();
    let slot = if is_lost { None } else { Some(stack_slot(heap, slow, trace, caller)) };
    Some(Alloc { trace, slot })
}

/// Traces a block of `size` bytes at `p`.
#[inline(always)]
pub fn note_alloc(event: Option<Alloc>, slow: SlowPath, p: *mut u8, size: usize) {
    let Some(Alloc { trace, slot }) = event else { return };
    let Some(slot) = slot else { return trace.count_lost(false) };
    if !begin(slow, trace, EVENT_WORDS, false) {
        return;
    }
    let ring = trace.shared();
    ring.put(&mut trace.cursor, alloc_word(p.addr() as u64, slot));
    ring.put(&mut trace.cursor, size as u64);
    ring.publish(&trace.cursor);
}

/// Traces the free of the block at `p`, which is about to be free. The time is noted anew if the block may be another
/// thread's (`of_others`): the order of events is only certain within a thread, and within a batch.
#[inline(always)]
pub fn note_free(heap: &'static Heap, slow: SlowPath, p: *mut u8, of_others: bool) {
    let Some(trace) = trace_of(heap, slow) else { return };
    if trace.lost > 0 && trace.is_still_full() {
        return trace.count_lost(true);
    }
    if of_others {
        trace.events = 0;
    }
    let slot = if trace.free_stacks { slot_of_free(heap, slow, trace) } else { 0 };
    if !begin(slow, trace, 1, true) {
        return;
    }
    let ring = trace.shared();
    ring.put(&mut trace.cursor, free_word(p.addr() as u64, slot));
    ring.publish(&trace.cursor);
}

/// Traces a block of a device's memory, with the stack that leads to `caller`. A thread may be the only one that uses
/// the device, and come by seldom: each event has its own time.
/// It is also what keeps the frees of others' blocks in order.
#[inline(never)]
pub fn note_device(heap: &'static Heap, slow: SlowPath, event: DeviceEvent, caller: Caller) {
    let Some(trace) = trace_of(heap, slow) else { return };
    let is_free = event.size.is_none();
    if trace.lost > 0 && trace.is_still_full() {
        return trace.count_lost(is_free);
    }
    let slot = match (is_free, trace.free_stacks) {
        (true, false) => 0,
        (true, true) => slot_without_calls(heap, slow, trace, caller),
        (false, _) => stack_slot(heap, slow, trace, caller),
    };
    trace.events = 0;
    if !begin(slow, trace, DEVICE_WORDS, is_free) {
        return;
    }
    let (words, len) = DeviceEvent { slot, ..event }.to_words();
    let ring = trace.shared();
    words.iter().take(len).for_each(|&word| ring.put(&mut trace.cursor, word));
    ring.publish(&trace.cursor);
}

/// Makes room for an event of `words` words, and notes the time when it is due. False if the event is lost,
/// and counted.
#[inline(always)]
fn begin(slow: SlowPath, trace: &mut ThreadTrace, words: usize, is_free: bool) -> bool {
    if trace.events == 0 || trace.cursor.limit.wrapping_sub(trace.cursor.head) < words + 2 || trace.lost > 0 {
        return begin_slowly(slow, trace, words, is_free);
    }
    trace.events -= 1;
    true
}

#[cold]
#[inline(never)]
fn begin_slowly(slow: SlowPath, trace: &mut ThreadTrace, words: usize, is_free: bool) -> bool {
    let now = os::clock_ns(libc::CLOCK_MONOTONIC);
    session::look(slow, now);
    if trace.request != session::current() {
        return false;
    }
    trace.call_recorder();
    if !make_room(slow, trace, words + 2) {
        trace.count_lost(is_free);
        return false;
    }
    let ring = trace.shared();
    if trace.lost > 0 {
        ring.put(&mut trace.cursor, value_word(tag::LOST, core::mem::take(&mut trace.lost)));
    }
    ring.put(&mut trace.cursor, value_word(tag::TIME, now));
    trace.events = BATCH - 1;
    trace.batches = trace.batches.wrapping_add(1);
    true
}

/// Makes room for `words` words. False if there is none, and it is not to be waited for.
fn make_room(slow: SlowPath, trace: &mut ThreadTrace, words: usize) -> bool {
    let ring = trace.shared();
    if ring.has_room(&mut trace.cursor, words) {
        return true;
    }
    if !trace.lossless {
        return false;
    }
    // SAFETY: the ring is mapped, and the counter is this thread's.
    unsafe {
        let waits = &raw mut (*trace.ring).waits;
        waits.write_volatile(waits.read_volatile() + 1);
    }
    let request = trace.request;
    session::wait_for_reader(slow, request, || ring.has_room(&mut trace.cursor, words))
}

/// The slot of the stack that leads here, without an interpreter's calls: while CPython ends one, what it has of it may
/// be half freed.
#[inline(never)]
fn slot_of_free(heap: &'static Heap, slow: SlowPath, trace: &mut ThreadTrace) -> u32 {
    slot_without_calls(heap, slow, trace, Caller::here())
}

/// The slot of the stack that begins at `caller`, whatever an interpreter runs in it.
fn slot_without_calls(heap: &'static Heap, slow: SlowPath, trace: &mut ThreadTrace, caller: Caller) -> u32 {
    let slot = frames_slot(heap, slow, trace, caller);
    if trace.scripts.are_there() && slot != 0 {
        return slot_with_calls(heap, slow, trace, slot, caller.pc, caller.sp, caller.fp, None);
    }
    slot
}

/// The slot of the stack that begins at `caller`, with the calls that an interpreter runs in it; the ring gets its
/// words if they are not there yet. 0 if the stack could not be traced.
#[inline(always)]
fn stack_slot(heap: &'static Heap, slow: SlowPath, trace: &mut ThreadTrace, caller: Caller) -> u32 {
    let slot = frames_slot(heap, slow, trace, caller);
    if trace.scripts.are_there() && slot != 0 {
        capture::read_calls(heap, trace.scripts.of(slot));
        return slot_with_calls(heap, slow, trace, slot, caller.pc, caller.sp, caller.fp, capture::calls(heap));
    }
    slot
}

/// The slot of a stack with the calls that an interpreter runs in it, if one does, of which `frames_slot` is the one
/// of the frames alone: that is never told where there may be calls.
#[cold]
#[inline(never)]
#[expect(clippy::too_many_arguments, reason = "registers come word by word")]
fn slot_with_calls(
    heap: &'static Heap,
    slow: SlowPath,
    trace: &mut ThreadTrace,
    frames_slot: u32,
    pc: usize,
    sp: usize,
    fp: usize,
    calls: Option<&'static mut Calls>,
) -> u32 {
    let has_frames = trace.has_frames.take();
    let of_frames = trace.stacks[frames_slot as usize / WAYS][frames_slot as usize % WAYS];
    let of_calls = calls.as_ref().map_or(0, |calls| calls.hash());
    let hash = of_frames.rotate_left(1) ^ of_calls;
    known_slot(trace, hash).unwrap_or_else(|| {
        let of_stack = has_frames.unwrap_or_else(|| frames_again(heap, slow, trace, Caller { pc, sp, fp }));
        let calls = calls.filter(|_| of_calls != 0);
        let woven = calls.and_then(|calls| sampler::weave_into(slow, &mut trace.frames, of_stack, calls.get()));
        let (words, flags) = woven.unwrap_or(of_stack);
        tell_stack(slow, trace, words, hash, flags)
    })
}

/// The frames of a stack that has a slot already: how many they are, and their flags.
fn frames_again(heap: &'static Heap, slow: SlowPath, trace: &mut ThreadTrace, caller: Caller) -> (usize, u16) {
    if let Ok(found) = capture_quickly(capture::state(heap), caller, &mut trace.trail, &mut trace.frames) {
        complete(found, &trace.trail, &mut trace.frames);
        return (found.depth, capture::flags(&found.captured()));
    }
    let (depth, _, flags) = capture_fully(heap, slow, trace, caller);
    (depth, flags)
}

/// The slot of the frames alone, which the ring gets unless there may be an interpreter's calls.
#[inline(always)]
fn frames_slot(heap: &'static Heap, slow: SlowPath, trace: &mut ThreadTrace, caller: Caller) -> u32 {
    if trace.batches < CONFIRM_EVERY
        && let Some(slot) = trace.footprints.find(capture::state(heap), caller)
    {
        return slot;
    }
    walk_to_slot(heap, slow, trace, caller.pc, caller.sp, caller.fp)
}

/// The same, of a stack that has to be walked. Registers come word by word: a structure would go through memory in the
/// caller as well.
#[inline(never)]
fn walk_to_slot(heap: &'static Heap, slow: SlowPath, trace: &mut ThreadTrace, pc: usize, sp: usize, fp: usize) -> u32 {
    let caller = Caller { pc, sp, fp };
    let mut attempts = 0;
    loop {
        let state = capture::state(heap);
        let quick = if trace.batches >= CONFIRM_EVERY {
            Err(0)
        } else {
            capture_quickly(state, caller, &mut trace.trail, &mut trace.frames)
        };
        match quick {
            Ok(found) => {
                let flags = capture::flags(&found.captured());
                let hash = with_flags(found.hash, flags);
                let slot = known_slot(trace, hash).unwrap_or_else(|| {
                    complete(found, &trace.trail, &mut trace.frames);
                    new_slot(slow, trace, found.depth, hash, flags)
                });
                trace.learned[slot as usize / 64] |= 1 << (slot % 64);
                trace.footprints.learn(state, caller, slot);
                return slot;
            }
            Err(missing) => {
                let (depth, hash, flags) = capture_fully(heap, slow, trace, caller);
                // There is no rule for it, or it is not the rules.
                if attempts == 2 || missing == trace.unruly {
                    trace.unruly = missing;
                    return known_slot(trace, hash).unwrap_or_else(|| new_slot(slow, trace, depth, hash, flags));
                }
                attempts += 1;
            }
        }
    }
}

/// Where a stack's hash may be: its highest bits hang on all frames.
#[inline(always)]
fn set_of(hash: u64) -> usize {
    (hash >> (u64::BITS - SETS.trailing_zeros())) as usize
}

/// The slot of the stack with this hash, if it has one.
#[inline(always)]
fn known_slot(trace: &ThreadTrace, hash: u64) -> Option<u32> {
    let set = set_of(hash);
    let way = trace.stacks[set].iter().position(|&known| known == hash)?;
    Some((set * WAYS + way) as u32)
}

/// Captures with everything asked, so that the rules are known the next time.
#[cold]
#[inline(never)]
fn capture_fully(heap: &'static Heap, slow: SlowPath, trace: &mut ThreadTrace, caller: Caller) -> (usize, u64, u16) {
    trace.batches = 0;
    let captured = capture::anew(heap, &caller, &mut trace.frames);
    let depth = captured.depth.min(MAX_DEPTH);
    sampler::publish_modules(slow);
    let flags = capture::flags(&captured);
    (depth, with_flags(hash(&trace.frames[..depth]), flags), flags)
}

/// The hash of frames, with the flags of their stack.
#[inline(always)]
fn with_flags(hash: u64, flags: u16) -> u64 {
    hash ^ u64::from(flags).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Gives a stack of frames that is not known a slot, and the ring the frames, unless there may be an
/// interpreter's calls.
#[cold]
#[inline(never)]
fn new_slot(slow: SlowPath, trace: &mut ThreadTrace, depth: usize, hash: u64, flags: u16) -> u32 {
    if trace.scripts.are_there() {
        trace.has_frames = Some((depth, flags));
        let in_stack = InStack::of(trace.frames.get(..depth).unwrap_or(&trace.frames));
        let slot = take_slot(trace, hash);
        trace.scripts.note(slot, in_stack);
        return slot;
    }
    tell_stack(slow, trace, depth, hash, flags)
}

/// Gives a stack a slot, and the ring its frames.
#[cold]
#[inline(never)]
fn tell_stack(slow: SlowPath, trace: &mut ThreadTrace, depth: usize, hash: u64, flags: u16) -> u32 {
    if depth > MAX_DEPTH || hash == 0 || !make_room(slow, trace, 1 + depth) {
        return 0;
    }
    let slot = take_slot(trace, hash);
    let ring = trace.shared();
    ring.put(&mut trace.cursor, stack_word(slot, depth, flags));
    trace.frames.iter().take(depth).for_each(|&frame| ring.put(&mut trace.cursor, frame));
    ring.publish(&trace.cursor);
    slot
}

/// Gives a stack a slot.
fn take_slot(trace: &mut ThreadTrace, hash: u64) -> u32 {
    let set = set_of(hash);
    trace.victim = trace.victim.wrapping_add(1);
    let mut way = trace.stacks[set].iter().position(|&known| known == 0).unwrap_or(trace.victim as usize % WAYS);
    if set == 0 && way == 0 {
        // Slot 0 is no stack.
        way = 1;
    }
    let slot = (set * WAYS + way) as u32;
    trace.stacks[set][way] = hash;
    let (word, bit) = (slot as usize / 64, 1 << (slot % 64));
    if trace.learned[word] & bit != 0 {
        trace.learned[word] &= !bit;
        trace.footprints.forget_slot(slot);
    }
    slot
}

/// Gives the heap a ring of the session that is on, or tells the ring that another thread has the heap now.
#[expect(clippy::mut_from_ref, reason = "a heap's trace is its thread's alone, which has it once at a time")]
#[cold]
#[inline(never)]
fn attach(heap: &'static Heap, slow: SlowPath) -> Option<&'static mut ThreadTrace> {
    if (session::current() == 0 && !session::join(slow)) || session::is_forked_child(slow) {
        return None;
    }
    // It may have ended since: a trace without a ring is of no request, and would be taken for one of this.
    let request = session::current();
    if request == 0 {
        return None;
    }
    if trace_word(heap).is_null() {
        let memory = os::map_all_wiped_on_fork(size_of::<ThreadTrace>());
        if memory.is_null() {
            session::count_without_ring(slow);
            return None;
        }
        heap.calls.trace.set(memory.cast());
    }
    // SAFETY: as in `trace_of`; zeroed memory is a trace without a ring.
    let trace = unsafe { &mut *trace_word(heap) };
    if trace.request != request {
        release(trace);
        let Some(ring) = session::new_ring(slow) else {
            session::count_without_ring(slow);
            return None;
        };
        trace.stacks = [[0; WAYS]; SETS];
        trace.footprints.forget();
        trace.learned = [0; STACK_SLOTS / 64];
        trace.has_frames = None;
        trace.ring = ring.header;
        trace.ring_words = ring.words;
        trace.lossless = ring.wanted.lossless;
        trace.free_stacks = ring.wanted.free_stacks;
        trace.cursor = Cursor { head: 0, limit: ring.words };
        trace.called_at = 0;
        trace.lost = 0;
        // The first stack is captured with everything looked up.
        trace.batches = CONFIRM_EVERY;
        // Another session may have begun since.
        trace.request = ring.request;
        session::show_ring(slow);
    }
    trace.events = 0;
    trace.tid = heap.registration.thread_id.get();
    // SAFETY: the ring is mapped, and these are this thread's.
    unsafe {
        (*trace.ring).tid = trace.tid;
        (*trace.ring).uses += 1;
    }
    if make_room(slow, trace, 1) {
        let ring = trace.shared();
        ring.put(&mut trace.cursor, value_word(tag::THREAD, trace.tid.into()));
        ring.publish(&trace.cursor);
    }
    Some(trace)
}

/// Gives a heap's ring back, which its thread does when another session begins, or when it ends.
pub fn release(trace: &mut ThreadTrace) {
    let ring = core::mem::replace(&mut trace.ring, core::ptr::null_mut());
    trace.request = 0;
    if !ring.is_null() {
        // SAFETY: the mapping is this trace's, and nobody else of this process knows it.
        unsafe { os::unmap(ring.cast(), TRACE_PAGE + trace.ring_words * size_of::<u64>()) };
    }
}

/// Where the ring of the thread that has `heap` lies, and its bytes; for the thread itself, at any moment.
pub fn ring_of(heap: &Heap) -> Option<(usize, usize)> {
    // SAFETY: the trace is mapped as long as the heap; this thread alone writes to it, and is in this function.
    unsafe {
        let trace = trace_word(heap);
        if trace.is_null() {
            return None;
        }
        let (ring, words) = ((&raw const (*trace).ring).read(), (&raw const (*trace).ring_words).read());
        (!ring.is_null()).then_some((ring as usize, TRACE_PAGE + words * size_of::<u64>()))
    }
}

/// Has the time noted before the heap's next event: it takes over blocks that were another thread's.
#[inline]
pub fn note_time(heap: &Heap) {
    // SAFETY: as in `trace_of`.
    if let Some(trace) = unsafe { trace_word(heap).as_mut() } {
        trace.events = 0;
    }
}

/// The same, if the heap has taken in blocks that other threads freed: it allocates them after that.
#[inline]
pub fn note_taken_in(heap: &Heap) {
    if heap.calls.took_in.take() {
        note_time(heap);
    }
}

/// At the end of the thread that has `heap`: a ring of a session that has ended goes.
pub fn thread_ends(heap: &Heap) {
    // SAFETY: as in `trace_of`.
    if let Some(trace) = unsafe { trace_word(heap).as_mut() }
        && trace.request != session::current()
    {
        release(trace);
    }
}

const _: () = assert!(size_of::<AtomicU64>() == size_of::<AtomicUsize>());
