//! The malloc family of C and POSIX. errno is set to `ENOMEM` by whatever returns null, and kept otherwise.
//!
//! What `api` shares with them stands in functions that are not exported: a call of an exported name could lead to
//! another library's function of that name.

use core::ffi::c_int;
use core::ptr::null_mut;

use poolscope_cpu as pool;

use crate::replaced::call_replaced;

const PAGE: usize = 4096;

/// `malloc` (C).
#[unsafe(no_mangle)]
pub extern "C" fn malloc(size: usize) -> *mut u8 {
    pool::malloc(size)
}

/// `free` (C).
///
/// # Safety
/// `p` is null or an allocated block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(p: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { pool::free(p) }
}

/// `calloc` (C).
#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: usize, size: usize) -> *mut u8 {
    zeroed(count, size)
}

/// What `calloc` does.
#[inline(always)]
pub fn zeroed(count: usize, size: usize) -> *mut u8 {
    match count.checked_mul(size) {
        Some(bytes) => pool::malloc_zeroed(bytes),
        None => out_of_memory(),
    }
}

/// `realloc` (C). As in glibc, a size of 0 frees the block and returns null.
///
/// # Safety
/// `p` is null or an allocated block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(p: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { resized(p, size) }
}

/// What `realloc` does.
///
/// # Safety
/// As for `realloc`.
#[inline(always)]
pub unsafe fn resized(p: *mut u8, size: usize) -> *mut u8 {
    if p.is_null() {
        return pool::malloc(size);
    }
    // SAFETY: the caller's promise.
    unsafe {
        if size == 0 {
            pool::free(p);
            return null_mut();
        }
        pool::realloc(p, size, 16)
    }
}

/// `reallocarray` (POSIX 2024).
///
/// # Safety
/// `p` is null or an allocated block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(p: *mut u8, count: usize, size: usize) -> *mut u8 {
    let Some(bytes) = count.checked_mul(size) else { return out_of_memory() };
    call_replaced!(realloc(p, bytes) as unsafe extern "C" fn(*mut u8, usize) -> *mut u8);
    // SAFETY: the caller's promise.
    unsafe { resized(p, bytes) }
}

/// What `reallocarray` does where the program has no `realloc` of its own.
///
/// # Safety
/// As for `realloc`.
#[inline(always)]
unsafe fn array_resized(p: *mut u8, count: usize, size: usize) -> *mut u8 {
    let Some(bytes) = count.checked_mul(size) else { return out_of_memory() };
    // SAFETY: the caller's promise.
    unsafe { resized(p, bytes) }
}

/// `posix_memalign` (POSIX): returns an error number. As in glibc, `ENOMEM` is in errno, too.
///
/// # Safety
/// `out` may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(out: *mut *mut u8, align: usize, size: usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { posix_aligned(out, align, size) }
}

/// What `posix_memalign` does.
///
/// # Safety
/// As for it.
#[inline(always)]
unsafe fn posix_aligned(out: *mut *mut u8, align: usize, size: usize) -> c_int {
    if !align.is_power_of_two() || align < size_of::<usize>() {
        return libc::EINVAL;
    }
    let p = pool::malloc_aligned(size, align);
    if p.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller's promise.
    unsafe { *out = p };
    0
}

/// `aligned_alloc` (C): null and `EINVAL` unless `align` is a power of two.
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut u8 {
    aligned(align, size)
}

/// What `aligned_alloc` does.
#[inline(always)]
pub fn aligned(align: usize, size: usize) -> *mut u8 {
    if !align.is_power_of_two() {
        pool::set_errno(libc::EINVAL);
        return null_mut();
    }
    pool::malloc_aligned(size, align)
}

/// `memalign` (SunOS): like glibc's, rounds `align` up to a power of two.
#[unsafe(no_mangle)]
pub extern "C" fn memalign(align: usize, size: usize) -> *mut u8 {
    memory_aligned(align, size)
}

/// What `memalign` does.
#[inline(always)]
fn memory_aligned(align: usize, size: usize) -> *mut u8 {
    match align.checked_next_power_of_two() {
        Some(align) => pool::malloc_aligned(size, align),
        None => {
            pool::set_errno(libc::EINVAL);
            null_mut()
        }
    }
}

/// `valloc` (BSD): at a multiple of the kernel's page.
#[unsafe(no_mangle)]
pub extern "C" fn valloc(size: usize) -> *mut u8 {
    page_aligned(size)
}

/// What `valloc` does.
#[inline(always)]
fn page_aligned(size: usize) -> *mut u8 {
    pool::malloc_aligned(size, PAGE)
}

/// `pvalloc` (SVr4): whole pages of the kernel.
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(size: usize) -> *mut u8 {
    whole_pages(size)
}

/// What `pvalloc` does.
#[inline(always)]
fn whole_pages(size: usize) -> *mut u8 {
    match size.checked_next_multiple_of(PAGE) {
        Some(bytes) => pool::malloc_aligned(bytes, PAGE),
        None => out_of_memory(),
    }
}

/// `malloc_usable_size` (glibc).
///
/// # Safety
/// `p` is null or an allocated block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(p: *mut u8) -> usize {
    // SAFETY: the caller's promise.
    unsafe { pool::usable_size(p) }
}

/// `free_sized` (C23).
///
/// # Safety
/// `p` is null or an allocated block of `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_sized(p: *mut u8, size: usize) {
    call_replaced!(free(p) as unsafe extern "C" fn(*mut u8));
    // SAFETY: the caller's promise.
    unsafe { pool::free_sized(p, size) }
}

/// `free_aligned_sized` (C23).
///
/// # Safety
/// `p` is null or a block of `aligned_alloc(align, size)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_aligned_sized(p: *mut u8, align: usize, size: usize) {
    call_replaced!(free(p) as unsafe extern "C" fn(*mut u8));
    // SAFETY: the caller's promise.
    unsafe { pool::free_aligned_sized(p, align, size) }
}

fn out_of_memory() -> *mut u8 {
    pool::set_errno(libc::ENOMEM);
    null_mut()
}

/// Declares another name for a function of the family. It does not call the exported one: a program that has a function of
/// that name itself, which counts, say, or fails now and then, calls this one from there.
macro_rules! alias {
    ($($name:ident = $of:ident by $target:path: ($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => { $(
        #[doc = concat!("glibc's own name for `", stringify!($of), "`.")]
        ///
        /// # Safety
        /// As for that function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) $(-> $result)? {
            #[allow(unused_unsafe, reason = "some of the functions are safe")]
            // SAFETY: the caller's promise.
            unsafe { $target($($arg),*) }
        }
    )* };
}

alias! {
    __libc_malloc = malloc by pool::malloc: (size: usize) -> *mut u8;
    __libc_free = free by pool::free: (p: *mut u8);
    cfree = free by pool::free: (p: *mut u8);
    __libc_cfree = free by pool::free: (p: *mut u8);
    __libc_calloc = calloc by zeroed: (count: usize, size: usize) -> *mut u8;
    __libc_realloc = realloc by resized: (p: *mut u8, size: usize) -> *mut u8;
    __libc_reallocarray = reallocarray by array_resized: (p: *mut u8, count: usize, size: usize) -> *mut u8;
    __libc_memalign = memalign by memory_aligned: (align: usize, size: usize) -> *mut u8;
    __libc_valloc = valloc by page_aligned: (size: usize) -> *mut u8;
    __libc_pvalloc = pvalloc by whole_pages: (size: usize) -> *mut u8;
    __posix_memalign = posix_memalign by posix_aligned: (out: *mut *mut u8, align: usize, size: usize) -> c_int;
}
