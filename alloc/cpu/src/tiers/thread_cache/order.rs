//! When a list of free blocks is put in the order of their addresses.
//!
//! Threads that pass blocks on free them in the order in which they got them, a list of their owner's is the sequence
//! of what they freed, and the processor foresees it, as long as it is one of neighbours. But a slab's blocks go
//! different ways: where a list was cut by a sample, or a slab is taken up while it comes back, sequences are mixed,
//! each time a little more, and nothing else ever puts them in order again.
//!
//! Where the program itself frees in no order, no sort lasts: then it is tried ever more rarely.

use core::cell::Cell;

use crate::layout::block::BlockPtr;
use crate::layout::holes::Marks;
use crate::layout::slab::Slab;

/// A list of fewer blocks is left in its order: where a thread stays with its slab, and where it goes on to the next.
pub const ORDERED_MIN: u32 = 64;
pub const NEXT_ORDERED_MIN: u32 = 16;
/// Of the links that are looked at, as many may lead elsewhere than to a neighbour.
const JUMPS_MAX: u32 = 1;
/// Lists at most that are left alone after one was put in order.
const PAUSE_MAX: u16 = 64;

/// Which threads freed the blocks of a list.
#[derive(Clone, Copy)]
pub enum Came {
    /// The one that owns them. They are often in its processor's caches still.
    FromItsThread,
    /// Others: they are in other processors' caches, and each one that is not foreseen is waited for.
    FromOthers,
}

impl Came {
    /// Links that are looked at, at the list's start: blocks that are about to be used anyway. One jump in 33 blocks,
    /// which eight links seldom show, made what threads pass on to each other take half as long again.
    fn looked_at(self) -> u32 {
        match self {
            Came::FromItsThread => 8,
            Came::FromOthers => 64,
        }
    }

    /// Lists that are left alone after one that was in order, so that a look costs a block no more.
    fn trusted(self) -> u16 {
        match self {
            Came::FromItsThread => 0,
            Came::FromOthers => 7,
        }
    }
}

/// A heap's. Zeroed memory is one that has seen no list yet.
pub struct Order {
    /// Lists to be left alone.
    wait: Cell<u16>,
    /// As many are left alone after the next sort.
    pause: Cell<u16>,
    /// A bit for each block of a slab that is being put in order. Not on the stack, which may be small.
    pub(super) marks: Marks,
}

impl Order {
    /// The list of so many free blocks of `slab`, put in order if that is due. It has more than a few.
    #[inline(always)]
    pub(super) fn arrange(&self, slab: &'static Slab, list: BlockPtr, blocks: u32, came: Came) -> BlockPtr {
        let wait = self.wait.get();
        if wait > 0 {
            self.wait.set(wait - 1);
            return list;
        }
        self.look(slab, list, blocks, came)
    }

    #[inline(never)]
    fn look(&self, slab: &'static Slab, list: BlockPtr, blocks: u32, came: Came) -> BlockPtr {
        let links = came.looked_at().min(blocks - 1);
        let jumps = jumps(list, slab.class.get().block(), links);
        if jumps <= JUMPS_MAX {
            self.pause.set(self.pause.get() / 2);
            self.wait.set(came.trusted());
            return list;
        }
        let pause = (self.pause.get() + 1).min(PAUSE_MAX);
        self.pause.set(pause);
        self.wait.set(pause);
        slab.in_order(list, &self.marks)
    }
}

/// How many of a list's first links don't lead to a neighbour. The list has more blocks than are looked at.
fn jumps(list: BlockPtr, size: usize, links: u32) -> u32 {
    let mut block = list;
    let mut jumps = 0;
    for _ in 0..links {
        // SAFETY: the list's blocks are free and the caller's.
        let next = unsafe { block.next() };
        let step = (next.address() as usize).wrapping_sub(block.address() as usize);
        // From two blocks below to two above.
        jumps += u32::from(step.wrapping_add(2 * size) > 4 * size);
        block = next;
    }
    jumps
}
