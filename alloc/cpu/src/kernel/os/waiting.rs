//! What a thread waits by: for a time, for a word that somebody changes, for other threads.

use core::ffi::c_int;
use core::sync::atomic::AtomicU32;

use super::{errno, is_plain, keep_errno, set_errno};
use crate::kernel::system_call::system_call;

const NS_OF_S: u64 = 1_000_000_000;
const NS_OF_MS: u64 = 1_000_000;

/// Attempts after which nobody yields any more.
const YIELDS: u32 = 128;
/// The first naps of one that waits for long; they become longer, to 640 us.
const NAP_NS: u64 = 20_000;
const NAPS_OF_A_LENGTH: u32 = 8;
const NAP_DOUBLINGS: u32 = 5;

/// Sleeps for `us` microseconds, less than a second. No place where a thread is cancelled.
pub fn sleep_us(us: u32) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: i64::from(us) * 1000 };
    // SAFETY: reads the time.
    keep_errno(|| unsafe {
        system_call!(libc::SYS_nanosleep, &raw const time, core::ptr::null_mut::<libc::timespec>())
    });
}

/// Sleeps for `ms` milliseconds, or until someone wakes `word`, as long as it is `value`.
pub fn sleep_on(word: &AtomicU32, value: u32, ms: u64) {
    futex_wait(word, libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, value, ms);
}

/// The same for a word that the kernel wakes at a thread's end (`CLONE_CHILD_CLEARTID`), which it does as if other
/// processes had it, too.
pub fn sleep_on_shared(word: &AtomicU32, value: u32, ms: u64) {
    futex_wait(word, libc::FUTEX_WAIT, value, ms);
}

/// Sleeps on a word of a file that others map. False if there is no such word: the file was cut off.
pub fn sleep_on_file(word: &AtomicU32, value: u32, ms: u64) -> bool {
    keep_errno(|| {
        set_errno(0);
        wait(word, libc::FUTEX_WAIT, value, ms * NS_OF_MS);
        errno() != libc::EFAULT
    })
}

fn futex_wait(word: &AtomicU32, operation: c_int, value: u32, ms: u64) {
    keep_errno(|| wait(word, operation, value, ms * NS_OF_MS));
}

fn wait(word: &AtomicU32, operation: c_int, value: u32, ns: u64) {
    let time = libc::timespec { tv_sec: (ns / NS_OF_S) as i64, tv_nsec: (ns % NS_OF_S) as i64 };
    // SAFETY: the word is a static, and the kernel reads the time.
    unsafe { system_call!(libc::SYS_futex, word.as_ptr(), operation, value, &raw const time) };
}

/// Lets other threads go on, after `tries` failed attempts at what one of them has.
///
/// To yield leaves the processor to threads of the same priority alone: a real-time thread that only yields waits for
/// ever for an ordinary one on its processor. So who has yielded some times sleeps.
pub fn give_way(tries: u32) {
    static NOTHING: AtomicU32 = AtomicU32::new(0);
    if tries < YIELDS && !is_plain() {
        // SAFETY: a system call without arguments.
        unsafe { libc::sched_yield() };
        return;
    }
    let doublings = (tries.saturating_sub(YIELDS) / NAPS_OF_A_LENGTH).min(NAP_DOUBLINGS);
    keep_errno(|| wait(&NOTHING, libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, 0, NAP_NS << doublings));
}

/// Wakes who sleeps on `word` ([`sleep_on`]).
pub fn wake(word: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel only looks at the word's address.
    keep_errno(|| unsafe { system_call!(libc::SYS_futex, word.as_ptr(), operation, i32::MAX) });
}

/// Wakes who sleeps on `word` in whatever process ([`sleep_on_file`]).
pub fn wake_shared(word: &AtomicU32) {
    // SAFETY: as above.
    keep_errno(|| unsafe { system_call!(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) });
}
