//! Where the segments of a check lie: in a folder of its own, on a file system with room for them.
//!
//! Root's programs become other users, and make their segments as these (setpriv, gosu, servers). So each user may make
//! files in root's folder, as in `/tmp`: who knows its name, which lies in a folder that nobody else may list.

use std::collections::hash_map::RandomState;
use std::fs::{self, DirBuilder, File, Permissions};
use std::hash::{BuildHasher, Hasher};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use color_eyre::eyre::{Result, WrapErr};
use poolscope_profiler::segment::folders;
use poolscope_profiler::words::figures;
use rustix::fs::{FlockOperation, flock};

/// Room for the records of four million blocks. A container's `/dev/shm` has 64 MiB unless somebody said otherwise.
const ENOUGH: u64 = 256 << 20;
/// A file system with less than this had no room for what was asked.
const FULL: u64 = 1 << 20;

/// How the names of such folders begin.
const NAME: &str = "poolscope-check-";

/// A folder for the segments of this run alone.
pub(super) struct Folder {
    /// Where they lie.
    path: PathBuf,
    /// What goes at the end.
    whole: PathBuf,
    /// It is locked as long as the check runs (flock(2)), which whoever cleans up can see, in other containers too.
    _lock: File,
}

impl Folder {
    /// Beside the usual folder of segments, or among temporary files where there is more room and the user has named no
    /// folder, or where it can't be made.
    pub(super) fn new() -> Result<Folder> {
        let (usual, temporary) = (folders::segment_dir(), std::env::temp_dir());
        let beside = usual.parent().unwrap_or(Path::new("/"));
        let free = |path: &Path| Room::of(path).map_or(0, |room| room.free);
        let is_short = !folders::is_chosen() && free(beside) < free(&temporary).min(ENOUGH);
        let [first, other] = if is_short { [&temporary, beside] } else { [beside, &temporary] };
        Self::below(first).or_else(|_| Self::below(other))
    }

    fn below(parent: &Path) -> Result<Folder> {
        let now = SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let whole = parent.join(format!("{NAME}{}-{:08x}", std::process::id(), now.subsec_nanos()));
        let failed = || format!("cannot create the folder {}", whole.display());
        DirBuilder::new().mode(0o700).create(&whole).wrap_err_with(failed)?;
        let lock = File::open(&whole).wrap_err_with(failed)?;
        let _ = flock(&lock, FlockOperation::NonBlockingLockExclusive);
        let mut folder = Folder { path: whole.clone(), whole: whole.clone(), _lock: lock };
        if rustix::process::geteuid().is_root() {
            folder.path = whole.join(format!("{:016x}", RandomState::new().build_hasher().finish()));
            DirBuilder::new().mode(0o700).create(&folder.path).wrap_err_with(failed)?;
            // Whatever the mask of new files says.
            fs::set_permissions(&folder.path, Permissions::from_mode(0o1777)).wrap_err_with(failed)?;
            fs::set_permissions(&whole, Permissions::from_mode(0o711)).wrap_err_with(failed)?;
        }
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.whole);
    }
}

/// Folders of this user's whose check was killed, and left what its processes had recorded.
pub(crate) fn abandoned() -> impl Iterator<Item = PathBuf> {
    let usual = folders::segment_dir();
    let mut parents = vec![usual.parent().unwrap_or(Path::new("/")).to_owned(), std::env::temp_dir()];
    parents.dedup();
    let entries = parents.into_iter().filter_map(|parent| fs::read_dir(parent).ok()).flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| is_of_a_check(path) && is_abandoned(path).unwrap_or(false))
}

fn is_of_a_check(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(NAME.as_bytes()))
}

/// Whether a folder is this user's, and nobody has locked it since it was made, a moment ago at least.
fn is_abandoned(path: &Path) -> std::io::Result<bool> {
    /// A check locks its folder as soon as it has made it.
    const MOMENT: Duration = Duration::from_secs(2);
    let about = fs::symlink_metadata(path)?;
    let age = SystemTime::now().duration_since(about.modified()?).unwrap_or_default();
    if !about.is_dir() || about.uid() != rustix::process::geteuid().as_raw() || age < MOMENT {
        return Ok(false);
    }
    Ok(flock(&File::open(path)?, FlockOperation::NonBlockingLockExclusive).is_ok())
}

/// Bytes of a file system.
struct Room {
    all: u64,
    free: u64,
}

impl Room {
    fn of(path: &Path) -> Option<Room> {
        let about = rustix::fs::statvfs(path).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(about.f_frsize);
        // A tmpfs without a bound says that it has no blocks at all.
        let free = if about.f_blocks == 0 { u64::MAX } else { bytes(about.f_bavail) };
        Some(Room { all: bytes(about.f_blocks), free })
    }
}

/// What to do about records that found no room in a segment: where its file system is full.
pub(super) fn remedy(segment: &Path) -> Option<String> {
    // This run's folder is gone when somebody reads it.
    let is_whole = |path: &&Path| is_of_a_check(path);
    let place = segment.ancestors().find(is_whole)?.parent()?;
    let room = Room::of(place).filter(|room| room.free < FULL)?;
    Some(format!(
        "{} is full ({}): let POOLSCOPE_DIR name a folder with more room, or give a container more (--shm-size)",
        place.display(),
        figures::bytes(room.all as f64)
    ))
}
