//! Credentials of threads: the kernel keeps them by thread, and a process that has given some up wants none of its
//! threads to have kept them.
//!
//! The kernel says them in `status` of `/proc/self` (the main thread's, also after it has ended) and of
//! `/proc/thread-self` (proc_pid_status(5)).

use crate::kernel::os;

/// The lines that are compared.
const LINES: [&[u8]; 9] =
    [b"Uid:", b"Gid:", b"Groups:", b"NoNewPrivs:", b"CapInh:", b"CapPrm:", b"CapEff:", b"CapBnd:", b"CapAmb:"];

/// Whether the calling thread has the credentials of the process's main thread. True where the kernel does not say.
pub fn are_those_of_the_process() -> bool {
    let (mut main, mut own) = ([0; 4096], [0; 4096]);
    let main_len = os::read_file(c"/proc/self/status", &mut main);
    let own_len = os::read_file(c"/proc/thread-self/status", &mut own);
    are_the_same(&main[..main_len], &own[..own_len])
}

/// Filters of system calls that the calling thread has (seccomp). `None` where the kernel does not say.
pub fn filters() -> Option<u32> {
    let mut own = [0; 4096];
    let len = os::read_file(c"/proc/thread-self/status", &mut own);
    let line = line(&own[..len], b"Seccomp_filters:")?;
    Some(os::number_of(line))
}

fn are_the_same(a: &[u8], b: &[u8]) -> bool {
    LINES.iter().all(|name| match (line(a, name), line(b, name)) {
        (Some(a), Some(b)) => a == b,
        // A list of groups may be too long for the buffer.
        _ => true,
    })
}

/// The complete line that begins with `name`.
fn line<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    text.split_inclusive(|&byte| byte == b'\n').find(|line| line.starts_with(name) && line.ends_with(b"\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &[u8] = b"Name:\ta\nPid:\t1\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nGroups:\t0 4 \nCapEff:\t1ff\n";

    #[test]
    fn threads_that_differ_in_name_and_number_alone_have_the_same_credentials() {
        assert!(are_the_same(
            ROOT,
            b"Name:\tb\nPid:\t2\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nGroups:\t0 4 \nCapEff:\t1ff\n"
        ));
    }

    #[test]
    fn any_of_the_ids_groups_and_capabilities_makes_a_difference() {
        for (from, to) in [("Uid:\t0\t0", "Uid:\t0\t9"), ("Gid:\t0", "Gid:\t9"), ("0 4", "0"), ("1ff", "0")] {
            let other = core::str::from_utf8(ROOT).unwrap().replacen(from, to, 1);
            assert!(!are_the_same(ROOT, other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn what_can_not_be_read_makes_none() {
        assert!(are_the_same(ROOT, b""));
        assert!(are_the_same(ROOT, b"Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nGroups:\t0"));
    }

    #[test]
    fn a_thread_of_this_process_has_the_credentials_of_the_process() {
        assert!(std::thread::spawn(are_those_of_the_process).join().unwrap());
    }
}
