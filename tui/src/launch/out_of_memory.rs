//! Whether the kernel ended a program because its control group had no more memory.
//!
//! A container's limit is one of its control group. The kernel's log, which says whom it killed, is not for a container
//! to read; how many it has killed in a group stands in the group's own files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use signal_hook::consts::SIGKILL;

use crate::words::Ended;

/// Where control groups are mounted.
const GROUPS: &str = "/sys/fs/cgroup";

/// The processes that the kernel has killed in this control group for lack of memory, before a program is started.
pub(crate) struct Kills(Option<u64>);

impl Kills {
    pub(crate) fn so_far() -> Kills {
        Kills(count())
    }

    /// How a program ended that was started since.
    pub(crate) fn how_ended(&self, status: ExitStatus) -> Ended {
        match (Ended::from(status), self.0) {
            (Ended::Signal(SIGKILL), Some(before)) if count() > Some(before) => Ended::OutOfMemory,
            (ended, _) => ended,
        }
    }
}

fn count() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    files(&own).iter().find_map(|file| kills(&fs::read_to_string(file).ok()?))
}

/// The files that may have the count, by what `/proc/self/cgroup` says: of the second version of control groups and of
/// the first. In a container the group's own folder may be mounted as the root of all.
fn files(own: &str) -> Vec<PathBuf> {
    let group = |controller: &str| {
        own.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers.split(',').any(|name| name == controller).then_some(path.trim_start_matches('/'))
        })
    };
    let mut files = Vec::new();
    for (controller, folder, name) in [("memory", "memory", "memory.oom_control"), ("", "", "memory.events")] {
        if let Some(path) = group(controller) {
            let folder = Path::new(GROUPS).join(folder);
            files.extend([folder.join(path).join(name), folder.join(name)]);
        }
    }
    files
}

/// `oom_kill 3` among the lines of such a file.
fn kills(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn the_count_is_looked_for_in_the_own_group_of_either_version() {
        let names = |own| -> Vec<String> { files(own).iter().map(|file| file.display().to_string()).collect() };
        assert_eq!(
            names("0::/user.slice/a.scope\n"),
            ["/sys/fs/cgroup/user.slice/a.scope/memory.events", "/sys/fs/cgroup/memory.events"]
        );
        assert_eq!(
            names("9:name=systemd:/x\n4:cpu,memory:/docker/12\n"),
            ["/sys/fs/cgroup/memory/docker/12/memory.oom_control", "/sys/fs/cgroup/memory/memory.oom_control"]
        );
        assert!(names("").is_empty());
    }

    #[test]
    fn only_the_kills_count() {
        assert_eq!(kills("low 0\nhigh 0\nmax 17\noom 2\noom_kill 1\noom_group_kill 0\n"), Some(1));
        assert_eq!(kills("oom_kill_disable 0\nunder_oom 0\noom_kill 12\n"), Some(12));
        assert_eq!(kills("oom_kill_disable 0\n"), None);
    }

    #[test]
    fn only_a_kill_with_a_higher_count_is_for_lack_of_memory() {
        let killed = ExitStatus::from_raw(SIGKILL);
        assert_eq!(Kills(None).how_ended(killed), Ended::Signal(SIGKILL));
        assert_eq!(Kills(Some(u64::MAX)).how_ended(killed), Ended::Signal(SIGKILL));
        assert_eq!(Kills(Some(0)).how_ended(ExitStatus::from_raw(0x300)), Ended::Code(3));
    }
}
