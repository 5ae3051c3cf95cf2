//! Where segments lie: in the folder of each user, or wherever a process that runs has one mapped.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::process;

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

/// The folder of this user's segments: `POOLSCOPE_DIR`, or `/dev/shm/poolscope-UID`.
pub fn segment_dir() -> PathBuf {
    chosen_dir().unwrap_or_else(|| user_dir(own_uid()))
}

/// The usual folder of a user's segments.
pub(super) fn user_dir(uid: u32) -> PathBuf {
    PathBuf::from(format!("{SHARED}/{PREFIX}{uid}"))
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Where to look for all there is: in `POOLSCOPE_DIR` alone, or else in this user's folder, for root in those of all
/// users; and, if the second is true, wherever processes that run have a segment: they may have been started with another
/// `POOLSCOPE_DIR`, or in a container.
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
