//! Leak checks inside a program, as `include/poolscope_heapcheck.h` declares them.

use core::ffi::{c_int, c_void};

use poolscope_cpu as pool;
use poolscope_cpu::leaks::{self, Ignored};
use poolscope_wire::script::{FILE_MAX, NAME_MAX};

use crate::judge::{self, Judgement};

/// What is left, or was found.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct HeapcheckResult {
    blocks: u64,
    bytes: u64,
    threads: u32,
    stopped: u32,
}

/// What a scope may leave.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct HeapcheckLimits {
    blocks: u64,
    bytes: u64,
}

/// Begins a scope: its number, and above that the number of the one that the thread was in.
#[unsafe(no_mangle)]
pub extern "C" fn poolscope_heapcheck_begin() -> u64 {
    let Some((scope, outer)) = pool::scope::begin() else { return 0 };
    pool::scope::note_statics(scope);
    u64::from(outer) << 32 | u64::from(scope)
}

/// Begins a scope of all threads that are in none.
#[unsafe(no_mangle)]
pub extern "C" fn poolscope_heapcheck_begin_all() -> u64 {
    pool::scope::begin_for_all().map_or(0, u64::from)
}

/// What was counted in a scope.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct HeapcheckCounts {
    allocations: u64,
    blocks: u64,
    bytes: u64,
    peak: u64,
}

/// Says what was counted in a scope so far.
///
/// # Safety
/// `counts` may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_heapcheck_count(scope: u64, counts: *mut HeapcheckCounts) -> c_int {
    let Some(found) = pool::scope::counts(scope as u32) else { return -1 };
    let pool::scope::Counts { allocations, blocks, bytes, peak } = found;
    // SAFETY: the caller's promise.
    unsafe { counts.write(HeapcheckCounts { allocations, blocks, bytes, peak }) };
    0
}

/// Return addresses of a block's stack.
const FRAMES: usize = 32;

/// A block of a scope.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct HeapcheckBlock {
    address: u64,
    bytes: u64,
    depth: u64,
    frames: [u64; FRAMES],
}

/// Writes down the blocks of a scope that are in use, as many as there is room for. Returns how many there are.
///
/// # Safety
/// `blocks` has room for `room` blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_heapcheck_blocks(scope: u64, blocks: *mut HeapcheckBlock, room: u64) -> u64 {
    let mut found = 0;
    pool::scope::visit_live(scope as u32, |block, stack| {
        if found < room {
            let mut frames = [0; FRAMES];
            frames.iter_mut().zip(stack).for_each(|(to, from)| *to = *from);
            let (address, bytes, depth) = (block.address as u64, block.size, stack.len() as u64);
            // SAFETY: the caller's promise.
            unsafe { blocks.add(found as usize).write(HeapcheckBlock { address, bytes, depth, frames }) };
        }
        found += 1;
    });
    found
}

/// A function of Python's, and the line that it was at. Texts end with a zero byte.
#[repr(C)]
pub struct HeapcheckFunction {
    name: [u8; NAME_MAX + 1],
    file: [u8; FILE_MAX + 1],
    line: u32,
}

/// Says which function of Python's a frame of a block's stack is a call of. 0, or -1 if it is an address.
///
/// # Safety
/// `function` may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_heapcheck_python(frame: u64, function: *mut HeapcheckFunction) -> c_int {
    // SAFETY: the caller's promise. Zeroes are a value of it.
    let into = unsafe {
        function.write_bytes(0, 1);
        &mut *function
    };
    let is_one = pool::interpreter::with_call(frame, |function, line| {
        into.name.iter_mut().take(NAME_MAX).zip(function.name()).for_each(|(to, byte)| *to = byte);
        into.file.iter_mut().take(FILE_MAX).zip(function.file()).for_each(|(to, byte)| *to = byte);
        into.line = line;
    });
    if is_one { 0 } else { -1 }
}

/// Ends a scope.
///
/// # Safety
/// `limits` is null or limits; `result` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_heapcheck_end(
    scope: u64,
    limits: *const HeapcheckLimits,
    result: *mut HeapcheckResult,
) -> c_int {
    let mut left = HeapcheckResult::default();
    if scope == 0 {
        return -1;
    }
    (left.blocks, left.bytes) = pool::scope::left(scope as u32);
    pool::scope::set((scope >> 32) as u32);
    pool::scope::close(scope as u32);
    // SAFETY: the caller's promise.
    let limits = unsafe {
        if let Some(result) = result.as_mut() {
            *result = left;
        }
        limits.as_ref().copied().unwrap_or_default()
    };
    match left.blocks > limits.blocks || left.bytes > limits.bytes {
        true => 1,
        false if pool::scope::dropped() > 0 => -1,
        false => 0,
    }
}

/// Looks for unreachable blocks, and reports them.
///
/// # Safety
/// `result` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_heapcheck_check(result: *mut HeapcheckResult) -> c_int {
    // SAFETY: the function returns.
    unsafe { leaks::with_callers(check, result as usize) as c_int }
}

extern "C" fn check(frame: *const usize, result: usize) -> usize {
    let (searched, judgement) = judge::check(frame);
    let found = searched.map_or_else(HeapcheckResult::default, |found| {
        let (threads, stopped) = found.threads;
        HeapcheckResult { blocks: found.leaks, bytes: found.bytes, threads, stopped }
    });
    // SAFETY: the program's promise of the function above.
    if let Some(result) = unsafe { (result as *mut HeapcheckResult).as_mut() } {
        *result = found;
    }
    match judgement {
        Judgement::Clean => 0,
        Judgement::Leaked => 1,
        Judgement::NotChecked => usize::MAX,
    }
}

/// A block is no leak.
#[unsafe(no_mangle)]
pub extern "C" fn poolscope_heapcheck_ignore(block: *const c_void) -> c_int {
    match leaks::ignore(block as usize) {
        Ignored::Yes | Ignored::Already => 0,
        Ignored::NoBlock => libc::ENOENT,
    }
}

/// What the calling thread allocates is no leak.
#[unsafe(no_mangle)]
pub extern "C" fn poolscope_heapcheck_disable() {
    leaks::disable();
}

/// It may be again.
#[unsafe(no_mangle)]
pub extern "C" fn poolscope_heapcheck_enable() {
    leaks::enable();
}

/// Names a region of roots.
#[unsafe(no_mangle)]
pub extern "C" fn poolscope_heapcheck_add_root(begin: *const c_void, bytes: usize) -> c_int {
    if leaks::add_root(begin as usize, bytes) { 0 } else { libc::ENOMEM }
}

/// Takes it back.
#[unsafe(no_mangle)]
pub extern "C" fn poolscope_heapcheck_remove_root(begin: *const c_void, bytes: usize) -> c_int {
    if leaks::remove_root(begin as usize, bytes) { 0 } else { libc::ENOENT }
}
