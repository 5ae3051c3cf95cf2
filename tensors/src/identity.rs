//! Which process: its number alone comes again, in this boot, in another pid namespace and after the next boot.

use std::fs;
use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};

/// A process of a machine, once and for all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Identity {
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
    /// The inode of the pid namespace in which `pid` counts.
    pub pid_ns: u64,
    /// The process.
    pub pid: u32,
    /// When it started, in clock ticks since the boot (field 22 of `/proc/PID/stat`).
    pub start: u64,
}

/// What can be said of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It runs.
    Alive,
    /// It has ended.
    Dead,
    /// It belongs to another pid namespace, and can't be seen from here.
    Unknown,
}

fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |metadata| metadata.ino())
}

/// When a process started; `None` if there is none, or only its entry is left.
fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in brackets, which may hold anything.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    // proc(5): the state is field 3, the start field 22.
    let start = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(start)
}

impl Identity {
    /// This process.
    pub fn own() -> Identity {
        Identity::of(std::process::id())
    }

    /// The process with this number in our namespace.
    pub fn of(pid: u32) -> Identity {
        Identity { boot_id: boot_id(), pid_ns: pid_namespace(), pid, start: start_of(pid).unwrap_or(0) }
    }

    /// Whether it still runs.
    pub fn life(&self) -> Life {
        if self.boot_id != boot_id() {
            return Life::Dead;
        }
        if self.pid_ns != pid_namespace() {
            return Life::Unknown;
        }
        if start_of(self.pid) == Some(self.start) { Life::Alive } else { Life::Dead }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_alone_is_no_process() {
        let own = Identity::own();
        assert_eq!(own.life(), Life::Alive);
        assert_eq!(Identity { start: own.start + 1, ..own.clone() }.life(), Life::Dead);
        assert_eq!(Identity { boot_id: "another".into(), ..own.clone() }.life(), Life::Dead);
        assert_eq!(Identity { pid_ns: 1, ..own }.life(), Life::Unknown);
    }

    #[test]
    fn a_process_that_ended_and_was_not_waited_for_is_dead() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let identity = Identity::of(child.id());
        assert_eq!(identity.life(), Life::Alive);
        child.kill().unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while identity.life() == Life::Alive && std::time::Instant::now() < until {
            std::thread::yield_now();
        }
        assert_eq!(identity.life(), Life::Dead);
        child.wait().unwrap();
    }
}
