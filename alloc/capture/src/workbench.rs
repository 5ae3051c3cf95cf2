//! What a capture works with that has to ask: framehop's cache, and a stack of its own. There are a few for the whole
//! process, each used by one capture at a time.
//!
//! Reading unwind tables and listing modules takes up to 16 KiB of stack, and what libgcc takes nobody promises. The
//! program's stack may be a thread's of 16 KiB, a coroutine's of 8 KiB or a signal handler's of 2 KiB, so none of it is
//! done there. Meanwhile the thread's signals wait, for the handlers would run on this stack, too: but for those that
//! say that an instruction failed, which nobody can let wait.
//!
//! A capture tries the bench that its thread used last, then the others from the first on; so a program has as many as
//! it has such captures at the same time, not as it has threads. The lock of a bench is tried, never waited for.
//!
//! framehop makes a cache in memory of the global allocator. That may be the pool itself, in the middle of an
//! allocation; the caller of a capture sees to it that such allocations are served and not captured.

extern crate alloc;

use crate::stack::thread_pointer;
use crate::system;
use crate::unwinder::{Cache, new_cache};
use alloc::alloc::{Layout, alloc, dealloc};
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Captures that can ask at the same time: more than a program has threads that do nothing else, whether they run or
/// wait for a processor. The next ones have no more than their first frame.
const BENCHES: usize = 256;

/// Bytes of a bench's stack; the lowest page of it is closed. 16 KiB were measured, and 127 KiB unoptimised, where each
/// move of a row of registers is a copy; the rest is the allocator's and libgcc's. All of it counts where data or
/// locked memory is limited.
const STACK: usize = if cfg!(debug_assertions) { 512 << 10 } else { 64 << 10 };

/// Bytes that must be left for the program where a bench is made: near a limit of its memory, the program's own requests
/// come first. It is more than framehop takes then, in as many pieces as it likes; and framehop ends the process where
/// it gets none.
const LEFT: usize = 512 << 10;

/// One bench, on cache lines of its own.
#[repr(align(64))]
struct Slot {
    /// The control block of the thread that has it, or 0.
    holder: AtomicUsize,
    bench: UnsafeCell<Bench>,
}

struct Bench {
    /// The address after the stack's last byte; 0 before there is one.
    stack_end: usize,
    cache: Option<Cache>,
}

// SAFETY: the bench is only touched by its holder.
unsafe impl Sync for Slot {}

static SLOTS: [Slot; BENCHES] =
    [const { Slot { holder: AtomicUsize::new(0), bench: UnsafeCell::new(Bench { stack_end: 0, cache: None }) } };
        BENCHES];

impl Slot {
    fn try_lock(&self) -> bool {
        self.holder.load(Ordering::Relaxed) == 0
            && self.holder.compare_exchange(0, thread_pointer(), Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

/// A bench, for the length of one capture.
struct Taken(&'static Slot);

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.holder.store(0, Ordering::Release);
    }
}

/// A bench that nobody uses, `last` if possible, which is then updated. `None` if all are in use.
fn take(last: &mut usize) -> Option<Taken> {
    if let Some(slot) = SLOTS.get(*last).filter(|slot| slot.try_lock()) {
        return Some(Taken(slot));
    }
    let (index, slot) = SLOTS.iter().enumerate().find(|(_, slot)| slot.try_lock())?;
    *last = index;
    Some(Taken(slot))
}

/// The calling thread's signals wait while this lives.
struct SignalsWait {
    /// Those that waited before.
    before: Option<u64>,
}

impl SignalsWait {
    fn new() -> Self {
        SignalsWait { before: system::hold_signals() }
    }
}

impl Drop for SignalsWait {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            system::set_held_signals(before);
        }
    }
}

/// Calls `f` on a bench's stack, with the place of its cache. `f` comes back if there is no bench: all are in use, or
/// there is no memory. `last` is the bench that the thread used last.
pub(crate) fn with<R, F: FnOnce(&mut Option<Cache>) -> R>(last: &mut usize, f: F) -> Result<R, F> {
    // Before the bench is taken, so that no handler interrupts who has one.
    let _signals = SignalsWait::new();
    let Some(taken) = take(last) else { return Err(f) };
    // SAFETY: just locked.
    let bench = unsafe { &mut *taken.0.bench.get() };
    if bench.stack_end == 0 {
        let end = if system::has_room(STACK + LEFT) { system::map_stack(STACK) } else { None };
        let Some(end) = end else { return Err(f) };
        bench.stack_end = end;
    }
    let cache = &mut bench.cache;
    let mut result = MaybeUninit::uninit();
    on_stack(bench.stack_end, || {
        result.write(f(cache));
    });
    // SAFETY: it was called, and has written.
    Ok(unsafe { result.assume_init() })
}

/// The cache, made if there is none and there is memory for it. Allocates.
pub(crate) fn ready(cache: &mut Option<Cache>) -> Option<&mut Cache> {
    if cache.is_none() && system::has_room(LEFT) && can_allocate(size_of_cache()) {
        *cache = Some(new_cache());
    }
    cache.as_mut()
}

/// Calls `f` on a stack of its own, with the thread's signals held back, if a bench is free; else where it is. For what
/// is rare and takes much of a stack that may be small.
// Each of its callers is rare, and lies beside what is not.
#[inline(never)]
pub fn aside<R>(f: impl FnOnce() -> R) -> R {
    match with(&mut 0, |_| f()) {
        Ok(result) => result,
        Err(f) => f(&mut None),
    }
}

/// Calls `f` on the stack that ends at `end`.
fn on_stack<F: FnOnce()>(end: usize, f: F) {
    extern "C" fn call<F: FnOnce()>(f: *mut c_void) {
        // SAFETY: `on_stack` passes its own variable.
        if let Some(f) = unsafe { &mut *f.cast::<Option<F>>() }.take() {
            f();
        }
    }
    let mut f = Some(f);
    // SAFETY: the stack is mapped, and its bench is this thread's; the function takes what it is passed.
    unsafe { poolscope_capture_0_1_on_stack((&raw mut f).cast(), call::<F>, end) };
}

unsafe extern "C" {
    /// Calls `f` with `argument` on the stack that ends at `end`, a multiple of 16.
    fn poolscope_capture_0_1_on_stack(argument: *mut c_void, f: extern "C" fn(*mut c_void), end: usize);
}

// The frame pointer leads back to the stack of before, for the code and for unwinders. The name carries the version, so
// that two versions of this crate can live in one program.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text.poolscope_capture_0_1_on_stack,\"ax\",@progbits",
    ".globl poolscope_capture_0_1_on_stack",
    ".hidden poolscope_capture_0_1_on_stack",
    ".type poolscope_capture_0_1_on_stack, @function",
    "poolscope_capture_0_1_on_stack:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "mov rsp, rdx",
    "call rsi",
    "mov rsp, rbp",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size poolscope_capture_0_1_on_stack, . - poolscope_capture_0_1_on_stack",
    ".popsection",
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".pushsection .text.poolscope_capture_0_1_on_stack,\"ax\",@progbits",
    ".globl poolscope_capture_0_1_on_stack",
    ".hidden poolscope_capture_0_1_on_stack",
    ".type poolscope_capture_0_1_on_stack, @function",
    "poolscope_capture_0_1_on_stack:",
    ".cfi_startproc",
    "stp x29, x30, [sp, #-16]!",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset x29, -16",
    ".cfi_offset x30, -8",
    "mov x29, sp",
    ".cfi_def_cfa_register x29",
    "mov sp, x2",
    "blr x1",
    "mov sp, x29",
    ".cfi_def_cfa_register sp",
    "ldp x29, x30, [sp], #16",
    ".cfi_def_cfa_offset 0",
    "ret",
    ".cfi_endproc",
    ".size poolscope_capture_0_1_on_stack, . - poolscope_capture_0_1_on_stack",
    ".popsection",
);

/// What a cache takes: 512 rules of 16 bytes, and rows of 192 registers, of which framehop keeps four.
const fn size_of_cache() -> usize {
    48 << 10
}

/// Whether `bytes` bytes can be had: framehop ends the process where there is no memory, so it is asked for first.
pub(crate) fn can_allocate(bytes: usize) -> bool {
    let Ok(layout) = Layout::from_size_align(bytes.max(1), 16) else {
        return false;
    };
    // SAFETY: the size is not zero, and what was allocated is given back as it was.
    unsafe {
        let block = alloc(layout);
        if !block.is_null() {
            dealloc(block, layout);
        }
        !block.is_null()
    }
}

/// Calls `f` with the memory that captures work in: the first address and the one behind the last. Nothing there is the
/// program's, but for registers that a capture keeps for its caller, on a stack that is in use.
pub fn own_memory(mut f: impl FnMut(usize, usize)) {
    f((&raw const SLOTS).addr(), (&raw const SLOTS).addr() + size_of_val(&SLOTS));
    for slot in &SLOTS {
        // SAFETY: a word that is written once. Who calls has stopped the other threads.
        let end = unsafe { (&raw const (*slot.bench.get()).stack_end).read_volatile() };
        if end != 0 {
            f(end - STACK, end);
        }
    }
}

/// In a forked child: the benches that other threads had in use are free again, with empty caches, as those may be half
/// written. Their memory stays the child's, unused: to free it would be a call of the allocator in the middle of a
/// fork.
pub(crate) fn reset_after_fork() {
    for slot in &SLOTS {
        let holder = slot.holder.load(Ordering::Relaxed);
        if holder != 0 && holder != thread_pointer() {
            // SAFETY: the holder does not exist in the child, and no other thread does yet.
            core::mem::forget(unsafe { (*slot.bench.get()).cache.take() });
            slot.holder.store(0, Ordering::Release);
        }
    }
}
