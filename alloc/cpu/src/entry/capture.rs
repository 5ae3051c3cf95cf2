//! The calling thread's stack, captured in the slow path: for samples, for the hardened mode and for recordings.
//!
//! A thread that is captured often, as one that uses a device is, remembers the stack of an earlier capture ([`Trail`]).
//! Then it costs a fraction, above all in a program whose stacks are deep and pass through modules that may be
//! unloaded. That they are still there is asked at every 64th capture: until then a stack of frames that another module
//! has replaced may have wrong outer frames.
//!
//! A capture of frames that were all seen before allocates nothing. Any other one may: for a module that it meets for
//! the first time, say. Then the thread's own heap is put in place, so that this is served as any allocation is; but it
//! is not sampled, not checked and not traced, however short the period. No lock is held meanwhile.

use poolscope_capture::{
    Caller, Captured, MAX_DEPTH, ThreadState, Trail, capture, capture_anew, capture_known, capture_quickly, complete,
};
use poolscope_wire::stack_flags;

use crate::kernel::os;
use crate::script::{self, Calls, InStack};
use crate::threads::detour;
use crate::threads::thread_pointer;
use crate::tiers::notes::Capture;
use crate::tiers::thread_cache::Heap;

/// A stack that was just captured, as long as its thread captures no other.
pub struct Stack {
    heap: &'static Heap,
    captured: Captured,
    /// That of the frames; 0 if nobody has asked for it yet.
    hash: u64,
}

impl Stack {
    /// Return addresses, innermost first.
    pub fn frames(&self) -> &[u64] {
        // SAFETY: the frames are this thread's, which captures nothing else meanwhile, see `of`.
        let frames = unsafe { &(*self.heap.sampling.capture.get()).frames };
        frames.get(..self.captured.depth).unwrap_or(frames)
    }

    /// Bits of [`stack_flags`].
    pub fn flags(&self) -> u16 {
        flags(&self.captured)
    }

    /// What tells its frames from those of others.
    pub fn hash(&self) -> u64 {
        if self.hash == 0 { poolscope_capture::hash(self.frames()) } else { self.hash }
    }

    /// The calls that an interpreter ran in it.
    pub fn calls(&self) -> Option<&'static mut Calls> {
        calls(self.heap)
    }
}

/// What [`note_calls`] has read last.
#[expect(clippy::mut_from_ref, reason = "a heap's captures are its thread's alone, which has them once at a time")]
pub fn calls(heap: &'static Heap) -> Option<&'static mut Calls> {
    // SAFETY: this thread's, which reads no others meanwhile and has it once at a time; what was mapped stays.
    unsafe { (*heap.sampling.capture.get()).calls.as_mut() }
}

/// Has the calls that an interpreter runs be those of this stack, which was captured last, if the program has one.
#[inline(always)]
pub fn note_calls(heap: &'static Heap, stack: &Stack) {
    if script::is_there() {
        read_calls_in(heap, stack.captured.depth);
    }
}

#[cold]
#[inline(never)]
fn read_calls_in(heap: &'static Heap, depth: usize) {
    // SAFETY: as in `of`.
    let frames = unsafe { &(*heap.sampling.capture.get()).frames };
    heap.sampling.marks.set_script();
    read_calls(heap, InStack::of(frames.get(..depth).unwrap_or(frames)));
}

/// The same, of a stack of which it is known which interpreters it has frames of.
#[cold]
#[inline(never)]
pub fn read_calls(heap: &'static Heap, in_stack: InStack) {
    // SAFETY: as in `of`.
    let capture = unsafe { &mut *heap.sampling.capture.get() };
    if capture.calls.is_null() {
        capture.calls = os::map(size_of::<Calls>()).cast();
    }
    if let Some(calls) = calls(heap) {
        if script::may_allocate() {
            with_open_path(heap, || calls.read(in_stack));
        } else {
            calls.read(in_stack);
        }
    }
}

/// Bits of [`stack_flags`].
pub fn flags(captured: &Captured) -> u16 {
    let truncated = if captured.truncated { stack_flags::TRUNCATED } else { 0 };
    let incomplete = if captured.incomplete { stack_flags::INCOMPLETE } else { 0 };
    truncated | incomplete
}

/// The stack of `caller`, for the thread that has `heap`, which is in the slow path and captures nothing else until it
/// has done with this one.
#[inline]
pub fn of(heap: &'static Heap, caller: &Caller) -> Stack {
    // SAFETY: what captures need belongs to this thread, and nested ones are ruled out by `in_sampler`.
    let Capture { state, frames, .. } = unsafe { &mut *heap.sampling.capture.get() };
    let captured = match capture_known(state, caller, frames) {
        Some(captured) => captured,
        None => with_open_path(heap, || capture(state, caller, frames)),
    };
    Stack { heap, captured, hash: 0 }
}

/// Captures in a row, at most, that don't ask whether modules are still there.
const UNCONFIRMED_MAX: u32 = 63;

/// The same, for a thread of which there are many captures.
pub fn of_many(heap: &'static Heap, caller: &Caller) -> Stack {
    // SAFETY: as in `of`.
    let capture = unsafe { &mut *heap.sampling.capture.get() };
    if capture.trail.is_null() {
        capture.trail = os::map(size_of::<Trail>()).cast();
    }
    // SAFETY: this thread's, and zeroed at first, which is a trail of nothing; nobody else has a reference.
    let trail = unsafe { capture.trail.as_mut() };
    if capture.unconfirmed < UNCONFIRMED_MAX
        && let Some(trail) = trail
        && let Ok(found) = capture_quickly(&capture.state, *caller, trail, &mut capture.frames)
    {
        capture.unconfirmed += 1;
        complete(found, trail, &mut capture.frames);
        return Stack { heap, captured: found.captured(), hash: found.hash };
    }
    capture.unconfirmed = 0;
    of(heap, caller)
}

/// The same with everything asked, written to `frames`: what was learned then serves
/// [`poolscope_capture::capture_quickly`].
#[cold]
#[inline(never)]
pub fn anew(heap: &'static Heap, caller: &Caller, frames: &mut [u64; MAX_DEPTH]) -> Captured {
    // SAFETY: as in `of`.
    let state = unsafe { &mut (*heap.sampling.capture.get()).state };
    with_open_path(heap, || capture_anew(state, caller, frames))
}

/// Gives back what captures have learned, where half a mebibyte is much of a limit, and nobody else captures.
pub fn fit(heap: &Heap, limit: usize) {
    const WORTH_IT: usize = 64 << 20;
    if limit < WORTH_IT && is_single_threaded() && !heap.sampling.in_sampler.get() && !heap.path.held_open.get() {
        // SAFETY: the C library knows of no other thread, and the pool's own captures nothing; this one is not in the
        // middle of a capture.
        unsafe { poolscope_capture::forget_rules() };
    }
}

/// Whether the C library knows that the process has one thread.
fn is_single_threaded() -> bool {
    #[cfg(target_env = "gnu")]
    {
        unsafe extern "C" {
            static __libc_single_threaded: core::ffi::c_char;
        }
        // SAFETY: a byte that only changes when threads start (glibc 2.32).
        unsafe { __libc_single_threaded != 0 }
    }
    #[cfg(not(target_env = "gnu"))]
    false
}

/// What a thread's captures have found of its stack so far.
pub fn state(heap: &'static Heap) -> &'static ThreadState {
    // SAFETY: as in `of`.
    unsafe { &(*heap.sampling.capture.get()).state }
}

/// Calls `f` with the thread's heap in place: what `f` allocates is served. A dying thread has the limbo's heap, and
/// its lock: while its path is open, that heap is its home, or a detoured call would wait for the lock for ever.
#[cold]
#[inline(never)]
pub fn with_open_path<R>(heap: &'static Heap, f: impl FnOnce() -> R) -> R {
    let (before, home) = (thread_pointer::get(), thread_pointer::home());
    heap.path.held_open.set(true);
    thread_pointer::set_home((&raw const *heap).cast_mut());
    detour::leave(heap);
    heap.sampling.in_sampler.set(true);
    let result = f();
    heap.sampling.in_sampler.set(false);
    thread_pointer::set(before);
    thread_pointer::set_home(home);
    heap.path.held_open.set(false);
    result
}

/// Forgets what is known of the thread's stack, at its end.
pub fn release(heap: &'static Heap) {
    // SAFETY: as in `of`; no capture runs.
    poolscope_capture::release(unsafe { &mut (*heap.sampling.capture.get()).state });
}
