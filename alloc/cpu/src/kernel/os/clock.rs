//! The kernel's clocks, as the kernel tells them: by the object that it maps into each process (vdso(7)), without a
//! system call.
//!
//! Not by the C library's function. A library that gives the program another time takes that one over (libfaketime),
//! and allocates to answer, which would come back here. And what is compared with other processes' is the kernel's
//! time: that of the machine, also in a time namespace.

use core::ffi::{CStr, c_char, c_int};
use core::mem::transmute;
use core::sync::atomic::{AtomicI64, AtomicPtr, Ordering};

use super::{keep_errno, time_namespace};
use crate::kernel::system_call::system_call;

#[cfg(target_arch = "x86_64")]
const NAME: &CStr = c"__vdso_clock_gettime";
#[cfg(target_arch = "aarch64")]
const NAME: &CStr = c"__kernel_clock_gettime";

type ClockGettime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> c_int;

/// The kernel's function, [`by_a_call`] where there is none, [`moved_back`] in a time namespace, and at first
/// [`look_for_it`].
static FUNCTION: AtomicPtr<()> = AtomicPtr::new(look_for_it as *mut ());

/// Nanoseconds of a clock.
#[inline(never)]
pub fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a function of this kind, which is there until the process ends; it writes the time.
    unsafe {
        let function = transmute::<*mut (), ClockGettime>(FUNCTION.load(Ordering::Acquire));
        if function(clock, &raw mut time) != 0 {
            // A clock that the object does not have, on some machines.
            by_a_call(clock, &raw mut time);
        }
    }
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Where the kernel has no such object: under some emulators.
#[cold]
unsafe extern "C" fn by_a_call(clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    if cfg!(miri) {
        // SAFETY: the caller's.
        return unsafe { libc::clock_gettime(clock, time) };
    }
    // SAFETY: the caller's.
    keep_errno(|| unsafe { system_call!(libc::SYS_clock_gettime, clock, time) }) as c_int
}

/// By how much [`moved_back`] moves the monotonic clocks, and what it asks.
static AHEAD: AtomicI64 = AtomicI64::new(0);
static ASKED: AtomicPtr<()> = AtomicPtr::new(by_a_call as *mut ());

#[cold]
unsafe extern "C" fn moved_back(clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    // SAFETY: as in `clock_ns`, whose time it is.
    unsafe {
        let function = transmute::<*mut (), ClockGettime>(ASKED.load(Ordering::Relaxed));
        if function(clock, time) != 0 {
            by_a_call(clock, time);
        }
        if matches!(clock, libc::CLOCK_MONOTONIC | libc::CLOCK_MONOTONIC_COARSE) {
            let ns = (*time).tv_sec * 1_000_000_000 + (*time).tv_nsec - AHEAD.load(Ordering::Relaxed);
            ((*time).tv_sec, (*time).tv_nsec) = (ns / 1_000_000_000, ns % 1_000_000_000);
        }
    }
    0
}

#[cold]
unsafe extern "C" fn look_for_it(clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    // SAFETY: the auxiliary vector says where the kernel has mapped its object.
    let found = if cfg!(miri) { None } else { unsafe { find(libc::getauxval(libc::AT_SYSINFO_EHDR) as usize) } };
    let mut function = found.map_or(by_a_call as *mut (), |address| address as *mut ());
    let ahead = time_namespace::ahead().monotonic;
    if ahead != 0 {
        AHEAD.store(ahead, Ordering::Relaxed);
        ASKED.store(function, Ordering::Relaxed);
        function = moved_back as *mut ();
    }
    // Who calls it knows what it asks.
    FUNCTION.store(function, Ordering::Release);
    // SAFETY: the caller's, and as above.
    unsafe { transmute::<*mut (), ClockGettime>(function)(clock, time) }
}

/// The function in the object of this header, if it has one.
///
/// # Safety
/// The header is 0, or that of an object that is mapped whole.
unsafe fn find(header: usize) -> Option<usize> {
    const LOAD: u32 = 1;
    const DYNAMIC: u32 = 2;
    const END: u64 = 0;
    const STRINGS: u64 = 5;
    const SYMBOLS: u64 = 6;
    const STRINGS_LEN: u64 = 10;
    if header == 0 {
        return None;
    }
    // SAFETY: the caller's: what the tables of the object name lies in it.
    unsafe {
        let object = &*(header as *const libc::Elf64_Ehdr);
        let segments = (header + object.e_phoff as usize) as *const libc::Elf64_Phdr;
        let segments = core::slice::from_raw_parts(segments, object.e_phnum.into());
        let first = segments.iter().find(|segment| segment.p_type == LOAD)?;
        let at = |address: u64| header.wrapping_add(address.wrapping_sub(first.p_vaddr - first.p_offset) as usize);
        let mut entry = at(segments.iter().find(|segment| segment.p_type == DYNAMIC)?.p_vaddr) as *const [u64; 2];
        let (mut strings, mut strings_len, mut symbols) = (None, 0, None);
        loop {
            match *entry {
                [END, _] => break,
                [STRINGS, address] => strings = Some(at(address)),
                [STRINGS_LEN, len] => strings_len = len,
                [SYMBOLS, address] => symbols = Some(at(address)),
                _ => {}
            }
            entry = entry.add(1);
        }
        let (strings, symbols) = (strings?, symbols?);
        // Names follow the symbols: nothing else says how many there are in each object. What lies between is no name.
        let count = strings.checked_sub(symbols)? / size_of::<libc::Elf64_Sym>();
        let symbols = core::slice::from_raw_parts(symbols as *const libc::Elf64_Sym, count);
        let is_it = |symbol: &&libc::Elf64_Sym| {
            symbol.st_shndx != 0
                && u64::from(symbol.st_name) < strings_len
                && CStr::from_ptr((strings + symbol.st_name as usize) as *const c_char) == NAME
        };
        symbols.iter().find(is_it).map(|symbol| at(symbol.st_value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clocks() -> [libc::clockid_t; 4] {
        [libc::CLOCK_MONOTONIC, libc::CLOCK_REALTIME, libc::CLOCK_MONOTONIC_COARSE, libc::CLOCK_THREAD_CPUTIME_ID]
    }

    fn of_the_c_library(clock: libc::clockid_t) -> u64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes the time.
        unsafe { libc::clock_gettime(clock, &raw mut time) };
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }

    #[test]
    fn each_clock_is_that_of_the_c_library() {
        for clock in clocks() {
            let (before, now) = (of_the_c_library(clock), clock_ns(clock));
            let after = of_the_c_library(clock);
            assert!(before <= now && now <= after, "{clock}: {before} {now} {after}");
        }
    }

    #[test]
    fn where_the_object_has_no_function_the_kernel_is_asked() {
        for clock in clocks() {
            let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            let before = of_the_c_library(clock);
            // SAFETY: writes the time.
            assert_eq!(unsafe { by_a_call(clock, &raw mut time) }, 0);
            let now = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
            assert!(before <= now && now <= of_the_c_library(clock), "{clock}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "there is no such object")]
    fn the_kernels_object_has_the_function() {
        // SAFETY: as in `look_for_it`.
        let (object, found) = unsafe {
            let object = libc::getauxval(libc::AT_SYSINFO_EHDR) as usize;
            (object, find(object))
        };
        // Valgrind and emulators take it away.
        assert_eq!(found.is_some(), object != 0);
        // SAFETY: there is no object.
        assert_eq!(unsafe { find(0) }, None);
    }
}
