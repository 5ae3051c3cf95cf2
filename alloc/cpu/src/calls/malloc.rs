//! `malloc` and its relatives.
//!
//! Architecture invariant: the fast path, [`malloc`], touches this thread's heap and the block, and nothing else.

use core::sync::atomic::Ordering;

use poolscope_capture::Caller;

use crate::calls::free;
use crate::entry::registry::{self, Entry};
use crate::hardened;
use crate::hooks;
use crate::kernel::os;
use crate::layout::arena::{self, PAGE as ARENA_PAGE};
use crate::layout::lean;
use crate::layout::misuse;
use crate::layout::size_class::{MEDIUM_MAX, SMALL_MAX, SizeClass};
use crate::layout::slab::{Slab, owner};
use crate::pages::remap;
use crate::process::reset;
use crate::sampler;
use crate::segment::counters::{self, TierCounter};
use crate::serve::reentrant;
use crate::sync::spin_lock::SlowPath;
use crate::threads::detour;
use crate::threads::thread_pointer;
use crate::tiers::large;
use crate::tiers::thread_cache::Heap;
use crate::tiers::transfer_cache;
use crate::tracer;

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
    registry::start_process();
    let caller = Caller { pc, sp, fp };
    if detour::is_on() { allocate_seen(size, 16, &caller).0 } else { allocate_unseen(size, 16, &caller).0 }
}

/// The slow path's own fast path: a thread that frees as fast as it allocates takes its freed blocks up again.
#[inline(always)]
fn recycle(class: SizeClass) -> Option<*mut u8> {
    registry::enter_own()?.heap.recycle(class)
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
    if size <= MEDIUM_MAX {
        let p = malloc(size);
        if !p.is_null() {
            // SAFETY: the block holds `size` bytes.
            unsafe { p.write_bytes(0, size) };
        }
        return p;
    }
    let (p, zero) = allocate(size, 16);
    if !p.is_null() && !zero {
        // SAFETY: as above.
        unsafe { p.write_bytes(0, size) };
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
        Some(_) => (malloc_aligned(size, align), false),
        None => allocate(size, align),
    };
    if !p.is_null() && !zero {
        // SAFETY: the block holds `size` bytes.
        unsafe { p.write_bytes(0, size) };
    }
    p
}

/// The slow path: the block, and whether it is known to read as zero.
#[cold]
#[inline(never)]
fn allocate(size: usize, align: usize) -> (*mut u8, bool) {
    // Who starts the process may wait for it: then its very first allocation is told as well.
    registry::start_process();
    let caller = Caller::here();
    if detour::is_on() { allocate_seen(size, align, &caller) } else { allocate_unseen(size, align, &caller) }
}

/// An allocation of a program that is looked at, which called at `caller`.
#[inline(always)]
fn allocate_seen(size: usize, align: usize, caller: &Caller) -> (*mut u8, bool) {
    let allocate = || {
        if tracer::is_on() {
            tracer::allocate(size, align, caller.pc, caller.sp, caller.fp)
        } else {
            allocate_unseen(size, align, caller)
        }
    };
    if hooks::are_on() { hooks::around_alloc(size, align, allocate, |got| got.0) } else { allocate() }
}

/// An allocation of the slow path that nobody is told of, for the program's call at `caller`.
pub fn allocate_unseen(size: usize, align: usize, caller: &Caller) -> (*mut u8, bool) {
    let got = match registry::enter() {
        Entry::Heap(entered) if hardened::is_on() => {
            hardened::allocate(entered.heap, entered.slow, size, align, caller)
        }
        Entry::Heap(entered) => {
            transfer_cache::take_in(entered.slow, Some(entered.heap), reentrant::WAITING.take());
            allocate_from_tiers(entered.slow, entered.heap, size, align, caller)
        }
        Entry::Reentrant => {
            let p = reentrant::alloc(size, align);
            (!p.is_null()).then_some((p, true))
        }
        Entry::NoMemory(_) => None,
    };
    or_no_memory(got)
}

/// What an allocation returns that may have found no memory.
#[inline(always)]
pub fn or_no_memory(got: Option<(*mut u8, bool)>) -> (*mut u8, bool) {
    match got {
        Some(got) => got,
        None => {
            os::set_errno(libc::ENOMEM);
            (core::ptr::null_mut(), false)
        }
    }
}

/// A block of the tiers for the program's call at `caller`, and whether it is known to read as zero.
/// `None` without memory.
pub fn allocate_from_tiers(
    slow: SlowPath,
    heap: &'static Heap,
    size: usize,
    align: usize,
    caller: &Caller,
) -> Option<(*mut u8, bool)> {
    tracer::poll(slow);
    // Without the divisions of the general case: this is what every refill goes through.
    let class =
        if align <= 16 && size <= MEDIUM_MAX { Some(SizeClass::of(size)) } else { SizeClass::of_aligned(size, align) };
    let class = class.filter(|_| !(lean::is_on() && size > lean::IN_SLABS));
    let attempt = || match class {
        Some(class) => allocate_block(slow, heap, class, size, caller).map(|p| (p, false)),
        None => large::alloc(slow, heap, size, align, caller),
    };
    let mut got = attempt();
    if got.is_none() && reclaim(slow, heap, size) {
        got = attempt();
    }
    // A slab takes up to 2 MiB. Where there is no room for one, there may still be some for the block alone.
    if got.is_none() && class.is_some_and(SizeClass::is_medium) {
        got = large::alloc(slow, heap, size, align, caller);
    }
    got
}

/// Brings together what is free, where the system has no more: spans that others cache, and neighbours that were apart
/// because one of them had memory behind it. False if there is nothing, or less than `size` bytes in all.
#[cold]
fn reclaim(slow: SlowPath, heap: &'static Heap, size: usize) -> bool {
    // What is freed under a narrow limit of data goes back at once, and is in no span that could be counted.
    size as u64 <= counters::get(TierCounter::SystemUsed) && (reset::release(slow, heap) > 0 || lean::is_on())
}

fn allocate_block(
    slow: SlowPath,
    heap: &'static Heap,
    class: SizeClass,
    size: usize,
    caller: &Caller,
) -> Option<*mut u8> {
    // What has no memory for a slab of sampled blocks may still have an ordinary block.
    let mut may_sample = !heap.in_sampler.get();
    loop {
        if may_sample && sampler::records_all(heap) {
            if let Some(p) = sampler::sample_block(slow, heap, class, size, caller) {
                return Some(p);
            }
            may_sample = false;
        }
        if let Some(p) = if class.is_medium() { heap.pop_medium(class) } else { heap.pop(class) } {
            heap.unvisit();
            heap.count_call(class);
            return Some(p);
        }
        if heap.begin_next_part(class) {
            continue;
        }
        if heap.is_sample_due(class) {
            if may_sample {
                if let Some(p) = sampler::sample_block(slow, heap, class, size, caller) {
                    return Some(p);
                }
                may_sample = false;
            }
            sampler::skip_sample(heap, class);
            continue;
        }
        sampler::follow_period(heap, class);
        if !heap.refill(slow, class) {
            return None;
        }
    }
}

/// The slab of an allocated block; `None` for a mapping that a signal handler got.
fn slab_of(p: *mut u8) -> Option<&'static Slab> {
    let slab = arena::page_of(p)?.head();
    if slab.owner.load(Ordering::Acquire) == owner::NONE {
        misuse::invalid(p);
    }
    Some(slab)
}

/// Bytes that the block at `p` holds; 0 for null.
///
/// # Safety
/// `p` is null or an allocated block of this pool.
pub unsafe fn usable_size(p: *mut u8) -> usize {
    if p.is_null() {
        return 0;
    }
    if hardened::is_on() {
        return hardened::usable_size(p);
    }
    block_bytes(p).or_else(|| reentrant::usable_size(p)).unwrap_or_else(|| misuse::invalid(p))
}

/// Bytes of the tiers' block at `p`; `None` if it is none.
pub fn block_bytes(p: *mut u8) -> Option<usize> {
    let slab = slab_of(p)?;
    Some(if slab.owner.load(Ordering::Relaxed) == owner::LARGE {
        large::usable(slab)
    } else {
        slab.class.get().block()
    })
}

/// Changes a block's size, in place if it fits and wastes less than half; null and `ENOMEM` without memory (the
/// block then stays as it is).
///
/// # Safety
/// `p` is an allocated block of this pool; after success only the returned block is.
pub unsafe fn realloc(p: *mut u8, size: usize, align: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe {
        if hardened::is_on() && !hardened::may_resize(p) {
            os::set_errno(libc::ENOMEM);
            return core::ptr::null_mut();
        }
        let usable = usable_size(p);
        if detour::is_on() {
            return realloc_seen(p, usable, size, align);
        }
        realloc_unseen(p, usable, size, align)
    }
}

/// # Safety
/// As for [`realloc_unseen`].
#[cold]
unsafe fn realloc_seen(p: *mut u8, usable: usize, size: usize, align: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    let resize = || unsafe { realloc_unseen(p, usable, size, align) };
    let tell = || if tracer::is_on() { tracer::realloc(p, size, resize) } else { resize() };
    if hooks::are_on() { hooks::around_realloc(p, usable, size, align, tell) } else { tell() }
}

/// # Safety
/// As for [`realloc`]; the block holds `usable` bytes.
unsafe fn realloc_unseen(p: *mut u8, usable: usize, size: usize, align: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe {
        if hardened::is_on() {
            return realloc_by_copy(p, usable, size, align);
        }
        if size <= usable && (size > usable / 2 || usable <= 64) {
            note_size(p, size);
            return p;
        }
        if (size > MEDIUM_MAX || lean::is_on())
            && let Some(p) = realloc_large(p, size, align)
        {
            return p;
        }
        realloc_by_copy(p, usable, size, align)
    }
}

/// # Safety
/// As for [`realloc_unseen`].
unsafe fn realloc_by_copy(p: *mut u8, usable: usize, size: usize, align: usize) -> *mut u8 {
    let new = if size > usable && size > MEDIUM_MAX { allocate_growing(size, align) } else { None };
    // No closure: its frame would be the standard library's, between the pool's own, which are left out of stacks.
    let (new, zero) = match new {
        Some(new) => new,
        None => (malloc_aligned(size, align), false),
    };
    if !new.is_null() {
        // SAFETY: the caller's promise; the new block holds `size` bytes.
        unsafe {
            if usable < MOVE_MIN || lean::is_on() {
                core::ptr::copy_nonoverlapping(p, new, size.min(usable));
            } else {
                remap::copy(p, new, size.min(usable), zero);
            }
            free::free(p);
        }
    }
    new
}

/// A large block for one that has outgrown its own, and will do so again, and whether it reads as zero.
/// `None` if it can't be.
#[cold]
fn allocate_growing(size: usize, align: usize) -> Option<(*mut u8, bool)> {
    if align > ARENA_PAGE || hardened::is_on() {
        return None;
    }
    let Entry::Heap(entered) = registry::enter() else { return None };
    large::alloc_growing(entered.slow, entered.heap, size)
}

/// Blocks from this size on are moved by the kernel, page by page: below, copying is cheaper.
const MOVE_MIN: usize = 2 << 20;

/// Resizes a block that is large and stays large: in place, or by moving its pages. `None` if it has to be copied.
#[cold]
fn realloc_large(p: *mut u8, size: usize, align: usize) -> Option<*mut u8> {
    let span = slab_of(p).filter(|slab| slab.owner.load(Ordering::Relaxed) == owner::LARGE)?;
    let Entry::Heap(entered) = registry::enter() else { return None };
    tracer::poll(entered.slow);
    if large::resize_in_place(entered.slow, span, size) {
        return Some(p);
    }
    if span.bytes() >= MOVE_MIN && align <= ARENA_PAGE {
        return large::move_to_larger(entered.slow, entered.heap, span, size);
    }
    None
}

/// Notes the new size of a block that stays where it is, if its size is recorded.
fn note_size(p: *mut u8, size: usize) {
    let Some(slab) = slab_of(p) else { return };
    let tag = slab.owner.load(Ordering::Relaxed);
    if tag != owner::LARGE && tag != owner::SAMPLED {
        return;
    }
    // A signal handler in the slow path goes without.
    let Entry::Heap(entered) = registry::enter() else { return };
    if tag == owner::LARGE {
        large::resize(entered.slow, slab, size);
    } else {
        sampler::resize_block(entered.slow, slab, p, size);
    }
}
