//! Who is told of blocks: the interface to a sampler and to a segment, neither of which this crate knows.
//!
//! The pool decides which allocations are sampled ([`crate::watch::sampling`]) and finds them again when they are
//! freed. The recorder captures stacks and keeps records. It is called without any of the pool's locks, but for
//! [`Recorder::publish`].

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use poolscope_wire::kind;

use crate::device::Stream;
use crate::watch::{Map, Stats};

/// A recorder's name for a block that it has recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(pub u32);

/// A sampled block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Where it lies.
    pub address: u64,
    /// Bytes that were asked for.
    pub size: u64,
    /// Objects that it stands for, in units of 1/65536: `1 / p` for the probability `p` that a block of its size is
    /// sampled.
    pub weight: u64,
    /// Bytes that the pool has given out now, with this block.
    pub in_use: u64,
}

/// What a pool says of itself, now and then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picture {
    /// Its counters.
    pub stats: Stats,
    /// Bytes of memory that the device has.
    pub memory: u64,
    /// What lies where.
    pub map: Map,
    /// Bytes that a cell stands for.
    pub cell_bytes: u64,
}

/// Keeps records of a pool's sampled blocks. No method may call the pool.
pub trait Recorder: Send + Sync {
    /// The number that the pool's device is shown by, and which memory of it the pool gives out
    /// (`poolscope_wire::kind`).
    fn shown_as(&self) -> (u32, u16) {
        (0, kind::DEVICE)
    }

    /// Mean bytes between two samples for the calling thread: 1 where every block is to be recorded,
    /// `None` where none is.
    fn period(&self) -> Option<u64>;

    /// Samples a second that all threads together may take before their periods are raised; 0: any number.
    fn samples_per_second(&self) -> u64;

    /// Records a block, with the calling thread's stack. `None` if there is no room.
    fn allocated(&self, sample: &Sample) -> Option<Token>;

    /// The block is about to be freed. `in_use` are the bytes that the pool has given out with it, and without it: so
    /// what is recorded and what is counted are of one moment.
    fn freed(&self, token: Token, address: u64, in_use: [u64; 2]);

    /// Whether anyone reads the published pictures.
    fn wants_pictures(&self) -> bool {
        true
    }

    /// Shows what the pool says of itself. The pool's lock is held.
    fn publish(&self, picture: &Picture);

    /// What holds the most of the memory in use by the stacks that allocated it, at most so many, a line each, and what
    /// nobody is known to hold: for the message where there is none left.
    fn holders(&self, in_use: u64, most: usize) -> Vec<String> {
        let _ = (in_use, most);
        Vec::new()
    }

    /// Has the bit [`TRACED`](poolscope_wire::trace::TRACED) set in the pool's word while somebody wants to be told of
    /// every block, from now until [`unwatch`](Self::unwatch). The word stays where it is.
    fn watch(&self, word: &AtomicU64) {
        let _ = word;
    }

    /// The word is about to go.
    fn unwatch(&self, word: &AtomicU64) {
        let _ = word;
    }

    /// A block was allocated, and nobody has it yet. Called for every one while the bit is set.
    fn told_allocated(&self, address: u64, size: u64, stream: Stream) {
        let _ = (address, size, stream);
    }

    /// A block is about to be freed: as above.
    fn told_freed(&self, address: u64, stream: Stream) {
        let _ = (address, stream);
    }

    /// The recorder of the pool of memory that is pinned for this pool's device.
    fn for_pinned(&self) -> Arc<dyn Recorder> {
        Arc::new(NoRecorder)
    }

    /// The pool is gone.
    fn closed(&self);
}

/// Records nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRecorder;

impl Recorder for NoRecorder {
    fn period(&self) -> Option<u64> {
        None
    }

    fn samples_per_second(&self) -> u64 {
        0
    }

    fn allocated(&self, _: &Sample) -> Option<Token> {
        None
    }

    fn freed(&self, _: Token, _: u64, _: [u64; 2]) {}

    fn wants_pictures(&self) -> bool {
        false
    }

    fn publish(&self, _: &Picture) {}

    fn closed(&self) {}
}
