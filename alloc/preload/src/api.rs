//! The pool by its own name, as `include/poolscope.h` declares it: for programs that ask for the pool and not for
//! whatever `malloc` is.
//!
//! **Invariant:** what the header declares is what the library exports under `poolscope_`. `tests/tests/c_api.rs`
//! compares the two.
//!
//! The blocks' functions have sections of their own, so that the compiler does not make one function of `malloc` and
//! `poolscope_malloc`: valgrind puts its own in the place of `malloc` by the address,
//! and must not catch a part of these.

use core::ffi::{CStr, c_char, c_int, c_void};

use poolscope_cpu as pool;
use poolscope_cpu::hooks::{Hook, HookId};
use poolscope_wire::build_note;

use crate::c;
use crate::command::{Text, run};

/// The library's version.
#[unsafe(no_mangle)]
pub extern "C" fn poolscope_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// What the file says of itself to those that look into it without running it.
static NOTE: [u8; build_note::LEN] =
    build_note::note("libpoolscope.so", env!("CARGO_PKG_VERSION"), build_note::commit(option_env!("POOLSCOPE_COMMIT")));

/// The library's name, version and commit, and the version of the segments that it writes.
#[unsafe(no_mangle)]
pub extern "C" fn poolscope_build() -> *const c_char {
    NOTE[build_note::TEXT..].as_ptr().cast()
}

/// Writes a copy of the segment to a file: 0, or the error's number.
///
/// # Safety
/// `path` is null or a text that ends with zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_dump(path: *const c_char) -> c_int {
    if path.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: the caller's promise.
    pool::dump(unsafe { CStr::from_ptr(path) }).err().unwrap_or(0)
}

/// Has the command serve this process's profiles: 0, `ENOENT` if there is no command, `EINVAL` if it can't listen
/// there, which it says itself.
///
/// # Safety
/// `address` is null or a text that ends with zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_serve(address: *const c_char) -> c_int {
    if address.is_null() {
        return libc::EINVAL;
    }
    let mut digits = [0; 20];
    // SAFETY: no argument.
    let pid = unsafe { libc::getpid() } as u64;
    let Some(pid) = Text::of(&[pool::decimal(pid, &mut digits)]) else { return libc::ENOMEM };
    let words = [c"poolscope", c"serve", c"--background", c"--until-exit", c"--listen"];
    let mut arguments = [core::ptr::null::<c_char>(); 8];
    for (place, word) in arguments.iter_mut().zip(words) {
        *place = word.as_ptr();
    }
    (arguments[words.len()], arguments[words.len() + 1]) = (address, pid.as_ptr());
    match run(&arguments, None) {
        Some(0) => 0,
        Some(_) => libc::EINVAL,
        None => libc::ENOENT,
    }
}

/// Puts the calling thread under a label: the one that it was under, for [`poolscope_label_leave`].
///
/// # Safety
/// `name` is null or a text that ends with zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_label_enter(name: *const c_char) -> u32 {
    // SAFETY: the caller's promise.
    pool::label::set(unsafe { number(name) })
}

/// The number of a label; 0 where there is no name, or no room for one more label.
///
/// # Safety
/// `name` is null or a text that ends with zero.
unsafe fn number(name: *const c_char) -> u32 {
    if name.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise.
    pool::label::number(unsafe { CStr::from_ptr(name) }.to_bytes())
}

/// Puts the calling thread back under the label that it was under.
#[unsafe(no_mangle)]
pub extern "C" fn poolscope_label_leave(outer: u32) {
    pool::label::set(outer);
}

/// Bytes in use of what was allocated under a label.
///
/// # Safety
/// `name` is null or a text that ends with zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_label_in_use(name: *const c_char) -> u64 {
    // SAFETY: the caller's promise.
    pool::label::in_use(unsafe { number(name) })
}

/// Sets a label's limit: 0, or `EINVAL`, also where there is no such label because there are 64 others.
///
/// # Safety
/// `name` is null or a text that ends with zero; any thread may call the function with its context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_label_limit(
    name: *const c_char,
    bytes: u64,
    over: c_int,
    call: Option<pool::label::Call>,
    context: *mut c_void,
) -> c_int {
    use pool::label::Over;
    let over = match (over, call) {
        (0, _) => Over::Warn,
        (1, _) => Over::Refuse,
        (2, Some(call)) => Over::Call(call, context),
        _ => return libc::EINVAL,
    };
    // SAFETY: the caller's promise.
    let label = unsafe { number(name) };
    if label == 0 {
        return libc::EINVAL;
    }
    // SAFETY: the caller's promise.
    unsafe { pool::label::limit(label, bytes, over) };
    0
}

/// `malloc` from the pool.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.poolscope_malloc")]
pub extern "C" fn poolscope_malloc(size: usize) -> *mut u8 {
    pool::malloc(size)
}

/// `calloc` from the pool.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.poolscope_calloc")]
pub extern "C" fn poolscope_calloc(count: usize, size: usize) -> *mut u8 {
    c::zeroed(count, size)
}

/// `realloc` of a block of the pool.
///
/// # Safety
/// `p` is null or an allocated block of the pool.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.poolscope_realloc")]
pub unsafe extern "C" fn poolscope_realloc(p: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { c::resized(p, size) }
}

/// `aligned_alloc` from the pool.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.poolscope_aligned_alloc")]
pub extern "C" fn poolscope_aligned_alloc(align: usize, size: usize) -> *mut u8 {
    c::aligned(align, size)
}

/// `free` of a block of the pool.
///
/// # Safety
/// `p` is null or an allocated block of the pool.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.poolscope_free")]
pub unsafe extern "C" fn poolscope_free(p: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { pool::free(p) }
}

/// `free_sized` of a block of the pool.
///
/// # Safety
/// `p` is null or an allocated block of `size` bytes.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.poolscope_free_sized")]
pub unsafe extern "C" fn poolscope_free_sized(p: *mut u8, size: usize) {
    // SAFETY: the caller's promise.
    unsafe { pool::free_sized(p, size) }
}

/// `free_aligned_sized` of a block of the pool.
///
/// # Safety
/// `p` is null or a block of `poolscope_aligned_alloc(align, size)`.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.poolscope_free_aligned_sized")]
pub unsafe extern "C" fn poolscope_free_aligned_sized(p: *mut u8, align: usize, size: usize) {
    // SAFETY: the caller's promise.
    unsafe { pool::free_aligned_sized(p, align, size) }
}

/// `malloc_usable_size` of a block of the pool.
///
/// # Safety
/// `p` is null or an allocated block of the pool.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.poolscope_usable_size")]
pub unsafe extern "C" fn poolscope_usable_size(p: *const u8) -> usize {
    // SAFETY: the caller's promise.
    unsafe { pool::usable_size(p.cast_mut()) }
}

/// Gives all memory back to the kernel that no block is in. Returns the bytes.
#[unsafe(no_mangle)]
pub extern "C" fn poolscope_release_free_memory() -> usize {
    pool::release_unused()
}

/// The same, and the counters that only grow begin again.
#[unsafe(no_mangle)]
pub extern "C" fn poolscope_reset() -> usize {
    pool::reset()
}

/// Adds a hook: a number for its removal, or 0 without memory and in a signal handler that interrupted the pool.
#[unsafe(no_mangle)]
pub extern "C" fn poolscope_add_hook(hook: Option<Hook>, context: *mut c_void) -> u64 {
    hook.and_then(|hook| pool::hooks::add_hook(hook, context)).map_or(0, |id| id.0)
}

/// Removes a hook: 0, or `ENOENT` if there is no such hook.
#[unsafe(no_mangle)]
pub extern "C" fn poolscope_remove_hook(id: u64) -> c_int {
    if pool::hooks::remove_hook(HookId(id)) { 0 } else { libc::ENOENT }
}

/// For `libpoolscope_gpu.so` and programs with pools of device memory of their own: the functions by which they record
/// in this library's segment. Not in the header: table and library are of one build,
/// or the version differs and the answer is null.
#[unsafe(no_mangle)]
pub extern "C" fn poolscope_device_table(version: u32) -> *const pool::device::Table {
    if version == pool::device::TABLE_VERSION { &pool::device::TABLE } else { core::ptr::null() }
}
