//! The search for unreachable blocks: which of the recorded ones nothing in the process points to any more.
//!
//! A search has four steps, each with a file of its own:
//!
//! 1. The other threads are stopped ([`stop`]). From here on nothing allocates, locks or asks for names.
//! 2. The roots are read ([`roots`], [`maps`], [`events`]): registers, live stacks, what else of the process's memory
//!    was written and is not the pool's, and what the kernel keeps for the program.
//! 3. The mark follows what they point to ([`mark`]), over the pool's own page descriptors ([`heap`]).
//! 4. The threads go on, and each block's verdict is written to its record, with what holds it.
//!
//! Steps 2 and 3 can be made in a copy of the process ([`look()`]): then the threads wait for the copy only.
//!
//! A thread of the program searches when the process ends, or when the program asks ([`search`]). The pool's own thread
//! does when another process asks ([`answer`]).
//!
//! The search needs a record of every block, and refuses without. It is conservative: a word that happens to look like
//! a pointer hides a leak, and nothing that is reachable through a pointer is called leaked, unless the program keeps
//! that pointer where no search looks: in another process, in a file, or in an encoded form.

mod device_library;
mod events;
mod frame;
mod heap;
pub mod interned;
pub mod kept;
mod look;
mod maps;
mod mark;
mod plant;
mod regions;
mod roots;
mod stop;
mod table;

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use poolscope_wire::ReachRecord;
use poolscope_wire::reach::{option, outcome};

use crate::entry::{self, Entry};
use crate::kernel::os;
use crate::sampler::search::records;
use crate::segment::bell::{self, Asked};
use crate::settings;
use crate::sync::spin_lock::SlowPath;

pub use device_library::note_device_library;
pub use frame::with_callers;
pub use look::leaked;
use look::{Searcher, look};
pub use plant::plant;
pub use regions::{add_root, remove_root};
pub use stop::note_alternate_stack;
pub use table::Table;

/// The program wants no search at its end.
static TURNED_OFF: AtomicBool = AtomicBool::new(false);

/// To be called when the program has turned its leak check off.
pub fn turn_off() {
    TURNED_OFF.store(true, Ordering::Relaxed);
}

/// Whether the process is to search when it ends.
pub fn is_asked_for() -> bool {
    let settings = settings::current();
    settings.leak_check() && !settings.plain()
}

/// Searches at the process's end, unless the program has turned that off. The pool's own thread does not run.
pub fn search_at_exit() {
    if !TURNED_OFF.load(Ordering::Relaxed) {
        return search();
    }
    if let Entry::Heap(entered) = entry::enter()
        && let Some(Ok(records)) = records(entered.slow)
    {
        records.report(ReachRecord { state: outcome::TURNED_OFF, ..ReachRecord::ZERO });
    }
}

/// Looks for unreachable blocks. The pool's own thread does not run, and the caller holds nothing of the pool's.
pub fn search() {
    extern "C" fn from_here(frame: *const usize, _: usize) -> usize {
        search_from(frame);
        0
    }
    // SAFETY: the function returns.
    unsafe { with_callers(from_here, 0) };
}

/// Searches with what lies from `frame` on as the calling thread's live stack: what [`with_callers`] has passed on.
pub fn search_from(frame: *const usize) {
    alone(|| {
        if let Entry::Heap(entered) = entry::enter() {
            look_and_report(entered.slow, Searcher::OfTheProgram { frame: frame as usize }, asked_by_settings());
        }
    });
}

/// What the settings ask of each search that the program makes.
fn asked_by_settings() -> Asked {
    let settings = settings::current();
    let options = if settings.leak_snapshot() { option::SNAPSHOT } else { 0 };
    Asked { request: 0, options, tag_mask: settings.leak_tag_mask() }
}

/// Does what another process asks for. The caller is the pool's thread, and holds nothing.
pub fn answer(slow: SlowPath, asked: Asked) {
    alone(|| look_and_report(slow, Searcher::Pool, asked));
    bell::answer(asked.request);
}

/// To be called at the process's start: keeps what a search at its end is to be made by.
pub fn begin() {
    if is_asked_for() {
        os::keep_proc();
    }
}

/// To be called before the process may find its own files no more: the same for any search that may be asked for, which
/// takes all allocations to be recorded.
pub fn keep_files() {
    let settings = settings::current();
    if is_asked_for() || (settings.period() <= 1 && !settings.plain()) {
        os::keep_proc();
    }
}

/// In a forked child: no thread of its parent's searches in it.
pub fn begin_child() {
    SEARCHER.store(0, Ordering::Release);
    stop::forget();
    begin();
}

/// Kernel id of the thread that searches, of which there is one at a time; 0 if none does.
static SEARCHER: AtomicU32 = AtomicU32::new(0);
/// Microseconds between two looks whether another thread still searches.
const WAIT_US: u32 = 500;

/// Calls `f` when no other thread searches. Does nothing in a handler that interrupted a search, which can't wait.
fn alone(f: impl FnOnce()) {
    let own = os::thread_id();
    // The process must not end while another thread searches.
    while let Err(searcher) = SEARCHER.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed) {
        if searcher == own {
            return;
        }
        os::sleep_us(WAIT_US);
    }
    f();
    SEARCHER.store(0, Ordering::Release);
}

fn look_and_report(slow: SlowPath, searcher: Searcher, asked: Asked) {
    // Where there are none to search by, that is reported already.
    if !matches!(records(slow), Some(Ok(_))) {
        return;
    }
    let report = match look(slow, searcher, asked) {
        Ok(report) => report,
        Err(state) => ReachRecord { state, ..ReachRecord::ZERO },
    };
    if let Some(Ok(records)) = self::records(slow) {
        records.report(ReachRecord {
            request: asked.request,
            options: asked.options,
            time_ns: os::clock_ns(libc::CLOCK_MONOTONIC),
            ..report
        });
    }
}
