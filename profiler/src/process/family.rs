//! The processes that a process started, and those that they started.

use std::collections::BTreeMap;

use crate::process;
use crate::words::printable::printable;

/// A process that another one started, or one of those.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "reading", derive(serde::Serialize, serde::Deserialize))]
pub struct Child {
    /// Its process id.
    pub pid: u32,
    /// What the kernel calls it: its file's name, cut to 15 bytes.
    pub name: String,
    /// Its resident set, in bytes.
    pub rss: u64,
}

/// The name in `/proc/PID/stat`, and the parent.
fn parse(stat: &[u8]) -> Option<(String, u32)> {
    let (open, close) = (stat.iter().position(|&byte| byte == b'(')?, stat.iter().rposition(|&byte| byte == b')')?);
    let name = printable(stat.get(open + 1..close)?);
    let rest = std::str::from_utf8(stat.get(close + 1..)?).ok()?;
    Some((name, rest.split_ascii_whitespace().nth(1)?.parse().ok()?))
}

/// All that a process started and that run, and what those started, in the order of their numbers.
pub fn children(pid: u32) -> Vec<Child> {
    let stats = process::all().into_iter().filter_map(|number| {
        let (name, parent) = parse(&std::fs::read(format!("/proc/{number}/stat")).ok()?)?;
        Some((number, (name, parent)))
    });
    let processes: BTreeMap<u32, (String, u32)> = stats.collect();
    let descends = |mut of: u32| {
        // No longer than there are processes, whatever they say.
        for _ in 0..processes.len() {
            match processes.get(&of) {
                Some((_, parent)) if *parent == pid => return true,
                Some((_, parent)) => of = *parent,
                None => return false,
            }
        }
        false
    };
    let of_process = processes.iter().filter(|(number, _)| **number != pid && descends(**number));
    of_process
        .filter_map(|(&pid, (name, _))| Some(Child { pid, name: name.clone(), rss: process::memory(pid)?.rss }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_parentheses_and_blanks() {
        assert_eq!(parse(b"77 (a) (b c) S 12 77 77 0"), Some(("a) (b c".to_owned(), 12)));
        assert_eq!(parse(b"77 sh S 12"), None);
    }

    #[test]
    fn what_this_process_starts_is_found_with_its_own() {
        let script = "sleep 30 & echo started; wait";
        let mut shell = std::process::Command::new("sh")
            .args(["-c", script])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let mut line = [0; 8];
        std::io::Read::read_exact(&mut shell.stdout.take().expect("is piped"), &mut line).expect("says so");
        // The shell's child is a shell until it is sleep.
        let sleep = (0..1000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            children(shell.id()).into_iter().find(|child| child.name == "sleep")
        });
        let sleep = sleep.expect("the shell's child");
        let found = children(std::process::id());
        assert!(found.contains(&sleep) || found.iter().any(|child| child.pid == sleep.pid), "{found:?}");
        assert!(found.iter().any(|child| child.pid == shell.id() && child.rss > 0), "{found:?}");
        let _ = rustix::process::Pid::from_raw(sleep.pid as i32)
            .map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL));
        shell.wait().expect("ends");
        assert!(children(shell.id()).is_empty());
    }
}
