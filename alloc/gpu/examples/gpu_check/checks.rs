//! The checks, in the order in which they run: what each makes sure of is a sentence.

mod granules;
mod graphs;
mod places;
mod setup;
mod streams;
mod threads;

pub use setup::Settings;

use crate::gpu::{Gpu, Result};

pub type Check = fn(&Gpu, &Settings) -> Result<String>;

pub const CHECKS: &[(&str, Check)] = &[
    ("a granule may be mapped at two addresses", granules::two_addresses),
    ("the detector sees an overlap that is there", streams::detector),
    ("the default streams are told apart", streams::default_streams),
    ("a block freed on one stream and allocated on another is not in use by both", streams::streams),
    ("a block freed on another stream than its own waits for both", streams::freed_elsewhere),
    ("a recorded stream holds a block back", streams::recorded),
    ("a thread's default stream shares with the others", streams::per_thread),
    ("a captured graph has its memory to itself, and no call ends the capture", graphs::graph),
    ("a capture that the pool is not told of survives other threads' calls", graphs::untold_capture),
    ("memory remapped under load keeps its contents", granules::remapping),
    ("a full device is refused with the whole picture, and recovers", granules::full),
    ("pinned host memory serves when the limit is reached", places::pinned_fallback),
    ("pinned host memory is read and written by both sides", places::pinned),
    ("plain allocations serve where there is no virtual memory", places::plain),
    ("idle memory goes back by itself", granules::idle),
    ("another device reads and writes this one's memory", places::peers),
    ("threads with streams of their own keep their contents", threads::threads),
    ("a stream that was destroyed without a word a while ago strands nothing", streams::lost),
];
