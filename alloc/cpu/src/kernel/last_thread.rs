//! Whether the calling thread is all that is left of the process.
//!
//! A thread that ends by the bare system call tells nobody. If it is the program's last one, the pool's own thread is
//! left, and keeps the process.

use crate::kernel::os;
use crate::kernel::system_call::system_call;

/// Ends the calling thread, which is not the first, and the process with it, if all others have ended. The kernel takes
/// the code of the thread that ends last; that of the first is the one that can still be had.
pub fn end_with_the_process() {
    if let Some(code) = code_of_a_process_that_has_ended() {
        // SAFETY: the thread holds nothing: nobody else is there.
        unsafe { system_call!(libc::SYS_exit, code) };
    }
}

/// What the process is to end with, if its first thread has ended and no other is left beside the calling one.
fn code_of_a_process_that_has_ended() -> Option<u32> {
    let mut stat = [0; 1024];
    let len = os::read_file(c"/proc/self/stat", &mut stat);
    ended(&stat[..len])
}

/// The same, by the line that the kernel has of the process (proc_pid_stat(5)).
fn ended(stat: &[u8]) -> Option<u32> {
    // The name may hold anything, but the last parenthesis is the one behind it.
    let behind = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let mut fields = stat[behind..].split(|&byte| byte == b' ' || byte == b'\n').filter(|field| !field.is_empty());
    let state = fields.next()?;
    // Fields 20 and 52 of the line, of which the state is the third.
    let threads = os::number_of(fields.nth(16)?);
    let status = os::number_of(fields.nth(31)?);
    // A first thread that has ended stays in the count.
    (state == b"Z" && threads == 2).then_some(status >> 8 & 0xff)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: &str = "1 2 3 0 -1 4194560 99 0 0 0 0 0 0 0 20 0";

    fn line(state: &str, threads: u32, status: u32) -> std::string::String {
        let between = "0 ".repeat(31);
        std::format!("71 (a) b) {state} {REST} {threads} {between}{status}\n")
    }

    #[test]
    fn a_process_has_ended_when_its_first_thread_has_and_one_other_is_left() {
        assert_eq!(ended(line("Z", 2, 3 << 8).as_bytes()), Some(3));
        assert_eq!(ended(line("Z", 3, 3 << 8).as_bytes()), None);
        assert_eq!(ended(line("S", 2, 0).as_bytes()), None);
        assert_eq!(ended(b""), None);
        assert_eq!(ended(b"71 (a) Z 1 2"), None);
    }

    #[test]
    #[cfg_attr(miri, ignore)]
    fn this_process_has_not_ended() {
        let mut stat = [0; 1024];
        let len = os::read_file(c"/proc/self/stat", &mut stat);
        let line = std::str::from_utf8(&stat[..len]).unwrap();
        assert_eq!(line[line.rfind(')').unwrap() + 1..].split_whitespace().count(), 50, "{line}");
        assert_eq!(code_of_a_process_that_has_ended(), None);
    }
}
