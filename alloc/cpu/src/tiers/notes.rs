//! What others note on a thread's heap, and nobody here looks at: the census, the collector, and captures of stacks.

use core::cell::Cell;

use poolscope_capture::{MAX_DEPTH, ThreadState};

use crate::layout::size_class::{CLASSES, SMALL_CLASSES};

/// What the census knows of a heap. Zeroed memory is nothing.
pub struct Notes {
    /// The number of `census::EPOCH` when the heap's thread counted everything. The thread's; the rest is the census's.
    pub epoch: Cell<u32>,
    /// What its thread had counted as freed of each class before the pages were walked, and the blocks that it has
    /// freed and not counted: in this order, so that none is counted twice.
    pub frees: [Cell<u64>; CLASSES],
    pub uncounted: [Cell<u32>; CLASSES],
    /// Blocks that wait in the outbox.
    pub unsent: [Cell<u32>; CLASSES],
    /// Where each list began, and how many blocks it had, when the thread had been in the slow path `visits` times.
    pub lists: [Cell<(usize, u32)>; SMALL_CLASSES],
    pub visits: Cell<u64>,
}

/// What the collector knows of a heap. Zeroed memory is nothing.
#[derive(Default)]
pub struct Idle {
    /// What `Heap::visits` was at the last look.
    pub visits: Cell<u64>,
    /// When that was, in milliseconds of the monotonic clock.
    pub since: Cell<u64>,
    /// Its cache was given back, and its thread has not been in the slow path since.
    pub collected: Cell<bool>,
    /// Times that its cache was left alone since its thread was in the slow path.
    pub refusals: Cell<u8>,
}

/// What a thread's captures need. Zeroed memory is that of a thread without one yet.
pub struct Capture {
    pub state: ThreadState,
    /// The latest one. It has no place on a stack that may be a coroutine's.
    pub frames: [u64; MAX_DEPTH],
}
