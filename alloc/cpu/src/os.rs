//! The operating system: memory, clock, identity. Nothing here allocates or keeps a lock.

use core::ffi::{CStr, c_int, c_void};

/// Runs `f` and restores errno.
pub fn keep_errno<T>(f: impl FnOnce() -> T) -> T {
    // SAFETY: __errno_location always points at this thread's errno.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let result = f();
        *errno = before;
        result
    }
}

/// Sets errno.
pub fn set_errno(value: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value }
}

/// Maps `len` bytes of zeroed private memory; null on failure. Nothing is charged until it is touched.
pub fn map(len: usize) -> *mut u8 {
    keep_errno(|| {
        // SAFETY: a new anonymous mapping touches nothing that exists.
        let p = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if p == libc::MAP_FAILED { core::ptr::null_mut() } else { p.cast() }
    })
}

/// Reserves `len` bytes of addresses that can't be touched yet; null on failure. What is only reserved counts for
/// nothing: not as memory under strict overcommit, not in a core dump, not for valgrind.
pub fn reserve(len: usize) -> *mut u8 {
    keep_errno(|| {
        // SAFETY: as in `map`.
        let p = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                len,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if p == libc::MAP_FAILED { core::ptr::null_mut() } else { p.cast() }
    })
}

/// Makes a part of what [`reserve`] returned usable. False if the system has no memory for it.
///
/// # Safety
/// The range is the caller's.
pub unsafe fn commit(p: *mut u8, len: usize) -> bool {
    // SAFETY: the caller's promise.
    keep_errno(|| unsafe { libc::mprotect(p.cast(), len, libc::PROT_READ | libc::PROT_WRITE) == 0 })
}

/// Unmaps what [`map`] or [`reserve`] returned.
///
/// # Safety
/// Nothing refers to the range any more.
pub unsafe fn unmap(p: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    keep_errno(|| unsafe { libc::munmap(p.cast(), len) });
}

/// Gives the memory of a page range back to the kernel; it reads as zero afterwards. Returns whether it worked.
///
/// # Safety
/// The range is the pool's own, private, anonymous and holds nothing of use.
pub unsafe fn decommit(p: *mut u8, len: usize) -> bool {
    // SAFETY: the caller's promise.
    keep_errno(|| unsafe { libc::madvise(p.cast::<c_void>(), len, libc::MADV_DONTNEED) == 0 })
}

/// Moves the memory behind `len` bytes at `from` to `to`, without copying; `from` reads as zero afterwards
/// (`MREMAP_DONTUNMAP`, Linux 5.7). Returns whether it worked.
///
/// # Safety
/// Both ranges are the pool's own, private and anonymous, whole pages, apart from each other; `to` holds nothing of use.
pub unsafe fn move_pages(from: *mut u8, to: *mut u8, len: usize) -> bool {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    // SAFETY: the caller's promise.
    keep_errno(|| unsafe { libc::mremap(from.cast(), len, len, flags, to.cast::<c_void>()) != libc::MAP_FAILED })
}

/// Nanoseconds of a clock (no system call: the vdso answers).
pub fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the timespec.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Kernel id of the calling thread.
pub fn thread_id() -> u32 {
    // SAFETY: a system call without arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Process id of the caller, from the kernel.
pub fn process_id() -> u32 {
    // SAFETY: a system call without arguments.
    unsafe { libc::getpid() as u32 }
}

/// Reads the start of a file; the number of bytes read, 0 on any error.
pub fn read_file(path: &CStr, buffer: &mut [u8]) -> usize {
    keep_errno(|| {
        // SAFETY: open, read and close with valid arguments; the buffer's length bounds the read.
        unsafe {
            let fd = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
            if fd < 0 {
                return 0;
            }
            let mut len = 0;
            while len < buffer.len() {
                let n = libc::read(fd, buffer[len..].as_mut_ptr().cast(), buffer.len() - len);
                if n <= 0 {
                    break;
                }
                len += n as usize;
            }
            libc::close(fd);
            len
        }
    })
}

/// A page whose first word a forked child finds zeroed (`MADV_WIPEONFORK`, Linux 4.14), also after a raw `clone`
/// for which no `pthread_atfork` handler runs; null if the kernel refuses.
pub fn map_wiped_on_fork() -> *mut u8 {
    let page = map(4096);
    if page.is_null() {
        return page;
    }
    // SAFETY: the page was just mapped.
    keep_errno(|| unsafe {
        if libc::madvise(page.cast(), 4096, libc::MADV_WIPEONFORK) != 0 {
            libc::munmap(page.cast(), 4096);
            return core::ptr::null_mut();
        }
        page
    })
}

/// A number that nobody can guess, or at least one that differs between processes, images and moments.
pub fn random_seed() -> u64 {
    let mut random = 0u64;
    // SAFETY: writes at most 8 bytes into the word. What it can't fill stays 0.
    keep_errno(|| unsafe { libc::getrandom((&raw mut random).cast(), 8, libc::GRND_NONBLOCK) });
    random ^ clock_ns(libc::CLOCK_MONOTONIC) ^ u64::from(process_id()) << 32
}
