//! The exit of a thread, and that of the process.

use core::ffi::c_void;
use core::sync::atomic::Ordering;

use crate::census;
use crate::collector::exit::end_thread;
use crate::entry::{self, Entry, go_slow, set_thread};
use crate::hardened;
use crate::process::scavenger;
use crate::reach;
use crate::sampler;
use crate::segment::ownership;
use crate::settings;
use crate::threads::thread_pointer;
use crate::tiers::static_heaps::DYING;
use crate::tiers::thread_cache::Heap;
use crate::tracer;

/// Runs at a thread's exit, with the heap that it had.
///
/// # Safety
/// `heap` is that heap.
pub unsafe extern "C" fn on_thread_exit(heap: *mut c_void) {
    let slow = go_slow();
    // SAFETY: the value that `start_thread` stored.
    let heap = unsafe { &*heap.cast::<Heap>() };
    {
        // Who closes threads looks at their words under this lock; this thread's goes away.
        let _closing = heap.path.closing.lock(slow);
        heap.path.thread_word.store(core::ptr::null_mut(), Ordering::Release);
    }
    end_thread(slow, heap);
    thread_pointer::set_home((&raw const DYING).cast_mut());
    set_thread(&DYING);
}

/// To be called by what ends the process without running its exit handlers (`_exit`): removes the segment, or marks it
/// as ended if it is to be kept. A normal exit does this by itself.
///
/// Each step has a frame of its own. The frames below the search are live stack to it, and a large one has words in it
/// that earlier calls left there: pointers to lost blocks among them.
///
/// What a child of `vfork` leaves is its parent's, which goes on. A search in it would wait for the parent's, which waits
/// for it.
pub fn finish() {
    if !ownership::is_child_in_its_memory() {
        sweep();
        plant();
        if reach::is_asked_for() {
            look_for_leaks();
        }
    }
    end();
}

/// Looks for faults that nothing has come across.
#[inline(never)]
fn sweep() {
    if let Entry::Heap(entered) = entry::enter() {
        if hardened::is_on() {
            hardened::sweep(entered.slow);
        } else if core::ptr::eq(entered.heap, thread_pointer::home()) {
            entered.heap.sweep();
        }
    }
}

#[inline(never)]
fn plant() {
    if let bytes @ 1.. = settings::current().leak_plant() {
        reach::plant(bytes as usize);
    }
}

#[cold]
#[inline(never)]
fn look_for_leaks() {
    // The scavenger's thread takes part in nothing that is stopped.
    let _paused = scavenger::pause();
    reach::search_at_exit();
}

#[inline(never)]
fn end() {
    if let Entry::Heap(entered) = entry::enter() {
        tracer::session::finish(entered.slow);
        if !ownership::is_child_in_its_memory() {
            sampler::copies::finish(entered.slow);
        }
        if settings::current().keep() || settings::current().dump_at_exit().is_some() {
            census::take(entered.slow);
        }
        sampler::finish(entered.slow);
    }
}
