//! The segment's file and those beside it: where they lie, who may have made them, and that their blocks exist before
//! they are touched.
//!
//! No file is kept open: it is opened by its path whenever a part of it is to exist, and closed again. Only what every
//! segment has from the start comes while the new file is still open. A process that changes who it is, or where its
//! paths lead, keeps descriptors from then on ([`keep_open`]).

use core::ffi::CStr;

use poolscope_wire::trace::TRACE_SUFFIX;

use super::process_start::Start;
use super::{HEAD_LEN, blocks};
use crate::kernel::message::decimal;
use crate::kernel::os::{self, Descriptor, Kept};
use crate::kernel::system_call::system_call;
use crate::settings;

const PATH_MAX: usize = 512;

/// Why there is no file of the length that a segment has at first.
pub(super) const NO_ROOM: &str = "its file system is full, or files may not be so long (ulimit -f)";

/// Path of the segment's file, for growing and removing it; empty if there is no file.
static mut PATH: [u8; PATH_MAX] = [0; PATH_MAX];

/// Its descriptor, of a process that may not find it by its path any more.
static OWN: Kept = Kept::none();
/// The same of a file beside it.
static BESIDE: Kept = Kept::none();
/// The same of their folder, in which a forked child makes its own.
static FOLDER: Kept = Kept::none();

/// How a folder is opened in which files are made.
const AS_FOLDER: libc::c_int = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;

/// The segment's file, open.
pub(super) struct File(Descriptor);

impl File {
    /// Allocates its blocks from `offset` on. False if the file system is full.
    pub(super) fn allocate(&self, offset: u64, len: u64) -> bool {
        os::keep_errno(|| blocks::allocate(self.0.number(), offset, len))
    }
}

/// Why there is no folder.
const NO_FOLDER: &str = "its folder can't be made";

/// Whether a user's files are safe in a folder: nobody else may put files there, or remove them. Or it is root's, and as
/// `/tmp` is: nobody touches the files of others.
fn may_be_used(folder: &Descriptor, user: u32) -> Result<(), &'static str> {
    // SAFETY: a string that ends with zero.
    let about = unsafe { os::file_state(folder.number(), c"".as_ptr()) }.ok_or(NO_FOLDER)?;
    let is_everybodys = about.st_uid == 0 && about.st_mode & libc::S_ISVTX != 0;
    if is_everybodys || (about.st_uid == user && about.st_mode & 0o022 == 0) {
        return Ok(());
    }
    Err("its folder belongs to another user, or others may write to it")
}

/// Makes the file and maps it over `len` bytes that are reserved at `place`, of which the header is usable then.
///
/// # Safety
/// The reserved addresses are the caller's.
pub(super) unsafe fn create(generation: u64, start: &Start, place: *mut u8, len: usize) -> Result<File, &'static str> {
    let mut path = PathBuffer::new();
    // SAFETY: system calls on strings that end with zero, and on the descriptor of the file.
    os::keep_errno(|| unsafe {
        let uid = os::user_id();
        match settings::current().dir() {
            Some(dir) => path.push(dir.to_bytes()),
            None => {
                path.push(b"/dev/shm/poolscope-");
                path.push_number(u64::from(uid));
            }
        }
        let kept = FOLDER.descriptor().filter(|kept| may_be_used(kept, uid).is_ok());
        // By its path it may not be found any more, or another one.
        let is_kept = kept.is_some();
        let folder = match kept {
            Some(kept) => kept,
            None => {
                libc::mkdir(path.as_ptr(), 0o700);
                Descriptor::open(path.as_c_str(), AS_FOLDER).ok_or(NO_FOLDER)?
            }
        };
        may_be_used(&folder, uid)?;
        let pid = os::process_id();
        remove_older(folder.number(), pid, start);
        path.push(b"/");
        let name_at = path.len;
        path.push_number(u64::from(pid));
        path.push(b".");
        path.push_hex(generation);
        if path.overflow {
            return Err("the path of its folder is too long");
        }
        let name = path.from(name_at);
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        let Some(opened) = Descriptor::open_at(folder.number(), name, flags, 0o600) else {
            return Err("its file can't be made");
        };
        let file = File(opened);
        let allocated = file.allocate(0, HEAD_LEN as u64);
        let p = if allocated {
            let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED;
            libc::mmap(place.cast(), len, libc::PROT_NONE, flags, file.0.number(), 0)
        } else {
            libc::MAP_FAILED
        };
        if p == libc::MAP_FAILED || !os::commit(place, HEAD_LEN) {
            system_call!(libc::SYS_unlinkat, folder.number(), name.as_ptr(), 0);
            return Err(if allocated { "it can't be mapped" } else { NO_ROOM });
        }
        if is_kept {
            OWN.keep(&file.0);
        }
        // On a disk, each first touch of a page would else bring 31 others along, of which most are never used.
        libc::madvise(place.cast(), len, libc::MADV_RANDOM);
        (&raw mut PATH).write(path.bytes);
        Ok(file)
    })
}

/// Removes the segments of earlier images of this process (`exec` keeps the pid). Those of dead processes that had the
/// same id stay: somebody may still want to read them.
///
/// # Safety
/// `folder` is an open folder.
unsafe fn remove_older(folder: libc::c_int, pid: u32, start: &Start) {
    let mut prefix = PathBuffer::new();
    prefix.push_number(u64::from(pid));
    prefix.push(b".");
    // SAFETY: the buffer bounds what the kernel writes; records are walked within the length that it returned. The C
    // library's readdir would allocate.
    unsafe {
        let Some(folder) = Descriptor::open_at(folder, c".", libc::O_RDONLY | libc::O_DIRECTORY, 0) else { return };
        let fd = folder.number();
        let mut buffer = [0u64; 512];
        loop {
            let n = system_call!(libc::SYS_getdents64, fd, buffer.as_mut_ptr(), size_of_val(&buffer));
            if n <= 0 {
                break;
            }
            let mut at = 0;
            while at < n as usize {
                let entry = buffer.as_ptr().cast::<u8>().add(at);
                // struct linux_dirent64: ino u64, off i64, reclen u16, type u8, name.
                let length = entry.add(16).cast::<u16>().read_unaligned();
                let name = CStr::from_ptr(entry.add(19).cast());
                if name.to_bytes().starts_with(&prefix.bytes[..prefix.len])
                    && Start::of_segment(fd, name).is_some_and(|found| found == *start)
                {
                    libc::unlinkat(fd, name.as_ptr(), 0);
                }
                at += usize::from(length.max(1));
            }
        }
    }
}

/// Keeps the files open, and their folder: by their paths this process may not find them any more, or not be allowed to
/// open them. The segment is this process's own; if it is not, `has_own` is false, and only the folder is kept. The
/// caller holds the sampler's lock.
pub fn keep_open(has_own: bool) {
    os::keep_errno(|| {
        let (Some(own), Some(trace)) = (path_beside(""), path_beside(TRACE_SUFFIX)) else { return };
        let keep = |kept: &Kept, path: &CStr, flags| {
            if let Some(opened) = Descriptor::open(path, flags) {
                kept.keep(&opened);
            }
        };
        if has_own {
            keep(&OWN, own.as_c_str(), libc::O_RDWR | libc::O_NOFOLLOW);
            keep(&BESIDE, trace.as_c_str(), libc::O_RDWR | libc::O_NOFOLLOW);
        }
        // One that is kept already may be that of an earlier root.
        if FOLDER.descriptor().is_some_and(|kept| may_be_used(&kept, os::user_id()).is_ok()) {
            return;
        }
        let mut folder = PathBuffer::new();
        let bytes = own.as_c_str().to_bytes();
        folder.push(&bytes[..bytes.iter().rposition(|&byte| byte == b'/').unwrap_or(0)]);
        keep(&FOLDER, folder.as_c_str(), AS_FOLDER);
    });
}

/// Removes the file, if there is one.
pub(super) fn remove() {
    if let Some(path) = path_beside("") {
        unlink(&path);
    }
}

/// Removes a file of the folder.
fn unlink(path: &PathBuffer) {
    // SAFETY: strings that end with zero.
    os::keep_errno(|| unsafe {
        if libc::unlink(path.as_ptr()) != 0
            && let Some(folder) = FOLDER.descriptor()
        {
            system_call!(libc::SYS_unlinkat, folder.number(), path.name().as_ptr(), 0);
        }
    });
}

/// Forgets the file: from now on there is none.
pub(super) fn forget() {
    // SAFETY: the caller holds the sampler's lock, as all who touch the path do.
    unsafe { PATH[0] = 0 };
    OWN.end();
    BESIDE.end();
}

/// Opens the segment's file; `None` also if there is none. errno may change. A sample on a small stack comes here: the
/// path is not copied.
fn open_own(access: libc::c_int) -> Option<Descriptor> {
    let path = &raw const PATH;
    // SAFETY: the path is a string that ends with zero, and only changes when a segment is made.
    let path = unsafe { CStr::from_ptr((*path).as_ptr().cast()) };
    if path.is_empty() {
        return None;
    }
    Descriptor::open(path, access | libc::O_NOFOLLOW).or_else(|| OWN.descriptor())
}

/// Opens the file beside it whose name ends with `suffix`. errno may change.
fn open_beside(suffix: &str, access: libc::c_int) -> Option<Descriptor> {
    let path = path_beside(suffix)?;
    Descriptor::open(path.as_c_str(), access | libc::O_NOFOLLOW).or_else(|| BESIDE.descriptor())
}

/// What came of [`allocate`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Allocated {
    /// The blocks are there.
    Yes,
    /// The file system is full, or the file is gone.
    No,
    /// Somebody has cut the file off. Longer again it would read as zero, and nobody would notice.
    CutOff,
}

/// Allocates the blocks of the file, of at least `least` bytes, from `offset` on, which it does not have yet, so that
/// touching them can't fail.
pub(super) fn allocate(offset: u64, len: u64, least: u64) -> Allocated {
    os::keep_errno(|| {
        if !is_there() {
            return Allocated::Yes;
        }
        let Some(file) = open_own(libc::O_RDWR) else { return Allocated::No };
        // SAFETY: a string that ends with zero.
        let state = unsafe { os::file_state(file.number(), c"".as_ptr()) };
        if state.is_some_and(|state| (state.st_size as u64) < least) {
            Allocated::CutOff
        } else if blocks::allocate(file.number(), offset, len) {
            Allocated::Yes
        } else {
            Allocated::No
        }
    })
}

/// Gives the memory of whole pages of the file back, so that they read as zero. They are to be allocated before they
/// are touched again. Returns whether it worked: not where the file can't be opened,
/// so that nothing goes which could not be had again.
pub(super) fn release(offset: u64, len: u64) -> bool {
    os::keep_errno(|| {
        let Some(file) = open_own(libc::O_RDWR) else { return false };
        let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: the caller's pages, which nobody needs.
        unsafe { system_call!(libc::SYS_fallocate, file.number(), how, offset, len) == 0 }
    })
}

/// Whether there is a file.
pub(super) fn is_there() -> bool {
    // SAFETY: the path is only changed under the sampler's lock, which the caller holds.
    unsafe { PATH[0] != 0 }
}

/// The path of a file beside the segment's, whose name ends with `suffix`. `None` if the segment has no file.
fn path_beside(suffix: &str) -> Option<PathBuffer> {
    let mut path = PathBuffer::new();
    let own = &raw const PATH;
    // SAFETY: the path is a string that ends with zero, and only changes when a segment is made.
    let own = unsafe { CStr::from_ptr((*own).as_ptr().cast()) };
    if own.is_empty() {
        return None;
    }
    path.push(own.to_bytes());
    path.push(suffix.as_bytes());
    (!path.overflow).then_some(path)
}

/// Makes a file of `len` bytes beside the segment's and maps it; one of this name that is there goes. `None` without a
/// folder or room.
pub fn create_beside(suffix: &str, len: usize) -> Option<*mut u8> {
    let path = path_beside(suffix)?;
    os::keep_errno(|| {
        unlink(&path);
        BESIDE.end();
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        let opened = Descriptor::open_at(libc::AT_FDCWD, path.as_c_str(), flags, 0o600);
        let opened = opened.or_else(|| {
            let made = Descriptor::open_at(FOLDER.descriptor()?.number(), path.name(), flags, 0o600)?;
            BESIDE.keep(&made);
            Some(made)
        });
        map_part(&opened?, 0, len)
    })
}

/// Bytes for which the file system of a file beside the segment's has room, as far as it says.
pub fn room_beside(suffix: &str) -> u64 {
    let Some(path) = path_beside(suffix) else { return 0 };
    let mut about = core::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: a string that ends with zero, and memory for the answer, of which zeroes are one.
    os::keep_errno(|| unsafe {
        let result = system_call!(libc::SYS_statfs, path.as_ptr(), about.as_mut_ptr());
        let about = about.assume_init();
        // A tmpfs without a bound says that it has no blocks at all.
        if result != 0 || about.f_blocks == 0 { u64::MAX } else { about.f_bavail.saturating_mul(about.f_bsize as u64) }
    })
}

/// Makes `len` bytes from `offset` on of a file beside the segment's exist, and maps them. `None` without room.
pub fn map_beside(suffix: &str, offset: u64, len: usize) -> Option<*mut u8> {
    os::keep_errno(|| map_part(&open_beside(suffix, libc::O_RDWR)?, offset, len))
}

/// Maps a part of a file, after its blocks were allocated so that touching them can't fail. A forked child does not get
/// the mapping.
fn map_part(file: &Descriptor, offset: u64, len: usize) -> Option<*mut u8> {
    if !blocks::allocate(file.number(), offset, len as u64) {
        return None;
    }
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping touches nothing that exists.
    unsafe {
        let p = libc::mmap(core::ptr::null_mut(), len, access, libc::MAP_SHARED, file.number(), offset as i64);
        if p == libc::MAP_FAILED {
            return None;
        }
        libc::madvise(p, len, libc::MADV_DONTFORK);
        Some(p.cast())
    }
}

/// Gives back the memory of a file beside the segment's, also of parts that are mapped: they read as zero.
pub fn empty_beside(suffix: &str) {
    os::keep_errno(|| {
        let Some(file) = open_beside(suffix, libc::O_RDWR) else { return };
        let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: what is longer than any trace; readers find zeroes.
        unsafe { system_call!(libc::SYS_fallocate, file.number(), how, 0u64, 1u64 << 44) };
    });
}

/// Removes a file beside the segment's.
pub fn remove_beside(suffix: &str) {
    if let Some(path) = path_beside(suffix) {
        unlink(&path);
        BESIDE.end();
    }
}

/// Whether other processes can see the segment.
pub fn is_in_a_file() -> bool {
    path_beside("").is_some()
}

/// Whether another process has the segment's file locked (`flock`), as a recorder does as long as it lives.
pub fn is_locked() -> bool {
    os::keep_errno(|| {
        let Some(file) = open_own(libc::O_RDONLY) else { return false };
        // SAFETY: system calls on numbers.
        unsafe {
            let is_free = libc::flock(file.number(), libc::LOCK_SH | libc::LOCK_NB) == 0;
            // A kept descriptor would keep it.
            is_free.then(|| libc::flock(file.number(), libc::LOCK_UN)).is_none()
        }
    })
}

/// A path that ends with zero, under construction.
struct PathBuffer {
    bytes: [u8; PATH_MAX],
    len: usize,
    overflow: bool,
}

impl PathBuffer {
    fn new() -> Self {
        PathBuffer { bytes: [0; PATH_MAX], len: 0, overflow: false }
    }

    fn as_ptr(&self) -> *const libc::c_char {
        self.bytes.as_ptr().cast()
    }

    fn as_c_str(&self) -> &CStr {
        self.from(0)
    }

    /// The part from a byte on.
    fn from(&self, at: usize) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes[at.min(self.len)..]).unwrap_or(c"")
    }

    /// The part behind the last slash.
    fn name(&self) -> &CStr {
        self.from(self.bytes.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1))
    }

    fn push(&mut self, part: &[u8]) {
        match self.bytes.get_mut(self.len..self.len + part.len()) {
            Some(place) if self.len + part.len() < PATH_MAX => {
                place.copy_from_slice(part);
                self.len += part.len();
            }
            _ => self.overflow = true,
        }
    }

    fn push_number(&mut self, value: u64) {
        self.push(decimal(value, &mut [0; 20]));
    }

    fn push_hex(&mut self, value: u64) {
        let digits: [u8; 16] = core::array::from_fn(|i| b"0123456789abcdef"[(value >> (60 - 4 * i) & 15) as usize]);
        self.push(&digits);
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::format;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn segments_of_this_process_are_replaced_and_those_of_dead_ones_with_its_id_stay() {
        let folder = std::env::temp_dir().join(format!("psc-older-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let ours = Start::of_this_process();
        let write = |name: &str, ticks: u64, boot_id: [u8; 16]| {
            let mut bytes = std::vec![0; poolscope_wire::HEADER_LEN];
            bytes[40..48].copy_from_slice(&ticks.to_ne_bytes());
            bytes[48..64].copy_from_slice(&boot_id);
            std::fs::write(folder.join(name), bytes).unwrap();
        };
        write("77.0001", ours.ticks, ours.boot_id);
        write("77.0002", ours.ticks - 1, ours.boot_id);
        write("77.0003", ours.ticks, [0; 16]);
        write("771.0001", ours.ticks, ours.boot_id);
        std::fs::write(folder.join("77.0004"), "no segment").unwrap();
        let path = CString::new(folder.as_os_str().as_bytes()).unwrap();
        let opened = Descriptor::open(&path, AS_FOLDER).unwrap();
        // SAFETY: an open folder.
        unsafe { remove_older(opened.number(), 77, &ours) };
        let mut left: std::vec::Vec<_> =
            std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(left, ["77.0002", "77.0003", "77.0004", "771.0001"]);
    }
}
