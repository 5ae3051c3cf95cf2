//! Where the segments of a check lie: in a folder of its own, on a file system with room for them.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use color_eyre::eyre::{Result, WrapErr};
use poolscope_profiler::segment::folders;
use poolscope_profiler::words::figures;

/// Room for the records of four million blocks. A container's `/dev/shm` has 64 MiB unless somebody said otherwise.
const ENOUGH: u64 = 256 << 20;
/// A file system with less than this had no room for what was asked.
const FULL: u64 = 1 << 20;

/// A folder for the segments of this run alone.
pub(super) struct Folder(PathBuf);

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
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let path = parent.join(format!("poolscope-check-{}-{:08x}", std::process::id(), now.subsec_nanos()));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.wrap_err_with(|| format!("cannot create the folder {}", path.display()))?;
        Ok(Folder(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
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
    let place = segment.parent()?.parent()?;
    let room = Room::of(place).filter(|room| room.free < FULL)?;
    Some(format!(
        "{} is full ({}): let POOLSCOPE_DIR name a folder with more room, or give a container more (--shm-size)",
        place.display(),
        figures::bytes(room.all as f64)
    ))
}
