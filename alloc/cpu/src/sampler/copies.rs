//! Copies of the segment that are written without a call of the program: when a signal comes, and when a request finds
//! no memory.
//!
//! A signal interrupts a thread anywhere, also inside the pool with its locks taken. So the handler does two things
//! that POSIX lets a handler do: it changes a word, and it wakes the pool's own thread by a system call. That thread
//! blocks signals, so it holds no lock that it waits for, and writes the file.

use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::census;
use crate::entry::{self, Entry};
use crate::kernel::aside::aside;
use crate::kernel::message::{Message, decimal};
use crate::kernel::os;
use crate::pages::keeper;
use crate::sampler::{FINISH_PATIENCE_NS, copy_segment};
use crate::segment::Segment;
use crate::settings;
use crate::sync::spin_lock::SlowPath;

/// Signals that came, and those of them that were answered.
static ASKED: AtomicU32 = AtomicU32::new(0);
static ANSWERED: AtomicU32 = AtomicU32::new(0);
/// Copies for signals that are being written.
static WRITING: AtomicU32 = AtomicU32::new(0);
/// Copies that were begun; their files are numbered by it.
static NUMBER: AtomicU32 = AtomicU32::new(0);
/// When a request found no memory and a copy was written for it, in nanoseconds; 0 if never.
static REFUSED_NS: AtomicU64 = AtomicU64::new(0);
/// Time after such a copy in which no other is written: a program that goes on without memory is refused often.
const PAUSE_NS: u64 = 60_000_000_000;
/// Files of former processes with this process's number that are passed over.
const TAKEN: u32 = 1000;

unsafe extern "C" {
    // The C library's own name for the function that the preloaded library stands before.
    #[link_name = "__sigaction"]
    fn c_library_sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int;
}

/// Installs the handler, if a signal is set and the program can have a thread of the pool's. Called once, at the start.
pub fn start() {
    let settings = settings::current();
    let signal = settings.dump_signal() as c_int;
    if signal == 0 || settings.plain() {
        return;
    }
    // SAFETY: an action of zeroes with a handler of this module's, which stays.
    let refused = os::keep_errno(|| unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = on_signal as extern "C" fn(c_int) as usize;
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        c_library_sigaction(signal, &raw const action, core::ptr::null_mut()) != 0
    });
    if refused {
        let message = Message::new("no handler can be had for signal ").number(signal as u64);
        return message.text(" (POOLSCOPE_DUMP_SIGNAL)").print();
    }
    keeper::have_asked_for();
}

extern "C" fn on_signal(_: c_int) {
    ASKED.fetch_add(1, Ordering::Release);
    if !keeper::ask() {
        Message::new("no copy of the segment is written (POOLSCOPE_DUMP_SIGNAL): the pool can have no thread here")
            .print();
    }
}

/// Whether a signal has come that was not answered.
pub fn is_asked_for() -> bool {
    ASKED.load(Ordering::Acquire) != ANSWERED.load(Ordering::Relaxed)
}

/// Writes the copy that was asked for. Of the pool's thread, and of one that ends the process; signals that come
/// meanwhile ask for one more.
pub fn answer(slow: SlowPath) {
    WRITING.fetch_add(1, Ordering::SeqCst);
    let asked = ASKED.load(Ordering::Acquire);
    if ANSWERED.swap(asked, Ordering::SeqCst) != asked {
        census::take(slow);
        write(slow, "POOLSCOPE_DUMP_SIGNAL");
    }
    WRITING.fetch_sub(1, Ordering::SeqCst);
}

/// At the process's end: a signal may have come just before it, or have been what woke the program to end.
pub fn finish(slow: SlowPath) {
    if settings::current().dump_signal() == 0 {
        return;
    }
    if is_asked_for() {
        // The program's stack may be small.
        aside(|| answer(slow));
    }
    // What the pool's thread has begun, it may end.
    let end = os::clock_ns(libc::CLOCK_MONOTONIC) + FINISH_PATIENCE_NS;
    while WRITING.load(Ordering::SeqCst) > 0 && os::clock_ns(libc::CLOCK_MONOTONIC) < end {
        os::sleep_us(100);
    }
}

/// In a forked child: what its parent was asked for is its parent's.
pub fn forget() {
    ANSWERED.store(ASKED.load(Ordering::Acquire), Ordering::Relaxed);
    WRITING.store(0, Ordering::Relaxed);
    NUMBER.store(0, Ordering::Relaxed);
    REFUSED_NS.store(0, Ordering::Relaxed);
}

/// To be called when a request of the program's is about to be refused, by a thread outside of the slow path.
#[cold]
pub fn refused() {
    let settings = settings::current();
    if !settings.dump_at_refusal() || settings.plain() {
        return;
    }
    let now = os::clock_ns(libc::CLOCK_MONOTONIC);
    let last = REFUSED_NS.load(Ordering::Relaxed);
    let is_due = last == 0 || now.saturating_sub(last) > PAUSE_NS;
    if !is_due || REFUSED_NS.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        return;
    }
    os::keep_errno(|| {
        if let Entry::Heap(entered) = entry::enter() {
            census::take(entered.slow);
            // The program's stack may be small.
            aside(|| write(entered.slow, "POOLSCOPE_DUMP_AT_REFUSAL"));
        }
    });
}

/// Writes the copy of a process that ends. `%p` in the path is its number.
#[cold]
#[inline(never)]
pub fn at_exit(segment: &Segment, pattern: &CStr) {
    let mut digits = [0; 20];
    let pid = decimal(u64::from(os::process_id()), &mut digits);
    let path = Path::with(pattern.to_bytes(), pid);
    let named = path.as_ref().and_then(Path::text);
    let written = match named {
        // A path without a number may have any length.
        None if place_of_pid(pattern.to_bytes()).is_some() => Err(libc::ENAMETOOLONG),
        _ => crate::segment::copy(segment, named.unwrap_or(pattern), 0),
    };
    if let Err(error) = written {
        let path = named.unwrap_or(pattern).to_bytes();
        let message = Message::new("no copy of the segment was written to ").path(path);
        message.text(" (POOLSCOPE_DUMP_AT_EXIT): ").error(error).print();
    }
}

/// Where a process id is to stand in a path.
fn place_of_pid(pattern: &[u8]) -> Option<usize> {
    pattern.windows(2).position(|pair| pair == b"%p")
}

/// A path, put together from parts. What is too long is no path.
struct Path {
    bytes: [u8; 512],
    len: usize,
}

impl Path {
    fn new(parts: &[&[u8]]) -> Option<Path> {
        let mut path = Path { bytes: [0; 512], len: 0 };
        parts.iter().try_for_each(|part| path.push(part))?;
        Some(path)
    }

    /// A pattern with `pid` for each `%p`.
    fn with(pattern: &[u8], pid: &[u8]) -> Option<Path> {
        let mut path = Path { bytes: [0; 512], len: 0 };
        let mut rest = pattern;
        while let Some(at) = place_of_pid(rest) {
            path.push(&rest[..at])?;
            path.push(pid)?;
            rest = &rest[at + 2..];
        }
        path.push(rest)?;
        Some(path)
    }

    fn push(&mut self, part: &[u8]) -> Option<()> {
        self.bytes.get_mut(self.len..self.len + part.len())?.copy_from_slice(part);
        self.len += part.len();
        Some(())
    }

    fn text(&self) -> Option<&CStr> {
        CStr::from_bytes_with_nul(self.bytes.get(..=self.len)?).ok()
    }
}

/// Writes a copy to the next file that is not there, and says which it is.
fn write(slow: SlowPath, why: &str) {
    let folder = settings::current().dump_dir().map_or(&b"/tmp"[..], CStr::to_bytes);
    let mut digits = [0; 20];
    let pid = decimal(u64::from(os::process_id()), &mut digits);
    let mut result = Err(libc::EEXIST);
    for _ in 0..TAKEN {
        let mut digits = [0; 20];
        let number = decimal(u64::from(NUMBER.fetch_add(1, Ordering::Relaxed)) + 1, &mut digits);
        let parts = [folder, b"/poolscope.", pid, b".", number, b".segment"];
        let path = Path::new(&parts);
        let Some(path) = path.as_ref().and_then(Path::text) else {
            result = Err(libc::ENAMETOOLONG);
            break;
        };
        // Anybody may have put a file or a link there, where the folder is everybody's.
        result = copy_segment(slow, path, libc::O_EXCL | libc::O_NOFOLLOW);
        if result.is_ok() {
            let message = Message::new("a copy of the segment is in ").path(path.to_bytes());
            return message.text(" (").text(why).text(")").print();
        }
        if result != Err(libc::EEXIST) {
            break;
        }
    }
    if let Err(error) = result {
        let message = Message::new("no copy of the segment was written to ").path(folder);
        message.text(" (").text(why).text("; POOLSCOPE_DUMP_DIR names the folder): ").error(error).print();
    }
}

#[cfg(test)]
mod tests {
    use super::Path;

    fn path(pattern: &[u8]) -> Option<std::vec::Vec<u8>> {
        Some(Path::with(pattern, b"4711")?.text()?.to_bytes().to_vec())
    }

    #[test]
    fn a_pattern_has_the_process_id_wherever_it_says_so() {
        assert_eq!(path(b"/tmp/a").unwrap(), b"/tmp/a");
        assert_eq!(path(b"/tmp/%p/a.%p").unwrap(), b"/tmp/4711/a.4711");
        assert_eq!(path(b"/tmp/100%").unwrap(), b"/tmp/100%");
        assert_eq!(path(&[b'a'; 600]), None);
    }
}
