//! The control group that limits a process's memory: a container's limit is one of its group.
//!
//! What a group has and may have stands in files of its folder, of the second version of control groups or of the first
//! (`Documentation/admin-guide/cgroup-v2.rst` and `cgroup-v1/memory.rst` of the kernel).

use std::fs;
use std::path::{Path, PathBuf};

/// Where control groups are mounted.
const MOUNTED: &str = "/sys/fs/cgroup";

/// How a version calls its files.
struct Names {
    /// In `/proc/PID/cgroup`; the second version has one group for all.
    controller: &'static str,
    /// Its folder where groups are mounted.
    folder: &'static str,
    limit: &'static str,
    usage: &'static str,
    /// Of `memory.stat`: files that can be read again, with those of the groups below.
    reclaimable: &'static str,
    events: &'static str,
}

const VERSIONS: [Names; 2] = [
    Names {
        controller: "memory",
        folder: "memory",
        limit: "memory.limit_in_bytes",
        usage: "memory.usage_in_bytes",
        reclaimable: "total_inactive_file ",
        events: "memory.oom_control",
    },
    Names {
        controller: "",
        folder: "",
        limit: "memory.max",
        usage: "memory.current",
        reclaimable: "inactive_file ",
        events: "memory.events",
    },
];

/// A process's group, as far as it is seen from here.
pub struct ControlGroup {
    names: &'static Names,
    /// The group's own folder, and those of the groups that it is in.
    folders: Vec<PathBuf>,
}

impl ControlGroup {
    /// The group of a process. `None` where nobody says.
    pub fn of(pid: u32) -> Option<ControlGroup> {
        Self::among(&fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?, Path::new(MOUNTED))
    }

    /// By what `/proc/PID/cgroup` says: `NUMBER:CONTROLLERS:PATH`.
    fn among(groups: &str, mounted: &Path) -> Option<ControlGroup> {
        VERSIONS.iter().find_map(|names| {
            let path = groups.lines().find_map(|line| {
                let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
                controllers.split(',').any(|name| name == names.controller).then_some(path)
            })?;
            let root = mounted.join(names.folder);
            let own = root.join(path.trim_start_matches('/'));
            // In a container its own group may be mounted as the root of all, under a path that is the machine's.
            let own = if own.join(names.usage).exists() { own } else { root.clone() };
            let folders = own.ancestors().take_while(|folder| folder.starts_with(&root)).map(Path::to_path_buf);
            Some(ControlGroup { names, folders: folders.collect() }).filter(|_| own.join(names.events).exists())
        })
    }

    /// How many processes of the group the kernel has killed for lack of memory.
    pub fn kills(&self) -> Option<u64> {
        figure(&fs::read_to_string(self.folders.first()?.join(self.names.events)).ok()?, "oom_kill ")
    }

    /// Bytes that the group may still have. `None` without a limit.
    pub fn free_memory(&self) -> Option<u64> {
        let free = |folder: &PathBuf| {
            let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
            let limit: u64 = read(self.names.limit)?.trim().parse().ok()?;
            let usage: u64 = read(self.names.usage)?.trim().parse().ok()?;
            let reclaimable = figure(&read("memory.stat")?, self.names.reclaimable).unwrap_or(0);
            // The first version says a limit that is as good as none.
            (limit < 1 << 62).then(|| limit.saturating_sub(usage.saturating_sub(reclaimable)))
        };
        self.folders.iter().filter_map(free).min()
    }
}

/// `oom_kill 3` among the lines of a file.
fn figure(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder as the kernel's, with these files.
    fn mounted(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let root = std::env::temp_dir().join(format!("poolscope-groups-{}-{name}", std::process::id()));
        for (file, text) in files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().expect("it has a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        root
    }

    #[test]
    fn the_second_version_has_limits_of_groups_around_it() {
        let files = [
            ("a.slice/b/memory.max", "max\n"),
            ("a.slice/b/memory.current", "3000000\n"),
            ("a.slice/b/memory.stat", "anon 1\ninactive_file 1000000\n"),
            ("a.slice/b/memory.events", "low 0\nmax 17\noom 2\noom_kill 1\noom_group_kill 0\n"),
            ("a.slice/memory.max", "9000000\n"),
            ("a.slice/memory.current", "4000000\n"),
            ("a.slice/memory.stat", "inactive_file 500000\n"),
        ];
        let root = mounted("two", &files);
        let group = ControlGroup::among("1:name=systemd:/x\n0::/a.slice/b\n", &root).expect("a group");
        assert_eq!((group.kills(), group.free_memory()), (Some(1), Some(5_500_000)));
        fs::remove_dir_all(root).expect("removed");
    }

    #[test]
    fn the_first_version_in_a_container_is_mounted_as_the_root() {
        let files = [
            ("memory/memory.limit_in_bytes", "104857600\n"),
            ("memory/memory.usage_in_bytes", "100000000\n"),
            ("memory/memory.stat", "cache 7\ntotal_inactive_file 2000000\n"),
            ("memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 12\n"),
        ];
        let root = mounted("one", &files);
        let groups = "9:name=systemd:/x\n4:cpu,memory:/docker/12\n0::/\n";
        let group = ControlGroup::among(groups, &root).expect("a group");
        assert_eq!((group.kills(), group.free_memory()), (Some(12), Some(6_857_600)));
        fs::write(root.join("memory/memory.limit_in_bytes"), "9223372036854771712\n").expect("written");
        assert_eq!(group.free_memory(), None);
        fs::remove_dir_all(root).expect("removed");
    }

    #[test]
    fn without_such_files_there_is_no_group() {
        assert!(ControlGroup::among("0::/\n", Path::new("/nowhere")).is_none());
        assert!(ControlGroup::among("", Path::new(MOUNTED)).is_none());
    }
}
