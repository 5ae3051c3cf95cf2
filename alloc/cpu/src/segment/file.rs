//! The segment's file and those beside it: where they lie, who may have made them, and that their blocks exist before
//! they are touched.
//!
//! No file is kept open: it is opened by its path whenever a part of it is to exist, and closed again. Only what every
//! segment has from the start comes while the new file is still open.

use core::ffi::CStr;

use super::process_start::Start;
use super::{HEAD_LEN, blocks};
use crate::kernel::message::decimal;
use crate::kernel::os;
use crate::kernel::system_call::system_call;
use crate::settings;

const PATH_MAX: usize = 512;

/// Why there is no file of the length that a segment has at first.
pub(super) const NO_ROOM: &str = "its file system is full, or files may not be so long (ulimit -f)";

/// Path of the segment's file, for growing and removing it; empty if there is no file.
static mut PATH: [u8; PATH_MAX] = [0; PATH_MAX];

/// The segment's file, open.
pub(super) struct File(libc::c_int);

impl File {
    /// Allocates its blocks from `offset` on. False if the file system is full.
    pub(super) fn allocate(&self, offset: u64, len: u64) -> bool {
        os::keep_errno(|| blocks::allocate(self.0, offset, len))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor is this one's.
        os::keep_errno(|| unsafe { os::close(self.0) });
    }
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
        libc::mkdir(path.as_ptr(), 0o700);
        let folder = os::file_state(libc::AT_FDCWD, path.as_ptr());
        let Some(info) = folder.filter(|info| info.st_mode & libc::S_IFMT == libc::S_IFDIR) else {
            return Err("its folder can't be made");
        };
        if info.st_uid != uid || info.st_mode & 0o022 != 0 {
            return Err("its folder belongs to another user, or others may write to it");
        }
        let pid = os::process_id();
        remove_older(path.as_ptr(), pid, start);
        path.push(b"/");
        path.push_number(u64::from(pid));
        path.push(b".");
        path.push_hex(generation);
        if path.overflow {
            return Err("the path of its folder is too long");
        }
        let fd = os::open(
            path.as_ptr(),
            libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC | libc::O_NOFOLLOW,
            0o600,
        );
        if fd < 0 {
            return Err("its file can't be made");
        }
        let file = File(fd);
        let allocated = file.allocate(0, HEAD_LEN as u64);
        let p = if allocated {
            let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED;
            libc::mmap(place.cast(), len, libc::PROT_NONE, flags, fd, 0)
        } else {
            libc::MAP_FAILED
        };
        if p == libc::MAP_FAILED || !os::commit(place, HEAD_LEN) {
            libc::unlink(path.as_ptr());
            return Err(if allocated { "it can't be mapped" } else { NO_ROOM });
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
/// `dir` is a string that ends with zero.
unsafe fn remove_older(dir: *const libc::c_char, pid: u32, start: &Start) {
    let mut prefix = PathBuffer::new();
    prefix.push_number(u64::from(pid));
    prefix.push(b".");
    // SAFETY: the buffer bounds what the kernel writes; records are walked within the length that it returned. The C
    // library's readdir would allocate.
    unsafe {
        let fd = os::open(dir, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC, 0);
        if fd < 0 {
            return;
        }
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
        os::close(fd);
    }
}

/// Removes the file, if there is one.
pub(super) fn remove() {
    let path = &raw const PATH;
    // SAFETY: the path is only changed under the sampler's lock, when a segment is made.
    unsafe {
        if (*path)[0] != 0 {
            os::keep_errno(|| libc::unlink(path.cast()));
        }
    }
}

/// Forgets the file: from now on there is none.
pub(super) fn forget() {
    // SAFETY: the caller holds the sampler's lock, as all who touch the path do.
    unsafe { PATH[0] = 0 };
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
    let path = &raw const PATH;
    // SAFETY: the path is a string that ends with zero; the caller holds the sampler's lock.
    os::keep_errno(|| unsafe {
        if (*path)[0] == 0 {
            return Allocated::Yes;
        }
        let fd = os::open(path.cast(), libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW, 0);
        if fd < 0 {
            return Allocated::No;
        }
        let state = os::file_state(fd, c"".as_ptr());
        let result = if state.is_some_and(|state| (state.st_size as u64) < least) {
            Allocated::CutOff
        } else if blocks::allocate(fd, offset, len) {
            Allocated::Yes
        } else {
            Allocated::No
        };
        os::close(fd);
        result
    })
}

/// Gives the memory of whole pages of the file back, so that they read as zero. They are to be allocated before they
/// are touched again. Returns whether it worked: not where the file can't be opened,
/// so that nothing goes which could not be had again.
pub(super) fn release(offset: u64, len: u64) -> bool {
    let path = &raw const PATH;
    // SAFETY: as in `allocate`.
    os::keep_errno(|| unsafe {
        let fd = os::open(path.cast(), libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW, 0);
        if fd < 0 {
            return false;
        }
        let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let done = system_call!(libc::SYS_fallocate, fd, how, offset, len) == 0;
        os::close(fd);
        done
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
    // SAFETY: as in `create`.
    os::keep_errno(|| unsafe {
        libc::unlink(path.as_ptr());
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC | libc::O_NOFOLLOW;
        let fd = os::open(path.as_ptr(), flags, 0o600);
        map_part(fd, 0, len)
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
    let path = path_beside(suffix)?;
    // SAFETY: as above.
    os::keep_errno(|| unsafe {
        let fd = os::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW, 0);
        map_part(fd, offset, len)
    })
}

/// Maps a part of a file, after its blocks were allocated so that touching them can't fail; closes the file. A forked
/// child does not get the mapping.
///
/// # Safety
/// `fd` is the caller's, or negative.
unsafe fn map_part(fd: libc::c_int, offset: u64, len: usize) -> Option<*mut u8> {
    if fd < 0 {
        return None;
    }
    // SAFETY: system calls on a descriptor of the caller's.
    unsafe {
        let allocated = blocks::allocate(fd, offset, len as u64);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let p = if allocated {
            libc::mmap(core::ptr::null_mut(), len, access, libc::MAP_SHARED, fd, offset as i64)
        } else {
            libc::MAP_FAILED
        };
        os::close(fd);
        if p == libc::MAP_FAILED {
            return None;
        }
        libc::madvise(p, len, libc::MADV_DONTFORK);
        Some(p.cast())
    }
}

/// Gives back the memory of a file beside the segment's, also of parts that are mapped: they read as zero.
pub fn empty_beside(suffix: &str) {
    let Some(path) = path_beside(suffix) else { return };
    // SAFETY: a string that ends with zero; the descriptor is closed.
    os::keep_errno(|| unsafe {
        let fd = os::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW, 0);
        if fd >= 0 {
            let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // Longer than any trace.
            system_call!(libc::SYS_fallocate, fd, how, 0u64, 1u64 << 44);
            os::close(fd);
        }
    });
}

/// Removes a file beside the segment's.
pub fn remove_beside(suffix: &str) {
    if let Some(path) = path_beside(suffix) {
        // SAFETY: a string that ends with zero.
        os::keep_errno(|| unsafe { libc::unlink(path.as_ptr()) });
    }
}

/// Whether other processes can see the segment.
pub fn is_in_a_file() -> bool {
    path_beside("").is_some()
}

/// Whether another process has the segment's file locked (`flock`), as a recorder does as long as it lives.
pub fn is_locked() -> bool {
    let Some(path) = path_beside("") else { return false };
    // SAFETY: system calls on a string that ends with zero and on the descriptor that came of it.
    os::keep_errno(|| unsafe {
        let fd = os::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOFOLLOW, 0);
        if fd < 0 {
            return false;
        }
        let locked = libc::flock(fd, libc::LOCK_SH | libc::LOCK_NB) != 0;
        os::close(fd);
        locked
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
        // SAFETY: a string that ends with zero.
        unsafe { remove_older(path.as_ptr(), 77, &ours) };
        let mut left: std::vec::Vec<_> =
            std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(left, ["77.0002", "77.0003", "77.0004", "771.0001"]);
    }
}
