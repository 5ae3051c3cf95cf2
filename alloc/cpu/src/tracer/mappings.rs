//! Mappings of the trace's file, for the handler of [`crate::segment::bus_error`]: the first page, the ring that is
//! being made, and the calling thread's ring.

use core::sync::atomic::{AtomicUsize, Ordering};

use super::thread;
use crate::threads::thread_pointer;

/// A mapping that is in use by whoever is in the trace's session.
pub struct Watched {
    address: AtomicUsize,
    len: AtomicUsize,
}

/// The first page of the trace's file, and the ring that is being made.
pub static HEADER: Watched = Watched::new();
pub static NEW_RING: Watched = Watched::new();

impl Watched {
    /// None.
    const fn new() -> Watched {
        Watched { address: AtomicUsize::new(0), len: AtomicUsize::new(0) }
    }

    /// Another one.
    pub fn set(&self, p: *mut u8, len: usize) {
        self.len.store(0, Ordering::Release);
        self.address.store(p as usize, Ordering::Release);
        self.len.store(len, Ordering::Release);
    }

    fn range_of(&self, address: usize) -> Option<(usize, usize)> {
        let from = self.address.load(Ordering::Acquire);
        let len = self.len.load(Ordering::Acquire);
        (address.wrapping_sub(from) < len).then_some((from, len))
    }
}

/// The mapping that an address lies in: where it begins, and its bytes.
pub fn around(address: usize) -> Option<(usize, usize)> {
    [&HEADER, &NEW_RING].into_iter().find_map(|watched| watched.range_of(address)).or_else(|| {
        // SAFETY: any heap will do, and a thread has the same one as long as it lives.
        let heap = unsafe { &*thread_pointer::home() };
        thread::ring_of(heap).filter(|&(from, len)| address.wrapping_sub(from) < len)
    })
}
