//! Where segments lie: in the folder of each user, or wherever a process that runs has one mapped.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::process::{self, ProcStat, own_uid};

/// The environment variable that names another folder.
pub const DIR_VARIABLE: &str = "POOLSCOPE_DIR";

/// The folders of users lie here.
const SHARED: &str = "/dev/shm";
/// So they begin, before the user's number.
const PREFIX: &str = "poolscope-";

/// The folder that `POOLSCOPE_DIR` names.
fn chosen_dir() -> Option<PathBuf> {
    std::env::var_os(DIR_VARIABLE).filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

/// Whether the user has named a folder.
pub fn is_chosen() -> bool {
    chosen_dir().is_some()
}

/// The folder of this user's segments: `POOLSCOPE_DIR`, or `/dev/shm/poolscope-UID`.
pub fn segment_dir() -> PathBuf {
    chosen_dir().unwrap_or_else(|| user_dir(own_uid()))
}

/// The usual folder of a user's segments.
pub(super) fn user_dir(uid: u32) -> PathBuf {
    PathBuf::from(format!("{SHARED}/{PREFIX}{uid}"))
}

/// Where to look for all there is: in `POOLSCOPE_DIR` alone, or else in this user's folder, for root in those of all
/// users; and, if the second is true, wherever processes that run have a segment: they may have been started with
/// another `POOLSCOPE_DIR`, or in a container.
pub(super) fn all() -> (Vec<PathBuf>, bool) {
    match chosen_dir() {
        Some(dir) => (vec![dir], false),
        None if own_uid() == 0 => (users_dirs(|_| true), true),
        None => (vec![user_dir(own_uid())], true),
    }
}

/// What to say of where was looked.
pub fn looked_in() -> String {
    let all_users = chosen_dir().is_none() && own_uid() == 0;
    if all_users { format!("{SHARED}/{PREFIX}*") } else { segment_dir().display().to_string() }
}

/// What to say if nothing was found and other users have folders of segments, which this one can't read.
pub fn of_others() -> Option<&'static str> {
    let are_there = chosen_dir().is_none() && own_uid() != 0 && !users_dirs(|uid| uid != own_uid()).is_empty();
    are_there.then_some("Other users may have programs on the pool: `sudo poolscope list` shows them")
}

/// The folders of those users. Anyone can make a folder of such a name: one that is somebody else's does not count.
fn users_dirs(is_meant: impl Fn(u32) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(SHARED).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let uid = entry.file_name().to_str()?.strip_prefix(PREFIX)?.parse().ok()?;
            let metadata = entry.path().symlink_metadata().ok()?;
            (is_meant(uid) && metadata.is_dir() && metadata.uid() == uid).then(|| (uid, entry.path()))
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

/// How long the mappings of a process without a segment are left alone: longer after each look. To read them takes
/// that process's lock and time, of which a large one needs much, and a dashboard that waits for a program looks twice
/// a second.
const PAUSES_MS: [u64; 5] = [250, 500, 1000, 2000, 5000];

/// Processes that are remembered.
const KNOWN_MAX: usize = 10_000;

/// A process that had no segment mapped.
struct Without {
    /// It is the same one as long as this is.
    start_ticks: u64,
    looks: usize,
    looked: Instant,
}

impl Without {
    /// Whether the process that has its number, and started then, is left alone at this moment.
    fn is_left_alone(&self, start_ticks: u64, now: Instant) -> bool {
        let pause = Duration::from_millis(PAUSES_MS[self.looks.min(PAUSES_MS.len() - 1)]);
        self.start_ticks == start_ticks && now.duration_since(self.looked) < pause
    }
}

/// The segments that a process has mapped; none if it was looked at not long ago, and had none.
pub(super) fn seldom_mapped_by(pid: u32) -> Vec<PathBuf> {
    static KNOWN: Mutex<BTreeMap<u32, Without>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(start_ticks) = ProcStat::of(pid).map(|stat| stat.start_ticks) else { return Vec::new() };
    let before = known.get(&pid);
    if before.is_some_and(|before| before.is_left_alone(start_ticks, Instant::now())) {
        return Vec::new();
    }
    let looks = before.filter(|before| before.start_ticks == start_ticks).map_or(0, |before| before.looks + 1);
    let found = mapped_by(pid);
    if known.len() >= KNOWN_MAX {
        // Most of them have ended.
        known.clear();
    }
    if found.is_empty() {
        known.insert(pid, Without { start_ticks, looks, looked: Instant::now() });
    } else {
        known.remove(&pid);
    }
    found
}

/// The segments that a process has mapped, by the path that it sees, here and in its own mount namespace.
pub(super) fn mapped_by(pid: u32) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in process::mapped_paths(pid).unwrap_or_default() {
        if is_segment_name(Path::new(&path), None) {
            for candidate in [PathBuf::from(&path), PathBuf::from(format!("/proc/{pid}/root{path}"))] {
                if !found.contains(&candidate) && candidate.exists() {
                    found.push(candidate);
                }
            }
        }
    }
    found
}

/// `PID.GENERATION` with sixteen hexadecimal digits.
pub fn is_segment_name(path: &Path, pid: Option<u32>) -> bool {
    let Some((number, generation)) =
        path.file_name().and_then(|name| name.to_str()).and_then(|name| name.split_once('.'))
    else {
        return false;
    };
    let is_generation = generation.len() == 16 && generation.bytes().all(|b| b.is_ascii_hexdigit());
    is_generation && number.parse::<u32>().is_ok_and(|number| pid.is_none_or(|pid| pid == number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_a_segment_is_left_alone_for_longer_each_time() {
        let begun = Instant::now();
        let alone = |looks: usize, start_ticks: u64, after: u64| {
            let before = Without { start_ticks, looks, looked: begun };
            before.is_left_alone(7, begun + Duration::from_millis(after))
        };
        assert_eq!([0, 249, 250].map(|after| alone(0, 7, after)), [true, true, false]);
        assert_eq!([1999, 2000].map(|after| alone(3, 7, after)), [true, false]);
        assert_eq!([4999, 5000].map(|after| alone(100, 7, after)), [true, false]);
        assert!(!alone(0, 8, 0), "another process has its number");
    }
}
