//! The operating system: memory, identity; clocks are in `clock.rs`, limits in `limits.rs`, what a thread sleeps on is
//! in `waiting.rs`, signals in `signals.rs`, `/proc` in `proc_files.rs` and `kept_proc.rs`. Nothing here allocates or
//! keeps a lock.

mod clock;
mod copy;
mod kept;
mod kept_proc;
mod limits;
mod proc_files;
mod signals;
mod time_namespace;
mod waiting;

pub use super::plain::is_plain;
pub use clock::clock_ns;
pub use copy::{Copy, end_copy, map_shared};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
pub use kept::{Descriptor, Kept};
pub use kept_proc::{is_epoll, keep_proc, open as open_proc};
pub use limits::{address_space_limit, data_limit, try_data_limit};
pub use proc_files::{
    for_each_line, for_each_number, is_nothing_swapped, is_object_of_the_kernel, number_of, path_with, read_file,
    read_whole_file,
};
// Only threads that are stopped are asked for it, which is done on this processor alone.
#[cfg(target_arch = "x86_64")]
pub use signals::start_of;
pub use signals::{block_signals, set_blocked_signals, signal_stack, take_back_signal};
pub use time_namespace::ahead as clocks_ahead;
pub use waiting::{give_way, sleep_on, sleep_on_file, sleep_on_shared, sleep_us, wake, wake_shared};

use crate::kernel::system_call::system_call;

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

/// This thread's errno.
pub fn errno() -> c_int {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
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
/// nothing: not as memory under strict overcommit, not in a core dump, not for valgrind. What is made usable of it
/// counts in full, so that the kernel refuses a block that its memory could never hold (`vm.overcommit_memory`).
pub fn reserve(len: usize) -> *mut u8 {
    keep_errno(|| {
        // SAFETY: as in `map`.
        let p = unsafe {
            libc::mmap(core::ptr::null_mut(), len, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
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

/// Makes a part of what [`reserve`] returned readable: it reads as zero, and counts for nothing.
/// Returns whether it worked.
///
/// # Safety
/// The range is the caller's, and nobody has written to it.
pub unsafe fn make_readable(p: *mut u8, len: usize) -> bool {
    // SAFETY: the caller's promise.
    keep_errno(|| unsafe { libc::mprotect(p.cast(), len, libc::PROT_READ) == 0 })
}

/// Takes memory and access away from a page range; its addresses stay taken. Returns whether its memory went.
///
/// # Safety
/// The range is the pool's own, private, anonymous and holds nothing of use.
pub unsafe fn close_pages(p: *mut u8, len: usize) -> bool {
    // SAFETY: the caller's promise.
    keep_errno(|| unsafe {
        let gone = libc::madvise(p.cast(), len, libc::MADV_DONTNEED) == 0;
        libc::mprotect(p.cast(), len, libc::PROT_NONE);
        gone
    })
}

/// Puts zeroed private memory in the place of a page range. Returns whether it worked; if not, the range is as it was.
///
/// # Safety
/// The range is the pool's own, and nobody needs what is in it.
pub unsafe fn map_zeroes_over(p: *mut u8, len: usize) -> bool {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // SAFETY: the caller's promise.
    keep_errno(|| unsafe { libc::mmap(p.cast(), len, access, flags, -1, 0) != libc::MAP_FAILED })
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
/// (`MREMAP_DONTUNMAP`, Linux 5.7). Returns whether it worked. If not, `to` may be a hole.
///
/// # Safety
/// Both ranges are the pool's own, private and anonymous, whole pages, apart from each other; `to` holds nothing of
/// use. `from` is one mapping.
pub unsafe fn remap(from: *mut u8, to: *mut u8, len: usize) -> bool {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    // SAFETY: the caller's promise.
    keep_errno(|| unsafe { libc::mremap(from.cast(), len, len, flags, to.cast::<c_void>()) != libc::MAP_FAILED })
}

/// Whether a page range is one mapping: the kernel is asked to make it longer where it lies, and says `EFAULT` of
/// several, and that there is no room behind one.
pub fn is_one_mapping(p: *mut u8, len: usize) -> bool {
    // SAFETY: what it is made longer by, where nothing follows, goes again.
    let error = error_of(|| unsafe { libc::mremap(p.cast(), len, len + 4096, 0) != libc::MAP_FAILED });
    if error == 0 {
        // SAFETY: as above.
        unsafe { unmap(p.add(len), 4096) };
    }
    error == 0 || error == libc::ENOMEM
}

/// Maps a page range that may be a hole, usable. False if any of it is mapped.
///
/// # Safety
/// The range is the pool's own, or a hole that was.
pub unsafe fn close_hole(p: *mut u8, len: usize) -> bool {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: what is mapped stays.
    keep_errno(|| unsafe {
        let found = libc::mmap(p.cast(), len, access, flags, -1, 0);
        if found != libc::MAP_FAILED && found != p.cast() {
            // Before Linux 4.17 the address is a wish.
            libc::munmap(found, len);
        }
        found == p.cast()
    })
}

/// Whether no page of a range is a hole.
pub fn has_no_hole(p: *mut u8, len: usize) -> bool {
    // SAFETY: the advice is what there is already, and changes nothing.
    keep_errno(|| unsafe { libc::madvise(p.cast(), len, libc::MADV_NORMAL) == 0 })
}

/// Makes a usable page range as if it had just been made so: it reads as zero, and is one mapping with its like around
/// it. Returns whether it worked; if not, it is as it was.
///
/// # Safety
/// The range is the pool's own, private, anonymous and holds nothing of use.
pub unsafe fn renew(p: *mut u8, len: usize) -> bool {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the caller's promise.
    keep_errno(|| unsafe { libc::mmap(p.cast(), len, access, flags, -1, 0) != libc::MAP_FAILED })
}

/// 0, or the error number of what `call` returned.
fn error_of(call: impl FnOnce() -> bool) -> i32 {
    keep_errno(|| {
        // SAFETY: errno is this thread's.
        if call() { 0 } else { unsafe { *libc::__errno_location() } }
    })
}

/// Says of a page range with a `MADV_` constant what it is for. Returns 0 or an error number.
///
/// # Safety
/// The range is the pool's own, and what is said takes nothing away.
pub unsafe fn advise(p: *mut u8, len: usize, advice: c_int) -> i32 {
    // SAFETY: the caller's promise.
    error_of(|| unsafe { libc::madvise(p.cast(), len, advice) == 0 })
}

/// What came of [`map_huge`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Explicit {
    /// The range is explicit huge pages.
    Mapped,
    /// The range is as it was; an error number.
    Refused(i32),
    /// The range may be somebody else's by now; an error number.
    Lost(i32),
}

/// Puts explicit huge pages of 2 MiB (hugetlb) in the place of a reserved range. They are set aside at once, so that
/// touching them can't fail.
///
/// `MAP_FIXED` would take the range away before the kernel finds that there are too few of them. They are mapped
/// elsewhere, and moved, which Linux 5.16 can. Where it can't, the range may be a hole afterwards, which is closed
/// again unless another thread was faster.
///
/// # Safety
/// The range is the pool's own, reserved and never made usable, and begins and ends at multiples of 2 MiB.
pub unsafe fn map_huge(p: *mut u8, len: usize) -> Explicit {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let mut pages = libc::MAP_FAILED;
    let error = error_of(|| {
        // SAFETY: a new mapping touches nothing that exists.
        pages = unsafe {
            libc::mmap(core::ptr::null_mut(), len, access, private | libc::MAP_HUGETLB | libc::MAP_HUGE_2MB, -1, 0)
        };
        pages != libc::MAP_FAILED
    });
    if error != 0 {
        return Explicit::Refused(error);
    }
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the caller's promise; the pages are ours alone.
    let error = error_of(|| unsafe { libc::mremap(pages, len, len, flags, p.cast::<c_void>()) != libc::MAP_FAILED });
    if error == 0 {
        return Explicit::Mapped;
    }
    keep_errno(|| {
        // SAFETY: the pages are ours; the range is only taken if nobody has it, and what an old kernel maps elsewhere
        // instead is unmapped.
        unsafe {
            libc::munmap(pages, len);
            let again =
                libc::mmap(p.cast(), len, libc::PROT_NONE, private | libc::MAP_FIXED_NOREPLACE, -1, 0).cast::<u8>();
            if again == p {
                return Explicit::Refused(error);
            }
            if again.cast() != libc::MAP_FAILED {
                libc::munmap(again.cast(), len);
            }
        }
        Explicit::Lost(error)
    })
}

/// Binds a page range to NUMA nodes: bit n of `nodes` is node n, `mode` one of `MPOL_` (`mbind`).
/// Returns 0 or an error number.
///
/// # Safety
/// The range is the pool's own.
pub unsafe fn bind(p: *mut u8, len: usize, mode: c_int, nodes: u64) -> i32 {
    // SAFETY: the caller's promise; the kernel reads the mask. It counts one bit less than it is told.
    error_of(|| unsafe { system_call!(libc::SYS_mbind, p, len, mode, &raw const nodes, 65usize, 0) == 0 })
}

/// The first 64 NUMA nodes that this process may take memory from, a bit for each (`MPOL_F_MEMS_ALLOWED`); `None` if
/// the kernel does not say.
pub fn allowed_nodes() -> Option<u64> {
    const ALLOWED: c_int = 1 << 2;
    // As many bits as any kernel has nodes: it refuses fewer.
    let mut nodes = [0u64; 16];
    let bits = size_of_val(&nodes) * 8;
    // SAFETY: the kernel writes as many bits as it is told there are.
    let error = error_of(|| unsafe {
        system_call!(libc::SYS_get_mempolicy, 0usize, nodes.as_mut_ptr(), bits, 0usize, ALLOWED) == 0
    });
    (error == 0).then_some(nodes[0])
}

/// The NUMA node of the processor that the calling thread runs on, at this moment.
pub fn current_node() -> usize {
    let mut node = 0u32;
    // SAFETY: the kernel writes the node.
    keep_errno(|| unsafe { system_call!(libc::SYS_getcpu, 0usize, &raw mut node, 0usize) });
    node as usize
}

/// Kernel id of the calling thread; 0 in a plain pool.
pub fn thread_id() -> u32 {
    if is_plain() {
        return 0;
    }
    // SAFETY: a system call without arguments.
    unsafe { system_call!(libc::SYS_gettid) as u32 }
}

/// Process id of the caller, from the kernel; 0 in a plain pool.
pub fn process_id() -> u32 {
    if is_plain() { 0 } else { own_pid() as u32 }
}

/// From the kernel, as all that is said of the process: a library may tell the program otherwise (fakeroot, faketime).
fn own_pid() -> libc::pid_t {
    // SAFETY: a system call without arguments.
    unsafe { system_call!(libc::SYS_getpid) as libc::pid_t }
}

/// Process id of the caller's parent.
pub fn parent_id() -> u32 {
    // SAFETY: as above.
    unsafe { system_call!(libc::SYS_getppid) as u32 }
}

/// Effective user of the process.
pub fn user_id() -> u32 {
    // SAFETY: as above.
    unsafe { system_call!(libc::SYS_geteuid) as u32 }
}

/// What the kernel says of a file: of the one that is open, or of what is at the path, also of a link. `None` if it
/// can't be asked.
///
/// # Safety
/// The path is a string that ends with zero.
pub unsafe fn file_state(open: c_int, path: *const c_char) -> Option<libc::stat> {
    let mut state = core::mem::MaybeUninit::<libc::stat>::zeroed();
    let flags = libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH;
    // SAFETY: the caller's; the kernel writes a state, which zeroes are, too.
    unsafe {
        let result = system_call!(libc::SYS_newfstatat, open, path, state.as_mut_ptr(), flags);
        (result == 0).then(|| state.assume_init())
    }
}

/// Opens a file; negative on failure, with errno changed. Not by the C library's function: a cancelled thread would end
/// in there (POSIX, 2.9.5.2), as in `read`, `write` and `close`, and `malloc` is no such place.
///
/// # Safety
/// `path` is a string that ends with zero.
pub unsafe fn open(path: *const c_char, flags: c_int, mode: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { system_call!(libc::SYS_openat, libc::AT_FDCWD, path, flags, mode) as c_int }
}

/// Closes what [`open`] returned.
///
/// # Safety
/// The descriptor is the caller's.
pub unsafe fn close(fd: c_int) {
    // SAFETY: the caller's promise.
    unsafe { system_call!(libc::SYS_close, fd) };
}

/// Writes to a descriptor, as much as goes at once. Returns the bytes written; negative on failure, with errno changed.
pub fn write(fd: c_int, bytes: &[u8]) -> isize {
    // SAFETY: reads the bytes.
    unsafe { system_call!(libc::SYS_write, fd, bytes.as_ptr(), bytes.len()) as isize }
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

/// Zeroed private memory that a forked child finds zeroed, or not at all; null without memory.
pub fn map_all_wiped_on_fork(len: usize) -> *mut u8 {
    let memory = map(len);
    if memory.is_null() {
        return memory;
    }
    // SAFETY: the pages were just mapped.
    keep_errno(|| unsafe {
        if libc::madvise(memory.cast(), len.next_multiple_of(4096), libc::MADV_WIPEONFORK) != 0 {
            libc::munmap(memory.cast(), len);
            return core::ptr::null_mut();
        }
        memory
    })
}

/// Whether the process with this id has a thread with that one. Also true where the kernel does not say.
pub fn thread_exists(process: u32, tid: u32) -> bool {
    let mut errno = 0;
    keep_errno(|| {
        // SAFETY: the signal 0 is none; errno is this thread's.
        unsafe {
            if system_call!(libc::SYS_tgkill, process, tid, 0) != 0 {
                errno = *libc::__errno_location();
            }
        }
    });
    errno != libc::ESRCH
}

/// A number that nobody can guess, or at least one that differs between processes, images and moments.
pub fn random_seed() -> u64 {
    if is_plain() {
        // SAFETY: the kernel leaves 16 random bytes for each program image (getauxval(3)).
        let given = unsafe { (libc::getauxval(libc::AT_RANDOM) as *const u64).as_ref() };
        return given.map_or(0, |random| *random) ^ clock_ns(libc::CLOCK_MONOTONIC);
    }
    let mut random = 0u64;
    // SAFETY: writes at most 8 bytes into the word. What it can't fill stays 0.
    keep_errno(|| unsafe { system_call!(libc::SYS_getrandom, &raw mut random, 8, libc::GRND_NONBLOCK) });
    random ^ clock_ns(libc::CLOCK_MONOTONIC) ^ u64::from(process_id()) << 32
}

/// Makes every running thread of this process pass a full memory barrier (`membarrier`, Linux 4.14). Without it,
/// threads see later what was written before.
pub fn barrier_on_all_threads() {
    if is_plain() {
        return;
    }
    const REGISTER: i32 = 1 << 4;
    const BARRIER: i32 = 1 << 3;
    // SAFETY: system calls that touch no memory.
    keep_errno(|| unsafe {
        system_call!(libc::SYS_membarrier, REGISTER, 0, 0);
        system_call!(libc::SYS_membarrier, BARRIER, 0, 0)
    });
}

/// Reads words of this process's own memory that may not be there: how many it got.
pub fn read_own_memory(from: usize, words: &mut [usize]) -> usize {
    let to = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: size_of_val(words) };
    let from = libc::iovec { iov_base: from as *mut c_void, iov_len: size_of_val(words) };
    // SAFETY: the kernel writes at most as many bytes as `words` has.
    let read = keep_errno(|| unsafe { libc::process_vm_readv(own_pid(), &raw const to, 1, &raw const from, 1, 0) });
    (read.max(0) as usize) / size_of::<usize>()
}

/// Whether the word at this address can be read. Also true where the kernel does not say.
pub fn is_readable(address: usize) -> bool {
    if cfg!(miri) || is_plain() {
        return true;
    }
    let mut word = 0usize;
    let to = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: size_of::<usize>() };
    let from = libc::iovec { iov_base: address as *mut c_void, iov_len: size_of::<usize>() };
    // SAFETY: the kernel writes at most one word.
    error_of(|| unsafe { libc::process_vm_readv(own_pid(), &raw const to, 1, &raw const from, 1, 0) >= 0 })
        != libc::EFAULT
}

/// Finds out which kernel pages of a range have memory (`mincore`): bit 0 of the byte of each at `to`. False if the
/// kernel does not say, or has larger pages than 4 KiB.
///
/// # Safety
/// There is a byte at `to` for each 4 KiB of the range.
pub unsafe fn resident(from: usize, len: usize, to: *mut u8) -> bool {
    // SAFETY: asks for a number; the kernel writes a byte for each page, as the caller promises.
    keep_errno(|| unsafe {
        !is_plain()
            && (cfg!(target_arch = "x86_64") || libc::sysconf(libc::_SC_PAGESIZE) == 4096)
            && libc::mincore(from as *mut c_void, len, to) == 0
    })
}

/// Whether a function is part of the executable, and not of a library: the kernel says where the executable's program
/// headers lie (getauxval(3)).
pub fn is_in_executable(function: *const ()) -> bool {
    // SAFETY: the kernel or the loader has mapped the headers, so many, for as long as the process runs.
    let headers = unsafe {
        let first = libc::getauxval(libc::AT_PHDR) as *const libc::Elf64_Phdr;
        if first.is_null() {
            return false;
        }
        core::slice::from_raw_parts(first, libc::getauxval(libc::AT_PHNUM) as usize)
    };
    let own = headers.iter().find(|header| header.p_type == libc::PT_PHDR);
    let bias = own.map_or(0, |own| (headers.as_ptr() as u64).wrapping_sub(own.p_vaddr));
    let at = (function as u64).wrapping_sub(bias);
    headers.iter().any(|part| part.p_type == libc::PT_LOAD && at.wrapping_sub(part.p_vaddr) < part.p_memsz)
}

/// Whether a tool runs this program instead of the processor: what the kernel says of its threads is then the tool's
/// affair. Valgrind preloads a library of its own. It is found out once, when the process starts: a program that
/// changes its environment has it reallocated, and the C library reads what that has freed.
pub fn is_emulated() -> bool {
    const UNKNOWN: usize = 0;
    static KNOWN: AtomicUsize = AtomicUsize::new(UNKNOWN);
    let known = match KNOWN.load(Ordering::Relaxed) {
        UNKNOWN => 1 + usize::from(preloads_valgrind()),
        known => known,
    };
    KNOWN.store(known, Ordering::Relaxed);
    known > 1
}

/// The C library's search takes 2 KiB of stack on some processors.
fn preloads_valgrind() -> bool {
    // SAFETY: the C library keeps the text, which ends with zero.
    let preloaded = unsafe {
        let preloaded = libc::getenv(c"LD_PRELOAD".as_ptr());
        if preloaded.is_null() {
            return false;
        }
        CStr::from_ptr(preloaded)
    };
    preloaded.to_bytes().windows(b"vgpreload".len()).any(|part| part == b"vgpreload")
}
