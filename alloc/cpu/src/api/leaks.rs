//! What a program says and asks of leaks: a search, blocks that are none, roots of its own.

use poolscope_wire::ReachRecord;
use poolscope_wire::reach::outcome;

use crate::entry::{self, Entry};
use crate::process::scavenger;
use crate::reach;
use crate::sampler::search;

pub use crate::reach::{add_root, note_alternate_stack, remove_root, with_callers};

/// What came of [`search()`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Searched {
    /// Why there are no verdicts.
    pub failed: Option<&'static str>,
    /// Blocks that are leaked, directly or indirectly.
    pub leaks: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Threads of the process, and those of them that were stopped.
    pub threads: (u32, u32),
}

/// Looks for blocks that nothing points to. Of the calling thread's stack counts what lies from `frame` on, which
/// [`with_callers`] has passed on: the frames of who searches hold what is left there of earlier calls. Each block's
/// verdict is in the segment then. `None` if there is no segment of this process's.
pub fn search(frame: *const usize) -> Option<Searched> {
    {
        // The pool's thread takes part in nothing that is stopped.
        let _paused = scavenger::pause();
        reach::search_from(frame);
    }
    let Entry::Heap(entered) = entry::enter() else { return None };
    let report = search::last(entered.slow)?;
    let (leaks, bytes) = reach::leaked();
    let ReachRecord { state, threads, stopped, .. } = report;
    let failed = match state {
        outcome::NONE => Some("nobody has searched"),
        state => outcome::reason(state),
    };
    Some(Searched { failed, leaks, bytes, threads: (threads, stopped) })
}

/// What became of [`ignore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// The block counts as in use from now on, and so does what it leads to.
    Yes,
    /// It did already.
    Already,
    /// There is no recorded block at this address.
    NoBlock,
}

/// Says that the block at an address is no leak, and neither is what it leads to.
pub fn ignore(address: usize) -> Ignored {
    let Entry::Heap(entered) = entry::enter() else { return Ignored::NoBlock };
    match search::ignore(entered.slow, address) {
        None => Ignored::NoBlock,
        Some(true) => Ignored::Yes,
        Some(false) => Ignored::Already,
    }
}

/// From now on what the calling thread allocates is no leak, and neither is what it leads to, until [`enable`] is
/// called as often as this.
pub fn disable() {
    if let Entry::Heap(entered) = entry::enter() {
        entered.heap.sampling.ignores.set(entered.heap.sampling.ignores.get().saturating_add(1));
    }
}

/// Takes one [`disable`] back. False if there was none.
pub fn enable() -> bool {
    let Entry::Heap(entered) = entry::enter() else { return true };
    let depth = entered.heap.sampling.ignores.get();
    entered.heap.sampling.ignores.set(depth.saturating_sub(1));
    depth > 0
}

/// There is to be no search at the end of the process.
pub fn turn_off() {
    reach::turn_off();
}
