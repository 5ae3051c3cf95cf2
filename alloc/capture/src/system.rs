//! Raw system calls: libc's wrappers would write `errno`.

use core::arch::asm;
use core::ptr;

#[cfg(target_arch = "x86_64")]
mod number {
    pub(super) const MMAP: usize = 9;
    pub(super) const PREAD64: usize = 17;
    pub(super) const CLOSE: usize = 3;
    pub(super) const MADVISE: usize = 28;
    pub(super) const OPENAT: usize = 257;
    pub(super) const MUNMAP: usize = 11;
    pub(super) const MPROTECT: usize = 10;
    pub(super) const RT_SIGPROCMASK: usize = 14;
    pub(super) const GETPID: usize = 39;
    pub(super) const GETTID: usize = 186;
    pub(super) const NEWFSTATAT: usize = 262;
    pub(super) const PRLIMIT64: usize = 302;
    pub(super) const READLINKAT: usize = 267;
}

#[cfg(target_arch = "aarch64")]
mod number {
    pub(super) const MMAP: usize = 222;
    pub(super) const PREAD64: usize = 67;
    pub(super) const CLOSE: usize = 57;
    pub(super) const MADVISE: usize = 233;
    pub(super) const OPENAT: usize = 56;
    pub(super) const MUNMAP: usize = 215;
    pub(super) const MPROTECT: usize = 226;
    pub(super) const RT_SIGPROCMASK: usize = 135;
    pub(super) const GETPID: usize = 172;
    pub(super) const GETTID: usize = 178;
    pub(super) const READLINKAT: usize = 78;
    pub(super) const NEWFSTATAT: usize = 79;
    pub(super) const PRLIMIT64: usize = 261;
}

const AT_FDCWD: isize = -100;
const EFAULT: isize = 14;

/// A system call of four arguments; a negative result is an error number.
///
/// # Safety
///
/// As for the system call itself.
unsafe fn syscall4(number: usize, a: usize, b: usize, c: usize, d: usize) -> isize {
    // SAFETY: the caller's promise.
    unsafe { syscall6(number, [a, b, c, d, 0, 0]) }
}

/// A system call of six arguments; a negative result is an error number.
///
/// # Safety
///
/// As for the system call itself.
unsafe fn syscall6(number: usize, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the registers are those of the kernel's calling convention; the caller answers for the call's effect.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            in("r8") e,
            in("r9") f,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a as isize => result,
            in("x1") b,
            in("x2") c,
            in("x3") d,
            in("x4") e,
            in("x5") f,
            options(nostack),
        );
    }
    result
}

/// Whether this is the process's first thread.
pub(crate) fn is_main_thread() -> bool {
    // SAFETY: neither call reads or writes memory.
    unsafe { syscall4(number::GETPID, 0, 0, 0, 0) == syscall4(number::GETTID, 0, 0, 0, 0) }
}

/// Whether the aligned word at `address` can be read.
///
/// `rt_sigprocmask` copies the new set in before it looks at `how`, so that an impossible `how` fails with `EINVAL`
/// after a successful read and with `EFAULT` otherwise; abseil's `AddressIsReadable` does the same. Unlike
/// `process_vm_readv`, the call is within systemd's `@system-service`, whose filter kills on anything else.
pub(crate) fn is_readable(address: usize) -> bool {
    const NO_SUCH_HOW: usize = !0;
    let word = address & !7;
    // SAFETY: with an impossible `how` the call changes nothing; the kernel checks the address itself.
    word != 0 && unsafe { syscall4(number::RT_SIGPROCMASK, NO_SUCH_HOW, word, 0, 8) } != -EFAULT
}

/// The stack of a capture, `len` bytes whose lowest page is closed: the address after its last byte.
/// `None` without memory.
pub(crate) fn map_stack(len: usize) -> Option<usize> {
    const PROT_NONE: usize = 0;
    const MAP_STACK: usize = 0x20000;
    let start = map_as(len, MAP_STACK)?;
    // SAFETY: the mapping was just made.
    unsafe {
        if syscall4(number::MPROTECT, start, GUARD, PROT_NONE, 0) < 0 {
            unmap(start, len);
            return None;
        }
    }
    start.checked_add(len)
}

/// `len` zeroed bytes at a multiple of a page. `None` without memory.
pub(crate) fn map(len: usize) -> Option<*mut u8> {
    map_as(len, 0).map(ptr::with_exposed_provenance_mut)
}

/// Whether `len` bytes of memory more would be had now.
pub(crate) fn has_room(len: usize) -> bool {
    // SAFETY: a mapping that was just made, and that nobody knows of.
    map_as(len, 0).inspect(|start| unsafe { unmap(*start, len) }).is_some()
}

fn map_as(len: usize, flags: usize) -> Option<usize> {
    const PROT_READ_WRITE: usize = 3;
    /// `MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE`.
    const FLAGS: usize = 0x02 | 0x20 | 0x4000;
    const NO_FILE: usize = !0;
    // SAFETY: a new mapping is nobody's yet.
    let start = unsafe { syscall6(number::MMAP, [0, len, PROT_READ_WRITE, FLAGS | flags, NO_FILE, 0]) };
    usize::try_from(start).ok()
}

/// Gives back what [`map`] returned.
///
/// # Safety
///
/// Nobody refers to it.
pub(crate) unsafe fn unmap(start: usize, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { syscall4(number::MUNMAP, start, len, 0, 0) };
}

/// Has pages of a file's mapping read from the file again when they are touched next.
///
/// # Safety
///
/// Nobody has written to them.
pub(crate) unsafe fn unmap_pages_of_file(start: usize, len: usize) {
    const MADV_DONTNEED: usize = 4;
    // SAFETY: the caller's promise. Where the kernel refuses, the pages stay.
    unsafe { syscall4(number::MADVISE, start, len, MADV_DONTNEED, 0) };
}

/// A file that is open, for reading.
pub(crate) struct File(usize);

impl File {
    /// `None` if it can't be opened.
    pub(crate) fn open(path: &core::ffi::CStr) -> Option<File> {
        /// `O_RDONLY | O_CLOEXEC`.
        const FLAGS: usize = 0o2_000_000;
        // SAFETY: the kernel reads a string that ends in zero.
        let file = unsafe { syscall4(number::OPENAT, AT_FDCWD as usize, path.as_ptr() as usize, FLAGS, 0) };
        usize::try_from(file).ok().map(File)
    }

    /// Reads the words from number `first` on. False if there are not so many.
    pub(crate) fn read_words(&self, words: &mut [u64], first: u64) -> bool {
        let (to, len) = (words.as_mut_ptr() as usize, size_of_val(words));
        // SAFETY: the kernel writes at most as many bytes as there are.
        let read = unsafe { syscall4(number::PREAD64, self.0, to, len, first.wrapping_mul(8) as usize) };
        usize::try_from(read) == Ok(len)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor is this file's.
        unsafe { syscall4(number::CLOSE, self.0, 0, 0, 0) };
    }
}

/// A limit of data below this is narrow: what counts for it is worth more than time.
pub(crate) const NARROW_DATA: usize = 16 << 20;

/// Bytes of private memory that the process may have (`RLIMIT_DATA`).
pub(crate) fn data_limit() -> usize {
    const RLIMIT_DATA: usize = 2;
    let mut limit = [0u64; 2];
    // SAFETY: the kernel writes the two words of this function's.
    let result = unsafe { syscall4(number::PRLIMIT64, 0, RLIMIT_DATA, 0, limit.as_mut_ptr() as usize) };
    let [now, _] = limit;
    if result == 0 { usize::try_from(now).unwrap_or(usize::MAX) } else { usize::MAX }
}

/// A closed page, or several: pages of AArch64 have up to 64 KiB.
const GUARD: usize = if cfg!(target_arch = "aarch64") { 64 << 10 } else { 4 << 10 };

/// `asm-generic/signal-defs.h`.
const SIG_BLOCK: usize = 0;
const SIG_SETMASK: usize = 2;

/// The signals that an instruction raises: `SIGILL`, `SIGTRAP`, `SIGBUS`, `SIGFPE`, `SIGSEGV` and `SIGSYS`, as bits.
/// Held back, they would end the process.
const FAULTS: u64 = 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 10 | 1 << 30;

/// Has the calling thread's signals wait, but for those that an instruction raises; those that waited before. `None` if
/// the kernel, or a filter, refuses.
pub(crate) fn hold_signals() -> Option<u64> {
    let (held, mut before) = (!FAULTS, 0u64);
    // SAFETY: the kernel reads and writes words of this function's.
    let result =
        unsafe { syscall4(number::RT_SIGPROCMASK, SIG_BLOCK, &raw const held as usize, &raw mut before as usize, 8) };
    (result >= 0).then_some(before)
}

/// Has these signals wait, and no others.
pub(crate) fn set_held_signals(held: u64) {
    // SAFETY: the kernel reads a word of this function's.
    unsafe { syscall4(number::RT_SIGPROCMASK, SIG_SETMASK, &raw const held as usize, 0, 8) };
}

/// Which file it is, and which state of it: nothing that a copy of another build has in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    /// Its number in its file system.
    pub inode: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// When its contents were changed last: seconds and nanoseconds of `CLOCK_REALTIME`.
    pub modified: (i64, u64),
}

/// What the kernel says of a file; `None` if it says nothing.
pub(crate) fn file_state(path: &core::ffi::CStr) -> Option<FileState> {
    // `struct stat` of both machines: the inode is its second word, the length its seventh,
    // the time the twelfth and thirteenth.
    let mut stat = [0u64; 32];
    // SAFETY: the kernel reads a string that ends in zero and writes 144 or 128 bytes to `stat`.
    let failed = unsafe {
        syscall4(number::NEWFSTATAT, AT_FDCWD as usize, path.as_ptr() as usize, stat.as_mut_ptr() as usize, 0)
    };
    let [_, inode, _, _, _, _, bytes, _, _, _, _, seconds, nanoseconds, ..] = stat;
    (failed == 0).then_some(FileState { inode, bytes, modified: (seconds as i64, nanoseconds) })
}

/// Writes the target of a symbolic link to `target`; returns how many bytes were written.
pub(crate) fn read_link(path: &core::ffi::CStr, target: &mut [u8]) -> Option<usize> {
    // SAFETY: the kernel reads a string that ends in zero and writes within `target`.
    let length = unsafe {
        syscall4(
            number::READLINKAT,
            AT_FDCWD as usize,
            path.as_ptr() as usize,
            target.as_mut_ptr() as usize,
            target.len(),
        )
    };
    usize::try_from(length).ok()
}
