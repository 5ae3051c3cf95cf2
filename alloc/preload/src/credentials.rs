//! Functions by which a process changes its credentials, or where its paths lead.
//!
//! glibc changes the credentials of each thread that it knows; the scavenger's thread is not among them, and would keep
//! what the process gives up. So it ends first. It also does before functions by which a process enters other
//! namespaces: the kernel refuses most of them to one with several threads (unshare(2), setns(2)). And files that the
//! process may find no more are kept open.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use libc::{gid_t, uid_t};
use poolscope_cpu as pool;

/// A function of the C library's, found when it is first called.
pub(crate) struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Next { name, address: AtomicPtr::new(null_mut()) }
    }

    /// Its address; null if the C library has none of this name.
    pub(crate) fn find(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: looks a name up.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// For a moment after a thread is gone for everybody who looks, the kernel still counts it as one that shares the
/// process's memory, and refuses to enter a namespace as it refuses what is invalid (EINVAL). So that is asked for
/// again, for a millisecond.
const TRIES: u32 = 20;

/// Declares functions that end the scavenger and go on to the C library's, each with how often that is called again.
macro_rules! change {
    ($($name:ident($($arg:ident: $type:ty),*), $from:literal, $again:expr;)*) => { $(
        #[doc = concat!("`", stringify!($name), "` (", $from, ").")]
        ///
        /// # Safety
        /// As for the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            static NEXT: Next = Next::new(match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name has no zero byte"),
            });
            let next = NEXT.find();
            if next.is_null() {
                pool::set_errno(libc::ENOSYS);
                return -1;
            }
            let _paused = pool::before_change_of_identity();
            let mut again: u32 = $again;
            loop {
                // SAFETY: the C library's function of this name has this type; the caller's promise.
                let result = unsafe {
                    core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> c_int>(next)($($arg),*)
                };
                // SAFETY: the address of errno is the calling thread's.
                if result == 0 || again == 0 || unsafe { *libc::__errno_location() } != libc::EINVAL {
                    return result;
                }
                again -= 1;
                pool::sleep_us(50);
            }
        }
    )* };
}

change! {
    setuid(uid: uid_t), "POSIX", 0;
    setgid(gid: gid_t), "POSIX", 0;
    seteuid(uid: uid_t), "POSIX", 0;
    setegid(gid: gid_t), "POSIX", 0;
    setreuid(real: uid_t, effective: uid_t), "POSIX", 0;
    setregid(real: gid_t, effective: gid_t), "POSIX", 0;
    setresuid(real: uid_t, effective: uid_t, saved: uid_t), "Linux", 0;
    setresgid(real: gid_t, effective: gid_t, saved: gid_t), "Linux", 0;
    setgroups(count: usize, groups: *const gid_t), "BSD", 0;
    initgroups(user: *const c_char, group: gid_t), "BSD", 0;
    chroot(path: *const c_char), "BSD", 0;
    unshare(flags: c_int), "Linux", TRIES;
    setns(namespace: c_int, kind: c_int), "Linux", TRIES;
}
