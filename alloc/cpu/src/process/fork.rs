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
//!   others taken. One of another thread that waits for a lock of this one can't be had, and what it guards does not
//!   change meanwhile: the child, which does not have that thread, unlocks it. Only where another thread keeps a lock
//!   for seconds, and waits for no other, does the child find it locked.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use crate::census;
use crate::collector;
use crate::entry;
use crate::hardened;
use crate::kernel::os;
use crate::pages::keeper;
use crate::pages::page_heap;
use crate::reach;
use crate::sampler;
use crate::segment::ownership;
use crate::sync::spin_lock::{self, ForkLock, SlowPath};
use crate::threads::detour;
use crate::threads::heaps;
use crate::threads::thread_pointer;
use crate::tiers::central_cache;
use crate::tiers::static_heaps::BUSY;
use crate::tiers::thread_cache::Heap;
use crate::tracer;

/// The thread that has the locks, by the address of its errno, which is the same in the child; null if none has.
static HOLDER: AtomicPtr<c_int> = AtomicPtr::new(core::ptr::null_mut());
/// That thread's heap.
static HEAP: AtomicPtr<Heap> = AtomicPtr::new(core::ptr::null_mut());
/// Whether a signal handler forks that interrupted its thread in the slow path.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// So long such a fork waits for the locks of other threads.
const PATIENCE_NS: u64 = 5_000_000_000;
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
    if interrupted && collector::PASS.is_locked_for_fork() {
        return;
    }
    thread_pointer::set((&raw const BUSY).cast_mut());
    if interrupted {
        let end = os::clock_ns(libc::CLOCK_MONOTONIC) + PATIENCE_NS;
        let is_over = || os::clock_ns(libc::CLOCK_MONOTONIC) > end;
        if !lock(true, &is_over) {
            return unlock(|lock| lock.let_go(), None);
        }
    } else {
        streams::lock();
        lock(false, &|| false);
    }
    INTERRUPTED.store(interrupted, Ordering::Relaxed);
    HEAP.store(heap, Ordering::Relaxed);
    HOLDER.store(this_thread(), Ordering::Relaxed);
}

/// What a fork takes.
enum Lock {
    /// A lock of the pool.
    Pool(fn() -> &'static dyn ForkLock),
    /// The table of what captures have learned. A handler that forks may have interrupted one: it leaves the table
    /// alone.
    Captures,
}

/// The pool's locks in the order in which the slow path nests them: who has one takes only those after it. This table
/// is the order, there is no other.
static LOCKS: [Lock; 10] = [
    // A pass of the scavenger.
    Lock::Pool(|| &collector::PASS),
    // What dying threads allocate from.
    Lock::Pool(entry::fork_lock),
    // The list of heaps.
    Lock::Pool(|| &heaps::REGISTRY),
    Lock::Captures,
    // The session of a recorder.
    Lock::Pool(tracer::fork_lock),
    // The hardened mode.
    Lock::Pool(hardened::fork_lock),
    // The sampler.
    Lock::Pool(sampler::fork_lock),
    // The census.
    Lock::Pool(census::fork_lock),
    // The central cache: one for each class.
    Lock::Pool(central_cache::fork_lock),
    // The page heap.
    Lock::Pool(page_heap::fork_lock),
];

/// Takes all of them. False if `is_over` says so before.
fn lock(interrupted: bool, is_over: &dyn Fn() -> bool) -> bool {
    LOCKS.iter().all(|lock| match lock {
        Lock::Pool(lock) => lock().take(is_over),
        Lock::Captures if interrupted => true,
        Lock::Captures => {
            poolscope_capture::fork_prepare(os::give_way);
            true
        }
    })
}

/// Lets them go by `let_go`, the last one first; `captures` does so with the table of captures.
fn unlock(let_go: fn(&dyn ForkLock), captures: Option<fn()>) {
    for lock in LOCKS.iter().rev() {
        match (lock, captures) {
            (Lock::Pool(lock), _) => let_go(lock()),
            (Lock::Captures, Some(let_go)) => let_go(),
            (Lock::Captures, None) => {}
        }
    }
}

/// What lets go of the table of captures, if this fork took it.
fn unless_interrupted(let_go: fn()) -> Option<fn()> {
    (!INTERRUPTED.load(Ordering::Relaxed)).then_some(let_go)
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

unsafe extern "C" fn after_in_parent() {
    if took_locks() {
        let heap = HEAP.load(Ordering::Relaxed);
        unlock(|lock| lock.let_go(), unless_interrupted(poolscope_capture::fork_parent));
        streams::unlock();
        thread_pointer::set(heap);
    }
}

unsafe extern "C" fn after_in_child() {
    ownership::disown_segment();
    spin_lock::forget_who_waits();
    heaps::forget_other_threads();
    keeper::forget();
    reach::begin_child();
    sampler::copies::forget();
    census::begin_child();
    if took_locks() {
        unlock(|lock| lock.let_go_in_child(), unless_interrupted(poolscope_capture::fork_child));
        // SAFETY: the preparation put `BUSY` there, and the word is set anew below.
        tracer::forget(unsafe { SlowPath::in_fork() });
        streams::forget();
        // SAFETY: a thread's word is always a heap, and heaps are never unmapped.
        let heap = unsafe { &*HEAP.load(Ordering::Relaxed) };
        if heap.path.belongs_to_a_thread.get() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_takes_each_lock_once() {
        let locks = LOCKS.iter().filter_map(|lock| if let Lock::Pool(lock) = lock { Some(lock()) } else { None });
        let mut addresses: Vec<*const ()> = locks.map(|lock| (&raw const *lock).cast()).collect();
        addresses.sort();
        addresses.dedup();
        assert_eq!(addresses.len(), LOCKS.len() - 1);
    }
}
