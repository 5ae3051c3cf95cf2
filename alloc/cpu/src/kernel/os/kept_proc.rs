//! What `/proc` says of this process, for one that finds it by its path no more: it has another root (chroot(2)), has
//! closed the file system to itself (landlock(7)), or may open nothing more (`RLIMIT_NOFILE`).

use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicU32, Ordering};

use super::kept::{Descriptor, Kept};
use super::{keep_errno, path_with, process_id};
use crate::kernel::system_call::system_call;

/// What is kept of this process alone.
const OWN: [&CStr; 4] =
    [c"/proc/thread-self/maps", c"/proc/self/task", c"/proc/thread-self/fdinfo", c"/proc/self/timers"];

/// `/proc` itself, which a forked child can use, too.
static FOLDER: Kept = Kept::none();
static FILES: [Kept; OWN.len()] = [const { Kept::none() }; OWN.len()];
/// The process that [`FILES`] are of.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Opens what is to be kept. To be called at the start of a process that will have to say at its end what it consists
/// of, in its forked children, and again before it may find them no more. What is kept already stays: by now another
/// root may have an empty `/proc`.
pub fn keep_proc() {
    let is_own = OWNER.load(Ordering::Relaxed) == process_id();
    keep_errno(|| {
        if FOLDER.number().is_none()
            && let Some(folder) = Descriptor::open(c"/proc", libc::O_RDONLY)
        {
            FOLDER.keep(&folder);
        }
        for (kept, path) in FILES.iter().zip(OWN) {
            match by_path(path) {
                Some(file) => kept.keep(&file),
                None if !is_own => kept.end(),
                None => {}
            }
        }
    });
    OWNER.store(process_id(), Ordering::Relaxed);
}

/// Opens a file or a folder to read it: by its path, if it is there, and else what is kept of `/proc`. errno may change.
pub fn open(path: &CStr) -> Option<Descriptor> {
    by_path(path).or_else(|| {
        let at = OWN.iter().position(|&own| own == path).filter(|_| OWNER.load(Ordering::Relaxed) == process_id())?;
        let kept = FILES[at].descriptor()?;
        // SAFETY: a system call on numbers.
        let is_at_its_start = unsafe { system_call!(libc::SYS_lseek, kept.number(), 0usize, libc::SEEK_SET) == 0 };
        is_at_its_start.then_some(kept)
    })
}

/// Opens what is at a path, by the kept folder if it is not there any more.
fn by_path(path: &CStr) -> Option<Descriptor> {
    let by_folder = || Descriptor::open_at(FOLDER.descriptor()?.number(), below_proc(path)?, libc::O_RDONLY, 0);
    Descriptor::open(path, libc::O_RDONLY).or_else(by_folder)
}

/// A path below `/proc`, as it is from there.
fn below_proc(path: &CStr) -> Option<&CStr> {
    CStr::from_bytes_with_nul(path.to_bytes_with_nul().strip_prefix(b"/proc/")?).ok()
}

/// Whether a descriptor is an instance of epoll; false if that is not known. Its link says so also where no file can be
/// opened.
pub fn is_epoll(descriptor: u32) -> bool {
    const NAME: &[u8] = b"anon_inode:[eventpoll]";
    let mut buffer = [0; 64];
    let path = path_with(b"/proc/thread-self/fd/", descriptor, b"", &mut buffer);
    let read = |folder: c_int, path: &CStr| {
        let mut name = [0u8; NAME.len()];
        // SAFETY: the path ends with zero, and the kernel writes at most as many bytes as there are.
        let len = unsafe { system_call!(libc::SYS_readlinkat, folder, path.as_ptr(), name.as_mut_ptr(), name.len()) };
        (len > 0).then(|| name == NAME)
    };
    keep_errno(|| {
        let by_folder = || read(FOLDER.descriptor()?.number(), below_proc(path)?);
        read(libc::AT_FDCWD, path).or_else(by_folder).unwrap_or(false)
    })
}

#[cfg(test)]
mod tests {
    use libc::{epoll_create1, eventfd};

    use super::*;

    #[test]
    fn a_path_below_proc_is_found_from_there() {
        assert_eq!(below_proc(c"/proc/self/maps"), Some(c"self/maps"));
        assert_eq!(below_proc(c"/proc"), None);
        assert_eq!(below_proc(c"/sys/kernel"), None);
    }

    #[test]
    fn what_is_kept_is_of_this_process_and_is_kept_anew() {
        for _ in 0..2 {
            keep_proc();
            assert!(FOLDER.number().is_some() && FILES.iter().all(|kept| kept.number().is_some()));
            assert_eq!(OWNER.load(Ordering::Relaxed), process_id());
        }
    }

    #[test]
    fn instances_of_epoll_are_known_by_their_link() {
        // SAFETY: makes descriptors, and closes them.
        unsafe {
            let (epoll, event) = (epoll_create1(libc::EPOLL_CLOEXEC), eventfd(0, libc::EFD_CLOEXEC));
            assert!(is_epoll(epoll as u32) && !is_epoll(event as u32) && !is_epoll(u32::MAX));
            libc::close(epoll);
            libc::close(event);
        }
    }
}
