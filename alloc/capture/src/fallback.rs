//! The stack as libgcc's unwinder sees it, where a capture by frame pointers and framehop ends early.
//!
//! It is what C++ exceptions go through: it knows every rule of the tables, and all registers. It also costs 2 µs for
//! 20 frames and reads memory unchecked, so that it only runs where nothing is known to speak against it:
//!
//! - on the thread's own stack, whose bounds are known, not on a coroutine's or a signal's;
//! - up to the frame of a signal handler, but not out of it: a function that was interrupted anywhere may have no
//!   table for that place;
//! - with glibc's `_dl_find_object`. Without it (before 2.35) libgcc takes the loader's lock, which this thread or,
//!   after `fork`, a thread that no longer exists may hold.
//!
//! Where it leads no farther, as from C that Go has called, it does not lead farther the next time either: there it is
//! asked now and then.
//!
//! `_Unwind_Backtrace` is the whole of `backtrace::trace_unsynchronized` on these systems. It is called directly, as
//! that crate cannot be linked to `libpoolscope.so`: other members of the workspace turn on its feature `std`, cargo
//! builds one copy for all of them, and a library with a panic handler of its own cannot have std.
//! Programs in Rust get the function with std; `libpoolscope.so` has a copy of its own, from `libgcc_eh.a`.

use crate::loader;
use crate::modules::{self, Confirmed};
use crate::walk::is_signal_return;
use crate::{Captured, MAX_DEPTH};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// `_URC_NO_REASON` and `_URC_NORMAL_STOP` of the Itanium C++ ABI, 1.1.
const GO_ON: c_int = 0;
const STOP: c_int = 4;

type Visit = extern "C" fn(context: *mut c_void, trace: *mut c_void) -> c_int;

unsafe extern "C" {
    fn _Unwind_Backtrace(visit: Visit, trace: *mut c_void) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

struct Trace {
    /// The first return address that counts; before it come the frames of the capture itself.
    first: usize,
    frames: [u64; MAX_DEPTH],
    captured: Captured,
    confirmed: Confirmed,
}

#[cfg(test)]
std::thread_local! {
    /// How often libgcc was asked by this thread.
    pub(crate) static ASKED: core::cell::Cell<u32> = const { core::cell::Cell::new(0) };
}

extern "C" fn visit(context: *mut c_void, trace: *mut c_void) -> c_int {
    // SAFETY: `trace` passes its own variable, and libgcc its context.
    let (trace, pc) = unsafe { (&mut *trace.cast::<Trace>(), _Unwind_GetIP(context)) };
    let captured = &mut trace.captured;
    if captured.depth == 0 && pc != trace.first {
        return GO_ON;
    }
    // After the outermost function comes zero. All other ends are early ones.
    if pc == 0 {
        captured.incomplete = false;
        return STOP;
    }
    let Some(module) = modules::find(pc.wrapping_sub(1), &mut trace.confirmed) else {
        return STOP;
    };
    let Some(frame) = trace.frames.get_mut(captured.depth) else {
        captured.truncated = true;
        captured.incomplete = false;
        return STOP;
    };
    *frame = pc as u64;
    captured.depth += 1;
    if is_signal_return(&module, pc) { STOP } else { GO_ON }
}

/// Return addresses from which it led no farther, one in each place, with the epoch of their modules.
static ENDS: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Captures that ended at one of them.
static PASSED: AtomicU32 = AtomicU32::new(0);

/// Of so many of those, one asks again: tables of generated code may have been registered since.
const ASKED_ONE_IN: u32 = 64;

/// The frames from the return address `first` on, if that is more than what `captured` has, and if there may be any.
#[cold]
#[inline(never)]
pub(crate) fn go_on(first: usize, frames: &mut [u64; MAX_DEPTH], captured: Captured) -> Captured {
    let last = captured.depth.checked_sub(1).and_then(|last| frames.get(last)).copied();
    let end = last.map(|last| last ^ modules::epoch() << 48);
    let place = end.and_then(|end| ENDS.get(end as usize % ENDS.len()));
    if let (Some(end), Some(place)) = (end, place)
        && place.load(Ordering::Relaxed) == end
        && !PASSED.fetch_add(1, Ordering::Relaxed).is_multiple_of(ASKED_ONE_IN)
    {
        return captured;
    }
    let seen = trace(first, frames, captured);
    if let (Some(end), Some(place)) = (end, place)
        && seen == captured
    {
        place.store(end, Ordering::Relaxed);
    }
    seen
}

/// The frames from the return address `first` on, if that is more than what `captured` has.
pub(crate) fn trace(first: usize, frames: &mut [u64; MAX_DEPTH], captured: Captured) -> Captured {
    if !loader::is_safe_to_ask() {
        return captured;
    }
    #[cfg(test)]
    ASKED.with(|asked| asked.set(asked.get() + 1));
    let mut trace = Trace {
        first,
        frames: [0; MAX_DEPTH],
        captured: Captured { depth: 0, truncated: false, incomplete: true },
        confirmed: Confirmed::new(),
    };
    // SAFETY: the callback has the type that libgcc expects, and does not unwind.
    unsafe { _Unwind_Backtrace(visit, (&raw mut trace).cast()) };
    if trace.captured.depth <= captured.depth {
        return captured;
    }
    *frames = trace.frames;
    trace.captured
}
