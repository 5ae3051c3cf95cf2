//! Sizes of which a small program asks for few blocks use blocks of a coarser class.
//!
//! A slab has a page of memory from its first block on, and a small program has one or two blocks of most sizes: half of
//! what it held lay in the rest of such pages. The first requests of a class are taken for larger ones
//! ([`SizeClass::coarse`]), as if the program had asked for that. Each of them goes by way of the slow path. Which
//! thread makes them is of no matter, so that one that begins later pays nothing for it.

use core::sync::atomic::{AtomicU8, Ordering};

use super::Heap;
use crate::layout::size_class::{CLASSES, SizeClass};
use crate::tiers::thread_cache::limit;

/// Bytes that are in use in a small program at most.
const SMALL_PROGRAM: usize = 4 << 20;
/// Requests of a class at most that are taken for larger ones.
const FEW: u8 = 32;
/// Bytes that they may waste, all together: a page is what a slab would begin with. Of blocks that are longer, the end
/// that is not asked for lies in pages of its own, without memory.
const WASTE: usize = 4096;

/// Requests of each class that were taken for larger ones, about.
static REQUESTS: [AtomicU8; CLASSES] = [const { AtomicU8::new(0) }; CLASSES];

impl Heap {
    /// The class that is to serve a request of `class`.
    #[inline]
    pub fn class_for(&self, class: SizeClass) -> SizeClass {
        if self.slabs[class.index()].get() > 0 { class } else { class_without_slab(class) }
    }
}

#[inline(never)]
fn class_without_slab(class: SizeClass) -> SizeClass {
    let coarse = class.coarse();
    let Some(counter) = REQUESTS.get(class.index()) else { return class };
    let requests = counter.load(Ordering::Relaxed);
    let wastes = class.block() < WASTE && usize::from(requests) * (coarse.block() - class.block()) >= WASTE;
    if requests >= FEW || wastes || limit::in_use() > SMALL_PROGRAM {
        return class;
    }
    // Of two threads at once one may go uncounted.
    counter.store(requests + 1, Ordering::Relaxed);
    coarse
}
