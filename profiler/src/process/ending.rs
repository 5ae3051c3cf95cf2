//! How a process ended, as far as its segment and the kernel tell.
//!
//! A segment says whether its process left by `exit`. What killed one that did not is nowhere in it: the kernel ends a
//! process without asking it. But the kernel writes down whom its out-of-memory killer took, and which faults nobody
//! handled, in a log that root may read and other users where `kernel.dmesg_restrict` is 0.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;

/// The kernel's log, one record for each `read`, oldest first (`Documentation/ABI/testing/dev-kmsg` of the kernel).
const KERNEL_LOG: &str = "/dev/kmsg";

/// `O_NONBLOCK`: the end of the log is an error, not a wait for the next record.
const O_NONBLOCK: i32 = 0o4000;

/// The longest record that the kernel gives out (`PRINTK_MESSAGE_MAX`).
const LONGEST_RECORD: usize = 8192;

/// Bytes of a command's name that the kernel keeps (`TASK_COMM_LEN` less the zero).
const COMMAND_LEN: usize = 15;

/// The log's clock is the scheduler's, which may be off from `CLOCK_MONOTONIC` by as much.
const CLOCKS_DIFFER_NS: u64 = 2_000_000_000;

/// Why a process is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It left by `exit`.
    Exited,
    /// It replaced itself by another program, which does not run on the pool or has a segment of its own.
    Replaced,
    /// The machine was started again since.
    Rebooted,
    /// The kernel killed it because memory ran out, of the machine or of its memory cgroup.
    OutOfMemory(KernelWord),
    /// It did what the processor or the kernel refuses, and did not handle the signal.
    Fault(KernelWord),
    /// Nobody says: a signal, `abort`, or an exit that passed by the pool.
    Unknown,
}

/// What the kernel wrote down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelWord {
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub monotonic_ns: u64,
    /// The line.
    pub line: String,
}

impl Ending {
    /// One word for a column.
    pub fn word(&self) -> &'static str {
        match self {
            Ending::Exited => "exited",
            Ending::Replaced => "replaced",
            Ending::Rebooted => "rebooted",
            Ending::OutOfMemory(_) => "oom",
            Ending::Fault(_) => "fault",
            Ending::Unknown => "gone",
        }
    }

    /// The kernel's word for it, if it has one.
    pub fn kernel(&self) -> Option<&KernelWord> {
        match self {
            Ending::OutOfMemory(word) | Ending::Fault(word) => Some(word),
            Ending::Exited | Ending::Replaced | Ending::Rebooted | Ending::Unknown => None,
        }
    }
}

/// The kernel's log, as far as it speaks of processes that it ended. Empty where it may not be read.
#[derive(Clone, Debug, Default)]
pub struct KernelLog {
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    pid: u32,
    command: String,
    out_of_memory: bool,
    word: KernelWord,
}

impl KernelLog {
    /// Reads it.
    pub fn read() -> Self {
        let mut log = Self::default();
        let Ok(mut file) = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(KERNEL_LOG) else {
            return log;
        };
        let mut record = vec![0; LONGEST_RECORD];
        loop {
            match file.read(&mut record) {
                Ok(0) => return log,
                Ok(len) => log.entries.extend(parse(&String::from_utf8_lossy(&record[..len]))),
                // EPIPE: what was to come next has been overwritten; the next read goes on with what is left.
                Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::Interrupted) => {}
                Err(_) => return log,
            }
        }
    }

    /// What ended the process `pid`, which was alive at `alive_ns` of `CLOCK_MONOTONIC`. `paths` are its executable and
    /// what that was called by, which may be a link to it.
    ///
    /// The first record after that counts: later ones are of processes that got the same number. The name must be the
    /// program's, because the log of a machine counts processes otherwise than a container on it does.
    pub(crate) fn ending(&self, pid: u32, paths: [&str; 2], alive_ns: u64) -> Option<Ending> {
        let names = paths.map(|path| {
            let name = path.rsplit('/').next().unwrap_or_default().as_bytes();
            &name[..name.len().min(COMMAND_LEN)]
        });
        let entry = self.entries.iter().find(|entry| {
            entry.pid == pid
                && names.contains(&entry.command.as_bytes())
                && entry.word.monotonic_ns.saturating_add(CLOCKS_DIFFER_NS) >= alive_ns
        })?;
        let word = entry.word.clone();
        Some(if entry.out_of_memory { Ending::OutOfMemory(word) } else { Ending::Fault(word) })
    }
}

/// A record that says that a process ended: `PRIORITY,NUMBER,MICROSECONDS,FLAGS;LINE`.
fn parse(record: &str) -> Option<Entry> {
    let (prefix, text) = record.split_once(';')?;
    let micros: u64 = prefix.split(',').nth(2)?.parse().ok()?;
    let line = text.lines().next()?;
    let (pid, command, out_of_memory) = killed(line).or_else(|| faulted(line))?;
    let word = KernelWord {
        monotonic_ns: micros.saturating_mul(1000),
        line: crate::words::printable::printable_str(line.to_owned()),
    };
    Some(Entry { pid, command, out_of_memory, word })
}

/// `Memory cgroup out of memory: Killed process 123 (name) total-vm:...`, and `Out of memory: ...`.
fn killed(line: &str) -> Option<(u32, String, bool)> {
    let (before, rest) = line.split_once("Killed process ")?;
    if !before.to_ascii_lowercase().contains("out of memory") {
        return None;
    }
    let (pid, rest) = rest.split_once(" (")?;
    // A name may hold a parenthesis; what follows it begins with a figure.
    let end = rest.find(") total-vm").or_else(|| rest.rfind(')'))?;
    Some((pid.parse().ok()?, rest[..end].to_owned(), true))
}

/// `name[123]: segfault at ...`, and `traps: name[123] general protection fault ...`.
fn faulted(line: &str) -> Option<(u32, String, bool)> {
    let (line, marks): (_, &[&str]) = match line.strip_prefix("traps: ") {
        Some(line) => (line, &["] general protection fault", "] trap "]),
        None => (line, &["]: segfault at ", "]: bad frame "]),
    };
    let end = marks.iter().find_map(|mark| line.find(mark))?;
    let (command, pid) = line[..end].rsplit_once('[')?;
    Some((pid.parse().ok()?, command.to_owned(), false))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OOM: &str = "3,2126,4042794650,-;Memory cgroup out of memory: Killed process 812 (kv-server) \
                       total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:0\n";
    const FAULT: &str = "6,1600,2473435342,-;my [prog][2376]: segfault at 8 ip 0000562c557ac197 sp 0 error 4 in x\n";
    const TRAP: &str = "6,1,5,-;traps: a.out[77] trap invalid opcode ip:5 sp:6 error:0 in a.out[5]\n";

    #[test]
    fn the_kernel_says_whom_it_killed_and_who_faulted() {
        let oom = parse(OOM).expect("speaks of an end");
        assert_eq!((oom.pid, oom.command.as_str(), oom.out_of_memory), (812, "kv-server", true));
        assert_eq!(oom.word.monotonic_ns, 4_042_794_650_000);
        assert!(oom.word.line.starts_with("Memory cgroup out of memory"));
        let fault = parse(FAULT).expect("speaks of an end");
        assert_eq!((fault.pid, fault.command.as_str(), fault.out_of_memory), (2376, "my [prog]", false));
        assert_eq!(parse(TRAP).expect("speaks of an end").pid, 77);
        for other in ["", "6,1,5,-;oom_reaper: reaped process 5 (x)", "no record", "6,1,x,-;a[5]: segfault at 5"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn an_end_is_of_the_process_that_was_alive_before_and_has_the_name() {
        let log = KernelLog { entries: [OOM, FAULT].into_iter().filter_map(parse).collect() };
        let at = 4_042_794_650_000;
        assert!(matches!(log.ending(812, ["/usr/bin/kv-server-2", "./kv-server"], at), Some(Ending::OutOfMemory(_))));
        assert_eq!(
            log.ending(812, ["/usr/bin/kv-server-2", "./kv-server"], at + 2 * CLOCKS_DIFFER_NS),
            None,
            "it lived on after that"
        );
        assert_eq!(log.ending(812, ["/usr/bin/other", ""], 0), None, "a number of another namespace");
        assert_eq!(log.ending(813, ["/usr/bin/kv-server", ""], 0), None);
    }
}
