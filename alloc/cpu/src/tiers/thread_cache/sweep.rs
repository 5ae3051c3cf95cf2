//! Faults of the program that its lists of free blocks show: a block that is in them twice, an address at which no
//! block begins, a link that somebody wrote over.
//!
//! The fast path looks for none of it. But the first calls of a process, and those of an idle one, take the slow path
//! to be counted (`census/mod.rs`): there a freed block is looked up in the lists. And when the process ends, the
//! lists of the thread that ends it are walked, as far as a short program's go.

use core::sync::atomic::Ordering;

use super::Heap;
use super::exchange::BLOCKS_MAX;
use crate::layout::arena;
use crate::layout::block::BlockPtr;
use crate::layout::misuse;
use crate::layout::size_class::{CLASSES, SMALL_CLASSES, SizeClass};
use crate::layout::slab::{Slab, owner};

/// Blocks of a list that a freed one is compared with.
const COMPARED: usize = 64;
/// Blocks that are looked at when the process ends.
const SWEPT: usize = 4096;

impl Heap {
    /// Ends the process if a block of this heap's, at which a block of its slab begins, is free already.
    pub fn check_free(&self, slab: &'static Slab, block: BlockPtr) {
        let class = slab.class.get();
        if offset_in(slab, block) >= cut(slab) {
            misuse::invalid(block.address());
        }
        // SAFETY: memory of a slab that is this thread's; whatever is in it makes a number.
        let next = unsafe { block.next() };
        if !next.is_null() && arena::page_of(next.address()).is_none() {
            return;
        }
        let lists = slab.free_lists();
        let ready = if class.is_medium() { self.medium.stack(class).first() } else { self.head[class.index()].get() };
        for list in [lists[0], lists[1], ready] {
            if links(list).take(COMPARED).any(|free| free == block) {
                misuse::freed_before(block.address(), class.block());
            }
        }
    }

    /// Ends the process if the lists of free blocks, of which no more than some are looked at, show a fault.
    pub fn sweep(&self) {
        let mut left = SWEPT;
        for index in SMALL_CLASSES..CLASSES {
            self.sweep_stack(SizeClass(index as u8), &mut left);
        }
        for class in SizeClass::all().take(SMALL_CLASSES) {
            self.kept_lists(class).for_each(|list| {
                self.sweep_mixed(class, list, BLOCKS_MAX.min(left), &mut left);
            });
        }
        for class in SizeClass::all() {
            if let Some(slab) = self.of(class).active.get() {
                let is_its_own = !class.is_medium() && !self.is_list_kept(class);
                let ready = if is_its_own { self.head[class.index()].get() } else { BlockPtr::NULL };
                self.sweep_slab(slab, ready, &mut left);
            }
        }
        for class in &self.classes {
            for queue in class.queues() {
                queue.iter().take(left).for_each(|slab| self.sweep_slab(slab, BlockPtr::NULL, &mut left));
            }
        }
    }

    /// The lists of a slab, and the one that `malloc` pops, if that is of the slab.
    fn sweep_slab(&self, slab: &'static Slab, ready: BlockPtr, left: &mut usize) {
        let (size, marks) = (slab.class.get().block(), &self.order.marks);
        let lists = slab.free_lists();
        for list in [lists[0], lists[1], ready] {
            let mut before = None;
            let mut block = list;
            while !block.is_null() && *left > 0 {
                *left -= 1;
                let offset = offset_in(slab, block);
                if offset >= cut(slab) || !offset.is_multiple_of(size) {
                    not_a_free_block(slab, block, before);
                }
                let index = offset / size;
                let (word, bit) = (&marks[index / 64 % marks.len()], 1 << (index % 64));
                if word.get() & bit != 0 {
                    misuse::freed_before(block.address(), size);
                }
                word.set(word.get() | bit);
                before = Some(block);
                // SAFETY: a block of the slab, which is this thread's.
                block = unsafe { block.next() };
            }
        }
        marks.iter().for_each(|word| word.set(0));
    }

    /// The stack of a medium class, whose blocks are of many slabs.
    fn sweep_stack(&self, class: SizeClass, left: &mut usize) {
        let stack = self.medium.stack(class);
        // A signal handler may have come between a push and its count.
        let most = (stack.blocks() as usize + 1).min(*left);
        let ends = self.sweep_mixed(class, stack.first(), most, left);
        if !ends
            && most > stack.blocks() as usize
            && let Some(twice) = first_twice(stack.first(), most)
        {
            misuse::freed_before(twice.address(), class.block());
        }
    }

    /// A list of a class whose blocks are of many slabs, `most` of them. Whether it ends there.
    fn sweep_mixed(&self, class: SizeClass, list: BlockPtr, most: usize, left: &mut usize) -> bool {
        let mut before = None;
        let mut block = list;
        for walked in 0..=most {
            if block.is_null() {
                *left -= walked;
                return true;
            }
            let slab = arena::page_of(block.address()).map(Slab::head).filter(|slab| is_of(slab, class));
            match slab {
                Some(slab) => {
                    let offset = offset_in(slab, block);
                    let cut = if self.has(slab) { cut(slab) } else { class.info().capacity as usize * class.block() };
                    if offset >= cut || !offset.is_multiple_of(class.block()) {
                        not_a_free_block(slab, block, before);
                    }
                }
                None => misuse::written(before.unwrap_or(block).address(), class.block()),
            }
            before = Some(block);
            // SAFETY: a block of a slab of the class, which is free and this thread's.
            block = unsafe { block.next() };
        }
        *left -= most;
        false
    }

    fn has(&self, slab: &'static Slab) -> bool {
        slab.owner.load(Ordering::Relaxed) == self.tag()
    }
}

/// Whether it is a slab of this class: where blocks of many slabs are, other heaps' are, too.
fn is_of(slab: &'static Slab, class: SizeClass) -> bool {
    let tag = slab.owner.load(Ordering::Relaxed);
    (tag == owner::CENTRAL || tag > owner::LARGE) && slab.class.get() == class
}

/// Bytes from the start of a slab; more than it has if the block is none of its.
fn offset_in(slab: &'static Slab, block: BlockPtr) -> usize {
    (block.address() as usize).wrapping_sub(slab.address() as usize)
}

/// Bytes of a slab from which blocks were cut. Where it has holes, that may be anywhere.
fn cut(slab: &'static Slab) -> usize {
    let blocks = if slab.has_holes() { slab.capacity() } else { slab.carved.get().into() };
    blocks as usize * slab.class.get().block()
}

/// Ends the process for what a list leads to: an address that was freed, or what was written over a link.
#[cold]
fn not_a_free_block(slab: &'static Slab, block: BlockPtr, before: Option<BlockPtr>) -> ! {
    let (size, offset) = (slab.class.get().block(), offset_in(slab, block));
    match before {
        Some(before) if offset >= slab.bytes() => misuse::written(before.address(), size),
        _ if !offset.is_multiple_of(size) => misuse::not_a_start(block.address(), offset % size, size),
        _ => misuse::invalid(block.address()),
    }
}

/// The blocks of a list. Who asks for them knows that its links lead to blocks, or takes few of them.
fn links(list: BlockPtr) -> impl Iterator<Item = BlockPtr> {
    let mut block = list;
    core::iter::from_fn(move || {
        if block.is_null() || arena::page_of(block.address()).is_none() {
            return None;
        }
        let this = block;
        // SAFETY: it lies in pages of an arena, and was freed there.
        block = unsafe { this.next() };
        Some(this)
    })
}

/// The first block of a list that comes up a second time among the first `most`.
fn first_twice(list: BlockPtr, most: usize) -> Option<BlockPtr> {
    links(list)
        .take(most)
        .enumerate()
        .find(|(at, block)| links(list).take(*at).any(|other| other == *block))
        .map(|found| found.1)
}
