//! `fork`: the child must not find a lock taken by a thread that it does not have.
//!
//! The thread that forks takes the pool's locks, in the order in which the slow path nests them, and both processes let
//! them go. Two things have to be told apart:
//!
//! - **The C library's list of streams.** Its `fork` locks that list after every handler has run. A thread in
//!   `fflush(NULL)` holds it and waits for one stream, whose thread waits in `malloc` for the pool: with the pool's
//!   locks taken, the list could not be had any more. So its lock, which the same thread may take twice,
//!   comes first here.
//! - **A signal handler that forks.** If it interrupted this thread in the slow path, the thread has some of the locks
//!   itself, and the child has them, too: it goes on where the handler returns. Those are left as they are, and the
//!   others taken. One of another thread that waits for a lock of this one can't be had:
//!   then the child finds it locked.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use crate::census;
use crate::entry::registry;
use crate::hardened;
use crate::kernel::os;
use crate::pages::page_heap;
use crate::process::scavenger;
use crate::sampler;
use crate::segment::ownership;
use crate::sync::spin_lock::SlowPath;
use crate::threads::detour;
use crate::threads::thread_pointer;
use crate::tiers::central_cache;
use crate::tiers::thread_cache::{BUSY, Heap};
use crate::tracer;

/// The thread that has the locks, by the address of its errno, which is the same in the child; null if none has.
static HOLDER: AtomicPtr<c_int> = AtomicPtr::new(core::ptr::null_mut());
/// That thread's heap.
static HEAP: AtomicPtr<Heap> = AtomicPtr::new(core::ptr::null_mut());
/// Whether a signal handler forks that interrupted its thread in the slow path.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// So long such a fork waits for the locks of other threads.
const PATIENCE_NS: u64 = 1_000_000_000;
/// Forks of signal handlers that interrupted that thread meanwhile.
static NESTED: AtomicU32 = AtomicU32::new(0);

/// Registers the handlers below.
pub fn register() {
    // SAFETY: the functions stay as long as this library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before), Some(after_in_parent), Some(after_in_child)) };
}

fn this_thread() -> *mut c_int {
    // SAFETY: returns an address, always.
    unsafe { libc::__errno_location() }
}

unsafe extern "C" fn before() {
    let heap = thread_pointer::get();
    let interrupted = heap.cast_const() == &raw const BUSY;
    if interrupted && HOLDER.load(Ordering::Relaxed) == this_thread() {
        NESTED.store(NESTED.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        return;
    }
    // What a fork is about to take or to let go is that fork's.
    if interrupted && scavenger::is_locked_for_fork() {
        return;
    }
    thread_pointer::set((&raw const BUSY).cast_mut());
    if interrupted {
        let end = os::clock_ns(libc::CLOCK_MONOTONIC) + PATIENCE_NS;
        let is_over = || os::clock_ns(libc::CLOCK_MONOTONIC) > end;
        if !(lock_outer(is_over) && lock_inner(is_over)) {
            return unlock();
        }
    } else {
        streams::lock();
        lock_outer(|| false);
        poolscope_capture::fork_prepare();
        lock_inner(|| false);
    }
    INTERRUPTED.store(interrupted, Ordering::Relaxed);
    HEAP.store(heap, Ordering::Relaxed);
    HOLDER.store(this_thread(), Ordering::Relaxed);
}

/// Takes the locks under which captures may run, and those below them. False if `is_over` says so before.
fn lock_outer(is_over: impl Fn() -> bool) -> bool {
    scavenger::lock_for_fork(&is_over) && registry::lock_for_fork(is_over)
}

fn lock_inner(is_over: impl Fn() -> bool) -> bool {
    tracer::lock_for_fork(&is_over)
        && hardened::lock_for_fork(&is_over)
        && sampler::lock_for_fork(&is_over)
        && census::lock_for_fork(&is_over)
        && central_cache::lock_for_fork(&is_over)
        && page_heap::lock_for_fork(is_over)
}

/// Whether this fork took the locks; if so, they are about to be let go.
fn took_locks() -> bool {
    if HOLDER.load(Ordering::Relaxed) != this_thread() {
        return false;
    }
    let nested = NESTED.load(Ordering::Relaxed);
    if nested > 0 {
        NESTED.store(nested - 1, Ordering::Relaxed);
        return false;
    }
    HOLDER.store(core::ptr::null_mut(), Ordering::Relaxed);
    true
}

fn unlock() {
    page_heap::unlock_after_fork();
    central_cache::unlock_after_fork();
    census::unlock_after_fork();
    sampler::unlock_after_fork();
    hardened::unlock_after_fork();
    tracer::unlock_after_fork();
    registry::unlock_after_fork();
    scavenger::unlock_after_fork();
}

unsafe extern "C" fn after_in_parent() {
    if took_locks() {
        let heap = HEAP.load(Ordering::Relaxed);
        if !INTERRUPTED.load(Ordering::Relaxed) {
            poolscope_capture::fork_parent();
        }
        unlock();
        streams::unlock();
        thread_pointer::set(heap);
    }
}

unsafe extern "C" fn after_in_child() {
    ownership::disown_segment();
    registry::forget_other_threads();
    scavenger::forget();
    census::begin_child();
    if took_locks() {
        if !INTERRUPTED.load(Ordering::Relaxed) {
            poolscope_capture::fork_child();
        }
        unlock();
        // SAFETY: the preparation put `BUSY` there, and the word is set anew below.
        tracer::forget(unsafe { SlowPath::in_fork() });
        streams::forget();
        // SAFETY: a thread's word is always a heap, and heaps are never unmapped.
        let heap = unsafe { &*HEAP.load(Ordering::Relaxed) };
        if heap.is_a_threads.get() {
            // The word of the heap's own thread, which is the one that forked.
            detour::leave(heap);
        } else {
            thread_pointer::set((&raw const *heap).cast_mut());
        }
    }
}

/// glibc's list of streams (`<libio.h>` of old; `fork` still uses these functions). A process with one thread leaves
/// the lock alone in `fork`, and so does this.
#[cfg(target_env = "gnu")]
mod streams {
    use core::ffi::c_char;
    use core::sync::atomic::{AtomicBool, Ordering};

    unsafe extern "C" {
        static __libc_single_threaded: c_char;
        fn _IO_list_lock();
        fn _IO_list_unlock();
    }

    /// Whether the thread that forks has the lock. Only touched by its holder, or by a process's only thread.
    static LOCKED: AtomicBool = AtomicBool::new(false);

    /// Locks the list, as `fork` will once more.
    pub fn lock() {
        // SAFETY: a byte that only changes when threads start, and a lock that is let go below.
        unsafe {
            if __libc_single_threaded == 0 {
                _IO_list_lock();
                LOCKED.store(true, Ordering::Relaxed);
            }
        }
    }

    /// In the parent.
    pub fn unlock() {
        if LOCKED.swap(false, Ordering::Relaxed) {
            // SAFETY: locked above, by this thread.
            unsafe { _IO_list_unlock() };
        }
    }

    /// In the child, for which `fork` has made the lock anew.
    pub fn forget() {
        LOCKED.store(false, Ordering::Relaxed);
    }
}

#[cfg(not(target_env = "gnu"))]
mod streams {
    pub fn lock() {}
    pub fn unlock() {}
    pub fn forget() {}
}
