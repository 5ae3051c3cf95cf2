//! What `/proc` says about the process of a segment: whether it still runs that program, and how much memory it has.

pub mod clock;
pub mod control_group;
pub mod ending;
pub mod family;
pub mod residence;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use poolscope_wire::{Header, state};

use crate::model::snapshot::{ProcessMemory, ProcessState};
use crate::process::control_group::ControlGroup;
use crate::process::ending::Ending;
use crate::words::printable::printable;

/// How often the list of mappings is read again to see whether the process has replaced itself by `exec`.
///
/// Reading it takes the process's mmap lock, so it is not done for every frame of the dashboard.
const RECHECK_MAPS: Duration = Duration::from_secs(5);

/// The fields of `/proc/PID/stat` that we need (proc(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcStat {
    /// One letter: `R`, `S`, `Z`, ...
    pub state: char,
    /// Clock ticks after boot when it started (field 22).
    pub start_ticks: u64,
}

impl ProcStat {
    /// Reads it; `None` if there is no such process.
    pub fn of(pid: u32) -> Option<Self> {
        let stat = Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
        Some(Self { start_ticks: clock::ticks_of_the_machine(stat.start_ticks), ..stat })
    }

    /// The command in field 2 may contain blanks and parentheses, so fields are counted from the last one.
    fn parse(stat: &str) -> Option<Self> {
        let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let start_ticks = fields.nth(18)?.parse().ok()?;
        Some(Self { state, start_ticks })
    }

    /// It has ended and only waits for its parent to notice.
    pub fn is_zombie(self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// A value of `/proc/PID/status` in kibibytes, as bytes.
fn status_bytes(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    line.split_ascii_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// What the threads of a process had of the processors at one moment: run time, and time that they were ready to run
/// and waited, in nanoseconds. Empty where the kernel does not count them.
#[derive(Debug)]
pub struct Scheduling {
    at: Instant,
    threads: BTreeMap<u32, (u64, u64)>,
}

impl Scheduling {
    /// Of now.
    pub fn of(pid: u32) -> Self {
        let times = |tid: u32| {
            let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
            let mut fields = text.split_ascii_whitespace().map_while(|field| field.parse::<u64>().ok());
            Some((tid, (fields.next()?, fields.next()?)))
        };
        Self { at: Instant::now(), threads: threads(pid).into_iter().filter_map(times).collect() }
    }

    /// The longest that one of the threads has waited for a processor since then, about. The kernel counts a wait when
    /// it is over: of a thread that is ready to run now, all is taken for it that was not run time.
    pub fn waited(&self, pid: u32) -> Duration {
        let now = Self::of(pid);
        let is_ready = |tid: u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok();
            stat.and_then(|stat| ProcStat::parse(&stat)).is_some_and(|stat| stat.state == 'R')
        };
        let waits = now.threads.iter().filter_map(|(&tid, &(run, waited))| {
            let &(run_then, waited_then) = self.threads.get(&tid)?;
            let waited = Duration::from_nanos(waited.saturating_sub(waited_then));
            let run = Duration::from_nanos(run.saturating_sub(run_then));
            Some(if is_ready(tid) { (now.at - self.at).saturating_sub(run) } else { waited })
        });
        waits.max().unwrap_or_default()
    }
}

/// The processes that there are.
pub(crate) fn all() -> Vec<u32> {
    let numbers = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Resident set and its peak; `None` if the process is gone, hidden or without memory of its own.
pub fn memory(pid: u32) -> Option<ProcessMemory> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let rss = status_bytes(&status, "VmRSS")?;
    Some(ProcessMemory { rss, peak_rss: status_bytes(&status, "VmHWM").unwrap_or(rss) })
}

/// Bytes of memory that this process may have yet, as the kernel reckons, and as its control group allows. `None` where
/// neither says.
pub fn available_memory() -> Option<u64> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| status_bytes(&text, "MemAvailable"));
    let group = ControlGroup::of(std::process::id()).and_then(|group| group.free_memory());
    machine.into_iter().chain(group).min()
}

/// Names of the threads of a process, by their kernel id; empty if it is gone.
///
/// In another pid namespace the ids are others than the process's own, and name nobody.
pub fn thread_names(pid: u32) -> BTreeMap<u32, String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let named = tasks.into_iter().flatten().flatten().filter_map(|task| {
        let name = std::fs::read(task.path().join("comm")).ok()?;
        let name = printable(name.strip_suffix(b"\n").unwrap_or(&name));
        Some((task.file_name().to_str()?.parse().ok()?, name))
    });
    named.collect()
}

/// Kernel ids of the threads of a process; none if it is gone.
pub fn threads(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let ids = tasks.into_iter().flatten().flatten().filter_map(|task| task.file_name().to_str()?.parse().ok());
    ids.collect()
}

/// How many filters of system calls a thread has. `None` where the kernel does not say.
pub fn filters(pid: u32, tid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"))?.trim().parse().ok()
}

/// The name of a thread; empty if it is gone, or has another id here than in its own pid namespace.
pub fn thread_name(pid: u32, tid: u32) -> String {
    let name = std::fs::read(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
    printable(name.strip_suffix(b"\n").unwrap_or(&name))
}

/// Effective user id of this process.
pub fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Effective user id of a process.
pub fn effective_uid(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// What a process in a container calls itself.
pub(crate) fn innermost_pid(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().last()?.parse().ok()
}

/// How long the list of processes in other pid namespaces counts: it is asked for once for each dead process's segment.
const RECHECK_OTHERS: Duration = Duration::from_millis(500);

/// A process in another pid namespace: its number here, its innermost one, and its start.
type Other = (u32, u32, u64);

/// What a process of another pid namespace is called here: one that has this number there, started then, and has a file
/// of this name mapped.
fn in_other_namespace(inner: u32, start_ticks: u64, file: &str) -> Option<u32> {
    static KNOWN: Mutex<Option<(Instant, Vec<Other>)>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if known.as_ref().is_none_or(|(at, _)| at.elapsed() >= RECHECK_OTHERS) {
        *known = Some((Instant::now(), others()));
    }
    let candidates =
        known.iter().flat_map(|(_, others)| others).filter(|other| (other.1, other.2) == (inner, start_ticks));
    candidates.map(|other| other.0).find(|&pid| maps_file(pid, file) == Some(true))
}

fn others() -> Vec<Other> {
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let ours = namespace("self");
    let other = |pid: u32| {
        if namespace(&pid.to_string())? == *ours.as_ref()? {
            return None;
        }
        Some((pid, innermost_pid(pid)?, ProcStat::of(pid).filter(|stat| !stat.is_zombie())?.start_ticks))
    };
    all().into_iter().filter_map(other).collect()
}

/// The executable of the process that has the number of another one now, which is in this state: that one has ended, or
/// became another by `exec`.
pub fn successor(pid: u32, state: ProcessState) -> Option<String> {
    let runs = || ProcStat::of(pid).is_some_and(|stat| !stat.is_zombie());
    (state != ProcessState::Running && runs()).then(|| executable(pid))
}

/// The executable of a process, or its name where that can't be read.
pub fn executable(pid: u32) -> String {
    let exe = std::fs::read_link(format!("/proc/{pid}/exe")).map_or_else(
        |_| std::fs::read_to_string(format!("/proc/{pid}/comm")).map_or("?".to_owned(), |comm| comm.trim().to_owned()),
        |path| path.display().to_string(),
    );
    crate::words::printable::printable_str(exe)
}

/// `/proc/sys/kernel/random/boot_id` as 16 bytes.
pub fn boot_id() -> Option<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    parse_boot_id(text.trim())
}

fn parse_boot_id(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|&b| b != b'-')
        .map(|b| (b as char).to_digit(16).map(|d| d as u8))
        .collect::<Option<_>>()?;
    let pairs: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    pairs.try_into().ok()
}

/// The paths in `/proc/PID/maps`, once for each mapping that has one; `None` if they may not be read.
pub(crate) fn mapped_paths(pid: u32) -> Option<Vec<String>> {
    let maps = std::fs::read(format!("/proc/{pid}/maps")).ok()?;
    let maps = String::from_utf8_lossy(&maps);
    Some(maps.lines().filter_map(|line| line.find('/').map(|at| line[at..].to_owned())).collect())
}

/// Whether a file of this name is mapped by the process; `None` if that cannot be known.
pub(crate) fn maps_file(pid: u32, name: &str) -> Option<bool> {
    let found = mapped_paths(pid)?.iter().any(|path| {
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        Path::new(path).file_name().is_some_and(|file| file == name)
    });
    Some(found)
}

/// The name of a segment's file.
pub fn segment_name(pid: u32, generation: u64) -> String {
    format!("{pid}.{generation:016x}")
}

/// Tells whether the process of a segment still runs, cheaply enough for every frame of the dashboard.
#[derive(Debug)]
pub(crate) struct ProcessWatch {
    pid: u32,
    start_ticks: u64,
    same_boot: bool,
    /// The segment's file name, as the process itself gave it.
    name: String,
    mapped: bool,
    checked: Option<Instant>,
}

impl ProcessWatch {
    /// `pid` is what this process calls it; a process in another pid namespace has another one in its header, and is
    /// looked for if no such process runs here.
    pub(crate) fn new(pid: u32, header: &Header) -> Self {
        let same_boot = header.boot_id == [0; 16] || boot_id().is_none_or(|id| id == header.boot_id);
        let name = segment_name(header.pid, header.generation);
        let mut watch = Self { pid, start_ticks: header.start_ticks, same_boot, name, mapped: true, checked: None };
        if same_boot
            && header.state != state::EXITED
            && !watch.runs()
            && let Some(here) = in_other_namespace(header.pid, header.start_ticks, &watch.name)
        {
            (watch.pid, watch.mapped, watch.checked) = (here, true, None);
        }
        watch
    }

    /// What this process calls it.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// The state now, given what the header says of it.
    pub(crate) fn state(&mut self, header_state: u32) -> ProcessState {
        if header_state == state::EXITED {
            return ProcessState::Exited;
        }
        if self.runs() { ProcessState::Running } else { ProcessState::Killed }
    }

    /// Why a process that does not run is gone, as far as `/proc` says; what else is known is the kernel's to say.
    pub(crate) fn ending(&self, header_state: u32) -> Ending {
        let same = |stat: ProcStat| !stat.is_zombie() && stat.start_ticks == self.start_ticks;
        if header_state == state::EXITED {
            Ending::Exited
        } else if !self.same_boot {
            Ending::Rebooted
        } else if ProcStat::of(self.pid).is_some_and(same) {
            Ending::Replaced
        } else {
            Ending::Unknown
        }
    }

    /// The executable that has its number now, where it is in this state, and another one has it. On another machine,
    /// or since this one was started again, a number tells nothing.
    pub(crate) fn successor(&self, state: ProcessState) -> Option<String> {
        if self.same_boot { successor(self.pid, state) } else { None }
    }

    /// `exec` keeps pid and start time, so these alone are not enough: the segment must still be mapped.
    fn runs(&mut self) -> bool {
        if !self.same_boot || !self.mapped {
            return false;
        }
        let Some(stat) = ProcStat::of(self.pid) else { return false };
        if stat.is_zombie() || stat.start_ticks != self.start_ticks {
            return false;
        }
        if self.checked.is_none_or(|at| at.elapsed() >= RECHECK_MAPS) {
            self.checked = Some(Instant::now());
            self.mapped = maps_file(self.pid, &self.name).unwrap_or(true);
        }
        self.mapped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_parentheses_does_not_shift_the_fields_of_stat() {
        let fields: Vec<String> = (4..=30).map(|n| n.to_string()).collect();
        let stat = ProcStat::parse(&format!("77 (a) b) (c) S {}", fields.join(" "))).expect("parses");
        assert_eq!(stat, ProcStat { state: 'S', start_ticks: 22 });
        assert_eq!(ProcStat::parse(""), None);
        assert_eq!(ProcStat::parse("1 (x"), None);
        assert_eq!(ProcStat::parse("1 (x) S 1"), None);
    }

    #[test]
    fn this_process_has_memory_and_a_user() {
        let pid = std::process::id();
        assert!(memory(pid).is_some_and(|m| m.rss > 0 && m.peak_rss >= m.rss));
        assert_eq!(effective_uid(pid), Some(own_uid()));
        assert!(ProcStat::of(pid).is_some_and(|stat| !stat.is_zombie()));
        assert!(mapped_paths(pid).is_some_and(|paths| !paths.is_empty()));
    }

    #[test]
    fn boot_ids_are_sixteen_bytes_in_reading_order() {
        let id = parse_boot_id("00112233-4455-6677-8899-aabbccddeeff").expect("parses");
        assert_eq!(id[..3], [0x00, 0x11, 0x22]);
        assert_eq!(id[15], 0xff);
        assert_eq!(parse_boot_id("xyz"), None);
    }
}
