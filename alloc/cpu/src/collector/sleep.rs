//! What the kernel says of a thread that does nothing: where it sleeps, and whether it has been awake in between.

use crate::kernel::message::decimal;
use crate::kernel::os;

/// What a thread does.
pub enum State {
    /// It is blocked in a system call.
    Asleep(Sleep),
    /// It runs, or is about to.
    Awake,
    /// The kernel does not say, or a child may run in the thread's memory meanwhile.
    Unknown,
}

/// A thread's sleep in a system call. Two that are equal are one: the thread did nothing in between.
#[derive(PartialEq, Eq)]
pub struct Sleep {
    /// The system call.
    number: i64,
    /// The stack pointer.
    pub sp: usize,
    /// The next instruction.
    pc: usize,
    /// Times that the thread has gone to sleep. One that wakes up has to do so again before it can be found asleep.
    switches: u64,
}

/// System calls during which a child may run in the caller's memory, on its stack and with its thread-local storage.
const LENDING: [i64; 3] = [LENDING_VFORK, libc::SYS_clone, libc::SYS_clone3];
#[cfg(target_arch = "x86_64")]
const LENDING_VFORK: i64 = libc::SYS_vfork;
#[cfg(not(target_arch = "x86_64"))]
const LENDING_VFORK: i64 = libc::SYS_clone;

/// Asks the kernel for the thread with this id.
pub fn look(tid: u32) -> State {
    // The count first: a thread that wakes up between the two is found awake, or with another count the next time.
    let mut buffer = [0; 8192];
    let Some(switches) = switches(read_task(tid, b"status", &mut buffer)) else { return State::Unknown };
    let mut buffer = [0; 256];
    let text = read_task(tid, b"syscall", &mut buffer).trim_ascii();
    if text == b"running" {
        return State::Awake;
    }
    match sleep(text, switches) {
        Some(sleep) if sleep.number >= 0 && !LENDING.contains(&sleep.number) => State::Asleep(sleep),
        _ => State::Unknown,
    }
}

/// `/proc/self/task/TID/FILE`, read into `buffer`.
fn read_task<'a>(tid: u32, file: &[u8], buffer: &'a mut [u8]) -> &'a [u8] {
    let mut path = [0u8; 64];
    let mut digits = [0; 20];
    let number = decimal(u64::from(tid), &mut digits);
    let mut len = 0;
    for part in [&b"/proc/self/task/"[..], number, b"/", file] {
        path[len..len + part.len()].copy_from_slice(part);
        len += part.len();
    }
    let read = core::ffi::CStr::from_bytes_until_nul(&path).map_or(0, |path| os::read_file(path, buffer));
    &buffer[..read]
}

/// From `status` of a thread (proc_pid_status(5)).
fn switches(text: &[u8]) -> Option<u64> {
    const NAME: &[u8] = b"\nvoluntary_ctxt_switches:\t";
    let at = text.windows(NAME.len()).position(|window| window == NAME)? + NAME.len();
    let end = at + text[at..].iter().position(|byte| *byte == b'\n')?;
    core::str::from_utf8(&text[at..end]).ok()?.parse().ok()
}

/// From `syscall` of a thread: "NUMBER ARG1 ... ARG6 SP PC",
/// or "-1 SP PC" if it is blocked elsewhere (proc_pid_syscall(5)).
fn sleep(text: &[u8], switches: u64) -> Option<Sleep> {
    let mut fields = text.split(|&byte| byte == b' ');
    let number = core::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let mut last = fields.skip(6).map(hexadecimal);
    Some(Sleep { number, sp: last.next()??, pc: last.next()??, switches })
}

fn hexadecimal(text: &[u8]) -> Option<usize> {
    let digits = core::str::from_utf8(text.strip_prefix(b"0x")?).ok()?;
    usize::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_has_its_place_and_a_count() {
        let sleep = sleep(b"230 0x0 0x0 0x7ffd 0x0 0x0 0x7f09 0x7ffd991 0x7f49a4", 7).unwrap();
        assert_eq!((sleep.number, sleep.sp, sleep.pc, sleep.switches), (230, 0x7ff_d991, 0x7f_49a4, 7));
    }

    #[test]
    fn what_is_no_sleep_in_a_system_call_is_none() {
        for text in [&b"-1 0x7ffd 0x7f09"[..], b"", b"running", b"230 0x0 0x0"] {
            assert!(sleep(text, 0).is_none(), "{text:?}");
        }
    }

    #[test]
    fn voluntary_switches_are_not_the_others() {
        let text = b"Name:\ta\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t34\n";
        assert_eq!(switches(text), Some(12));
        assert_eq!(switches(b"Name:\tvoluntary_ctxt_switches:\t12\n"), None);
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn the_kernel_says_where_a_thread_sleeps_and_that_it_slept_again() {
        let (to, from) = std::sync::mpsc::channel();
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            to.send(os::thread_id()).unwrap();
            let _ = gone.recv();
            let _ = gone.recv();
        });
        let tid = from.recv().unwrap();
        let begun = std::time::Instant::now();
        let asleep = || loop {
            assert!(begun.elapsed().as_secs() < 60, "it is not said to sleep, or to have slept again");
            match look(tid) {
                State::Asleep(sleep) => break sleep,
                _ => std::thread::yield_now(),
            }
        };
        let mut first = asleep();
        // It may have been on its way to the first sleep.
        loop {
            std::thread::sleep(std::time::Duration::from_millis(20));
            let again = asleep();
            if again == first {
                break;
            }
            first = again;
        }
        go.send(()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        while asleep() == first {
            std::thread::yield_now();
        }
        drop(go);
        thread.join().unwrap();
    }
}
