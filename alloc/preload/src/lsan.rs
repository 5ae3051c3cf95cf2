//! LeakSanitizer's functions (`sanitizer/lsan_interface.h`) and its environment, so that programs written for it link
//! or preload unchanged.
//!
//! What the program may define for it is looked at when the library is loaded: `__lsan_is_turned_off`,
//! `__lsan_default_options` and `__lsan_default_suppressions`. They are found where the program was linked with the
//! library, or exports them (`-rdynamic`).

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use poolscope_cpu::Message;
use poolscope_cpu::leaks::{self, Ignored};

use crate::judge::{self, Judgement};
use crate::life;

/// What LeakSanitizer ends a program with.
const EXIT_CODE: u64 = 23;
/// The variable with its options.
const OPTIONS: &CStr = c"LSAN_OPTIONS";

// Weak: null where the program has none.
core::arch::global_asm!(
    ".weak __lsan_is_turned_off",
    ".weak __lsan_default_options",
    ".weak __lsan_default_suppressions",
);

/// A function of the program's that may not be there.
macro_rules! of_the_program {
    ($name:ident, $of:literal, $result:ty) => {
        fn $name() -> Option<extern "C" fn() -> $result> {
            #[cfg(target_arch = "x86_64")]
            {
                let address: usize;
                // SAFETY: reads the word in which the loader has put the function's address, or 0.
                unsafe {
                    core::arch::asm!(
                        concat!("mov {}, qword ptr [rip + ", $of, "@GOTPCREL]"),
                        out(reg) address,
                        options(nostack, preserves_flags, readonly, pure)
                    );
                }
                // SAFETY: a program's function of this name has this form (lsan_interface.h); 0 is none.
                unsafe { core::mem::transmute::<usize, Option<extern "C" fn() -> $result>>(address) }
            }
            #[cfg(not(target_arch = "x86_64"))]
            None
        }
    };
}

of_the_program!(is_turned_off, "__lsan_is_turned_off", c_int);
of_the_program!(default_options, "__lsan_default_options", *const c_char);
of_the_program!(default_suppressions, "__lsan_default_suppressions", *const c_char);

/// The program's own suppressions.
pub fn suppressions() -> Option<&'static CStr> {
    let text = default_suppressions()?();
    // SAFETY: what the program returns stays (lsan_interface.h).
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// The value of an option, as the environment has it, or the program. Options are `NAME=VALUE`, separated by colons,
/// commas or blanks, and the last one counts.
pub fn option(name: &[u8]) -> Option<&'static [u8]> {
    // SAFETY: the C library keeps the text, and the program's stays.
    unsafe {
        let of_environment = libc::getenv(OPTIONS.as_ptr());
        let of_program = default_options().map_or(core::ptr::null(), |options| options());
        let texts = [of_environment.cast_const(), of_program].into_iter().filter(|text| !text.is_null());
        texts.map(|text| CStr::from_ptr(text).to_bytes()).find_map(|text| value(text, name))
    }
}

fn value<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let is_separator = |byte: &u8| matches!(byte, b':' | b',' | b' ' | b'\t' | b'\n' | b'\r');
    let mut values = text.split(is_separator).filter_map(|word| word.strip_prefix(name)?.strip_prefix(b"="));
    let last = values.next_back()?;
    let unquoted = last.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    Some(unquoted.unwrap_or(last))
}

/// A number that is an option.
pub fn number(name: &[u8]) -> Option<u64> {
    let digits = option(name)?;
    let digit = |number: u64, byte: &u8| {
        byte.is_ascii_digit().then(|| number.saturating_mul(10).saturating_add(u64::from(byte - b'0')))
    };
    digits.iter().try_fold(0, digit).filter(|_| !digits.is_empty())
}

/// A switch that is an option.
fn switch(name: &[u8]) -> Option<bool> {
    match option(name)? {
        b"0" | b"false" | b"no" => Some(false),
        b"1" | b"true" | b"yes" => Some(true),
        _ => None,
    }
}

/// To be called when the library is loaded.
pub fn begin() {
    let is_off = is_turned_off().is_some_and(|is_turned_off| is_turned_off() != 0);
    let at_exit = switch(b"detect_leaks").unwrap_or(true) && switch(b"leak_check_at_exit").unwrap_or(true);
    if is_off || !at_exit {
        leaks::turn_off();
    }
    if is_off || switch(b"detect_leaks") == Some(false) {
        OFF.store(true, Ordering::Relaxed);
    }
    judge::leave_suppressions();
}

/// There are no checks at all.
static OFF: AtomicBool = AtomicBool::new(false);

fn leaked(frame: *const usize) -> bool {
    !OFF.load(Ordering::Relaxed) && judge::check(frame).1 == Judgement::Leaked
}

extern "C" fn check_and_end(frame: *const usize, _: usize) -> usize {
    let code = number(b"exitcode").unwrap_or(EXIT_CODE);
    if leaked(frame) && code != 0 {
        life::_exit((code & 0xff) as c_int);
    }
    0
}

extern "C" fn check(frame: *const usize, _: usize) -> usize {
    usize::from(leaked(frame))
}

/// Checks, and ends the program if anything leaked.
#[unsafe(no_mangle)]
pub extern "C" fn __lsan_do_leak_check() {
    // SAFETY: the function returns, or the program ends.
    unsafe { leaks::with_callers(check_and_end, 0) };
}

/// Checks: 1 if anything leaked.
#[unsafe(no_mangle)]
pub extern "C" fn __lsan_do_recoverable_leak_check() -> c_int {
    // SAFETY: the function returns.
    unsafe { leaks::with_callers(check, 0) as c_int }
}

/// A block is no leak.
#[unsafe(no_mangle)]
pub extern "C" fn __lsan_ignore_object(block: *const c_void) {
    // The report would be too late for a block of which nothing is known.
    let _: Ignored = leaks::ignore(block as usize);
}

/// What the calling thread allocates is no leak.
#[unsafe(no_mangle)]
pub extern "C" fn __lsan_disable() {
    leaks::disable();
}

/// It may be again.
#[unsafe(no_mangle)]
pub extern "C" fn __lsan_enable() {
    if !leaks::enable() {
        Message::new("__lsan_enable was called more often than __lsan_disable").print();
    }
}

/// Names a region of roots.
#[unsafe(no_mangle)]
pub extern "C" fn __lsan_register_root_region(begin: *const c_void, bytes: usize) {
    if !leaks::add_root(begin as usize, bytes) {
        Message::new("__lsan_register_root_region: there is no room for another region").print();
    }
}

/// Takes it back.
#[unsafe(no_mangle)]
pub extern "C" fn __lsan_unregister_root_region(begin: *const c_void, bytes: usize) {
    if !leaks::remove_root(begin as usize, bytes) {
        Message::new("__lsan_unregister_root_region: no such region is registered").print();
    }
}
