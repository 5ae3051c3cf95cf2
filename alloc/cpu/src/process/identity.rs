//! What the pool does before a process changes who it is, or where its paths lead.

use crate::entry::{self, Entry};
use crate::process::scavenger::{self, Paused};
use crate::reach;
use crate::sampler;
use crate::segment::ownership;

/// To be called before the process changes its credentials, its root or its namespaces. Files that it may find no more
/// are kept open. The pool's own thread is gone until the result is dropped ([`scavenger::pause`]).
pub fn before_change() -> Paused {
    // A child of `vfork` changes what is its own alone.
    if !ownership::is_child_in_its_memory() {
        if let Entry::Heap(entered) = entry::enter() {
            sampler::keep_segment_open(entered.slow);
        }
        reach::keep_files();
    }
    scavenger::pause()
}
