//! `malloc` and its relatives.
//!
//! Architecture invariant: the fast path, [`malloc`], touches this thread's heap and the block, and nothing else.

use poolscope_capture::Caller;

use crate::calls::slow;
use crate::entry;
use crate::layout::size_class::{MEDIUM_MAX, SMALL_MAX, SizeClass};
use crate::pages::clear::clear;
use crate::threads::thread_pointer;

/// Allocates `size` bytes at a multiple of 16; null and `ENOMEM` without memory. A size of 0 gets a block of its own.
#[inline(always)]
pub fn malloc(size: usize) -> *mut u8 {
    // SAFETY: the thread pointer is always a heap, at least the empty one.
    let heap = || unsafe { &*thread_pointer::get() };
    if size <= SMALL_MAX {
        if let Some(p) = heap().pop(SizeClass::of_small(size)) {
            return p;
        }
    } else if size <= MEDIUM_MAX
        && let Some(p) = heap().pop_medium(SizeClass::of_medium(size))
    {
        return p;
    }
    malloc_slow(size)
}

/// Passes on where it was called, which is where the program called wherever the compiler makes a jump of the call
/// here.
#[cfg(target_arch = "x86_64")]
#[cold]
#[unsafe(naked)]
extern "C" fn malloc_slow(size: usize) -> *mut u8 {
    core::arch::naked_asm!(
        "mov rsi, [rsp]",
        "lea rdx, [rsp + 8]",
        "mov rcx, rbp",
        "jmp {malloc_slow_at}",
        malloc_slow_at = sym malloc_slow_at,
    )
}

/// Passes on where it was called, which is where the program called wherever the compiler makes a jump of the call
/// here.
#[cfg(target_arch = "aarch64")]
#[cold]
#[unsafe(naked)]
extern "C" fn malloc_slow(size: usize) -> *mut u8 {
    core::arch::naked_asm!(
        "mov x1, x30",
        "mov x2, sp",
        "mov x3, x29",
        "b {malloc_slow_at}",
        malloc_slow_at = sym malloc_slow_at,
    )
}

/// [`malloc`]'s slow path, for a call with these registers ([`Caller`]).
extern "C" fn malloc_slow_at(size: usize, pc: usize, sp: usize, fp: usize) -> *mut u8 {
    if size <= SMALL_MAX
        && let Some(p) = recycle(SizeClass::of_small(size))
    {
        return p;
    }
    slow::allocate(size, 16, &Caller { pc, sp, fp }).0
}

/// The slow path's own fast path: a thread that frees as fast as it allocates takes its freed blocks up again.
#[inline(always)]
fn recycle(class: SizeClass) -> Option<*mut u8> {
    entry::enter_own()?.heap.recycle(class)
}

/// Allocates `size` bytes at a multiple of `align`, a power of two; null and `ENOMEM` without memory.
#[inline(always)]
pub fn malloc_aligned(size: usize, align: usize) -> *mut u8 {
    match malloc_aligned_fast(size, align) {
        Some(p) => p,
        None => malloc_aligned_slow(size, align),
    }
}

/// A block from this thread's lists, if they have one.
#[inline(always)]
fn malloc_aligned_fast(size: usize, align: usize) -> Option<*mut u8> {
    // SAFETY: as in `malloc`.
    let heap = || unsafe { &*thread_pointer::get() };
    let mask = align.max(16) - 1;
    if size <= SMALL_MAX && mask < SMALL_MAX {
        let rounded = (size + mask) & !mask;
        if rounded <= SMALL_MAX {
            // Blocks of a class lie at multiples of its size from a page: this class has the alignment. A size of 0
            // has none, and takes the slow path.
            return if rounded == 0 { None } else { heap().pop(SizeClass(((rounded) >> 4) as u8)) };
        }
    }
    let class = SizeClass::of_aligned(size, align)?;
    if class.is_medium() { heap().pop_medium(class) } else { heap().pop(class) }
}

#[cold]
#[inline(never)]
extern "C" fn malloc_aligned_slow(size: usize, align: usize) -> *mut u8 {
    match recycle_aligned(size, align) {
        Some(p) => p,
        None => allocate(size, align).0,
    }
}

/// [`recycle`], if a small class has blocks of this alignment.
#[inline(always)]
fn recycle_aligned(size: usize, align: usize) -> Option<*mut u8> {
    let class = SizeClass::of_aligned(size, align)?;
    if class.is_medium() { None } else { recycle(class) }
}

/// A block from this thread's list, if it has one: what C++'s `operator new` tries before it may have to throw.
#[inline(always)]
pub fn malloc_fast(size: usize, align: usize) -> Option<*mut u8> {
    if size > SMALL_MAX || align > 16 {
        return None;
    }
    // SAFETY: as in `malloc`.
    unsafe { &*thread_pointer::get() }.pop(SizeClass::of_small(size))
}

/// Allocates `size` zeroed bytes.
#[inline]
pub fn malloc_zeroed(size: usize) -> *mut u8 {
    if size <= SMALL_MAX {
        let p = malloc(size);
        if !p.is_null() {
            // SAFETY: the block holds `size` bytes.
            unsafe { p.write_bytes(0, size) };
        }
        return p;
    }
    let (p, zero) = match malloc_aligned_fast(size, 16) {
        Some(p) => (p, false),
        None => allocate(size, 16),
    };
    if !p.is_null() && !zero {
        // SAFETY: as above.
        unsafe { clear(p, size) };
    }
    p
}

/// Allocates `size` zeroed bytes at a multiple of `align`, a power of two.
#[inline]
pub fn malloc_zeroed_aligned(size: usize, align: usize) -> *mut u8 {
    if align <= 16 {
        return malloc_zeroed(size);
    }
    let (p, zero) = match SizeClass::of_aligned(size, align) {
        Some(class) if !class.is_medium() => (malloc_aligned(size, align), false),
        _ => match malloc_aligned_fast(size, align) {
            Some(p) => (p, false),
            None => allocate(size, align),
        },
    };
    if !p.is_null() && !zero {
        // SAFETY: the block holds `size` bytes.
        unsafe { clear(p, size) };
    }
    p
}

/// The slow path for a call from here.
#[cold]
#[inline(never)]
pub fn allocate(size: usize, align: usize) -> (*mut u8, bool) {
    slow::allocate(size, align, &Caller::here())
}
