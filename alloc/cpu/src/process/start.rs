//! The start of a thread, and with the first one that of the process.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::census;
use crate::entry::{STARTED, go_slow, set_thread};
use crate::hardened;
use crate::kernel::{os, raw_thread};
use crate::layout::lean;
use crate::pages::keeper;
use crate::process::{exit, fork, scavenger};
use crate::reach;
use crate::sampler;
use crate::script;
use crate::segment::counters::{self, TierCounter};
use crate::segment::publish;
use crate::settings;
use crate::threads::heaps::{adopt_heap, new_heap};
use crate::threads::thread_pointer;
use crate::tiers::static_heaps::{BUSY, EMPTY};
use crate::tiers::thread_cache::Heap;
use crate::tracer;

static EXIT_KEY: AtomicU32 = AtomicU32::new(NO_KEY);
const NO_KEY: u32 = u32::MAX;

/// Gives the calling thread a heap.
#[cold]
pub fn start_thread() -> Option<&'static Heap> {
    // What a signal handler allocates from here on must not start the same thread again.
    let slow = go_slow();
    let first = !STARTED.swap(true, Ordering::AcqRel);
    if first {
        settings::on_period_change(sampler::period_changed);
        settings::start();
        os::is_emulated();
        lean::start();
        keeper::begin(scavenger::run);
        raw_thread::begin(thread_pointer::address().addr(), (&raw const BUSY).addr());
        sampler::start(slow);
        script::start();
        sampler::copies::start();
        reach::begin();
        hardened::start(slow);
        tracer::wait_for_recorder(slow);
    }
    let Some(heap) = adopt_heap(slow).or_else(|| new_heap(slow)) else {
        set_thread(&EMPTY);
        return None;
    };
    heap.registration.thread_id.set(os::thread_id());
    heap.sampling.ignores.set(0);
    heap.sampling.marks.begin();
    heap.registration.began_in_child.set(raw_thread::is_of_another_process());
    heap.registration.uses.set(heap.registration.uses.get() + 1);
    heap.inbox.open();
    census::forget(heap);
    counters::add(TierCounter::ThreadsLive, 1);
    counters::add(TierCounter::ThreadsStarted, 1);
    sampler::add_thread(slow, heap);
    publish::publish_tiers();
    thread_pointer::set_home((&raw const *heap).cast_mut());
    // From here on the thread can allocate; the calls below do.
    heap.path.held_open.set(true);
    heap.path.thread_word.store(thread_pointer::address().cast(), Ordering::Release);
    set_thread(heap);
    os::keep_errno(|| {
        if first {
            let mut key = 0;
            // SAFETY: registers functions that stay as long as this library, which is never unloaded.
            unsafe {
                if libc::pthread_key_create(&raw mut key, Some(exit::on_thread_exit)) == 0 {
                    EXIT_KEY.store(key, Ordering::Release);
                }
                // Registered first, so it runs after what the program registers.
                __cxa_atexit(at_exit, core::ptr::null_mut(), core::ptr::null_mut());
            }
            fork::register();
        }
        let key = EXIT_KEY.load(Ordering::Acquire);
        if key != NO_KEY {
            // SAFETY: the key exists; the value is only compared and passed back.
            unsafe { libc::pthread_setspecific(key, (&raw const *heap).cast::<c_void>()) };
        }
    });
    heap.path.held_open.set(false);
    Some(heap)
}

unsafe extern "C" {
    /// `atexit` itself is not in the shared C library (Itanium C++ ABI, 3.3.6.3).
    fn __cxa_atexit(f: extern "C" fn(*mut c_void), argument: *mut c_void, dso: *mut c_void) -> i32;
}

extern "C" fn at_exit(_: *mut c_void) {
    exit::finish();
}
