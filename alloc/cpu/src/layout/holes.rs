//! Holes of a slab: units in which no block is in use, and of which the kernel has the memory.
//!
//! One block in use keeps its whole slab. Where few are left, most pages of the slab have none. Those go back to the
//! kernel, and the blocks that lie in them, whole or in part, are no longer cut: `carved` counts the others. They are
//! cut again, unit by unit, when the slab has no other free block. A slab of one page of the arena has units of a
//! kernel page; one of several has a unit for each block, or for two.

use core::cell::Cell;

use crate::kernel::os;
use crate::layout::arena::ARENA_PAGE;
use crate::layout::block::BlockPtr;
use crate::layout::size_class::{self, CAPACITY_MAX, CLASSES, ClassInfo};
use crate::layout::slab::Slab;

const KERNEL_PAGE: usize = 4096;
/// Bytes of a line of the processor's caches.
const LINE: usize = 64;

/// A bit for each block of a slab. All are zero before and after they are used.
pub type Marks = [Cell<u64>; CAPACITY_MAX / 64];

/// What went back.
pub struct Released {
    /// Bytes.
    pub bytes: usize,
    /// Calls to the kernel.
    pub calls: u64,
}

/// Bytes of a unit, and units of a slab.
const fn units_of(info: &ClassInfo) -> (usize, usize) {
    if info.slab_pages == 1 {
        (KERNEL_PAGE, ARENA_PAGE / KERNEL_PAGE)
    } else {
        let blocks = info.capacity.div_ceil(u16::BITS);
        ((info.block * blocks) as usize, info.capacity.div_ceil(blocks) as usize)
    }
}

const _: () = {
    let (table, mut class) = (size_class::build_table(), 0);
    while class < CLASSES {
        assert!(units_of(&table[class]).1 <= u16::BITS as usize);
        class += 1;
    }
};

/// The units that a block lies in, as bits.
fn units_of_block(index: usize, block: usize, unit: usize) -> u16 {
    let (first, last) = (index * block / unit, ((index + 1) * block - 1) / unit);
    (((2_u32 << last) - 1) >> first << first) as u16
}

fn is_marked(marks: &Marks, index: usize) -> bool {
    marks[index / 64 % marks.len()].get() >> (index % 64) & 1 != 0
}

fn mark(marks: &Marks, index: usize) {
    let word = &marks[index / 64 % marks.len()];
    word.set(word.get() | 1 << (index % 64));
}

impl Slab {
    /// Blocks that were not cut and lie in pages that have memory. Of a slab without holes.
    pub fn uncut_with_memory(&self) -> u32 {
        let (carved, block) = (u32::from(self.carved.get()), self.class.get().block());
        let in_its_page = (carved as usize * block).next_multiple_of(KERNEL_PAGE) / block;
        let touched = self.capacity() - self.untouched_with(self.carved.get(), false);
        (in_its_page as u32).min(self.capacity()).max(touched) - carved
    }

    /// Whether parts of it went back to the kernel and were not used again.
    #[inline]
    pub fn has_holes(&self) -> bool {
        self.holes.get() != 0
    }

    /// Blocks in use of which pages without any are likely.
    pub fn thin_max(&self) -> u32 {
        units_of(self.class.get().info()).1 as u32
    }

    fn units(&self) -> (usize, usize) {
        units_of(self.class.get().info())
    }

    /// Cuts the blocks of as many units as it takes for `want` of them, with `behind` behind them. They count as handed
    /// out.
    #[cold]
    pub fn fill_holes(&'static self, want: u32, behind: BlockPtr) -> (BlockPtr, u32) {
        let ((unit, _), size) = (self.units(), self.class.get().block());
        let (mut first, mut last, mut count) = (BlockPtr::NULL, BlockPtr::NULL, 0);
        while count < want && self.has_holes() {
            let holes = self.holes.get();
            let at = holes.trailing_zeros() as usize;
            self.holes.set(holes & (holes - 1));
            let end = ((at + 1) * unit).div_ceil(size).min(self.capacity() as usize);
            for index in at * unit / size..end {
                if units_of_block(index, size, unit) & self.holes.get() != 0 {
                    continue;
                }
                // SAFETY: the block lies in the slab, and is not cut: it is the owner's.
                let block = BlockPtr::new(unsafe { self.address().add(index * size) });
                if count == 0 {
                    first = block;
                } else {
                    // SAFETY: the block before was just cut.
                    unsafe { last.set_next(block) };
                }
                last = block;
                count += 1;
            }
        }
        if count > 0 {
            // SAFETY: as above.
            unsafe { last.set_next(behind) };
        }
        let live = self.in_use() + count;
        self.carved.set(self.carved.get() + count as u16);
        self.arm(live, 0);
        (first, count)
    }

    /// Gives the units in which no block is in use back to the kernel, and puts the other free blocks in the order of
    /// their addresses. The owner arms the slab anew.
    pub fn make_holes(&'static self, marks: &Marks) -> Released {
        let (holes, size, in_use) = (self.holes.get(), self.class.get().block(), self.in_use());
        let ((unit, units), capacity) = (self.units(), self.capacity() as usize);
        self.mark_free(marks);
        let is_free = |at: usize| {
            let end = ((at + 1) * unit).div_ceil(size).min(capacity);
            (at * unit / size..end).all(|index| is_marked(marks, index))
        };
        let found = (0..units).filter(|&at| is_free(at)).fold(0_u16, |found, at| found | 1 << at);
        // What was never touched needs no call.
        let touched = if holes == 0 { self.touched_bytes() } else { self.bytes() };
        let has_memory = |at: &usize| at * unit < touched && holes >> at & 1 == 0;
        let gained = (0..units).filter(has_memory).fold(0, |gained, at| gained | found & 1 << at);
        if gained != 0 {
            let (mut first, mut free) = (BlockPtr::NULL, 0);
            for at in (0..units).rev().filter(|at| found >> at & 1 == 0) {
                // The blocks that begin in this unit.
                let from = (at * unit).div_ceil(size);
                let end = ((at + 1) * unit).div_ceil(size).min(capacity);
                for index in (from..end).rev().filter(|&index| is_marked(marks, index)) {
                    let may_reach_on = index + 1 == end;
                    if may_reach_on && units_of_block(index, size, unit) & found != 0 {
                        continue;
                    }
                    // SAFETY: the block is free, and the owner's.
                    let block = BlockPtr::new(unsafe { self.address().add(index * size) });
                    // SAFETY: as above.
                    unsafe { block.set_next(first) };
                    (first, free) = (block, free + 1);
                }
            }
            self.set_free(first, in_use + free);
            self.holes.set(found);
        }
        marks.iter().for_each(|word| word.set(0));
        self.release_runs(found, gained)
    }

    /// Marks every block that is not in use.
    fn mark_free(&'static self, marks: &Marks) {
        let (base, size) = (self.address() as usize, self.class.get().block());
        let (unit, _) = self.units();
        let capacity = self.capacity() as usize;
        // The list leads through the whole slab, from one line to another that nobody foresees.
        if self.pages.get() == 1 {
            (0..ARENA_PAGE)
                .step_by(LINE.max(size & !(LINE - 1)))
                .for_each(|offset| BlockPtr::new((base + offset) as *mut u8).prefetch());
        }
        for list in self.free_lists() {
            let mut block = list;
            while !block.is_null() {
                mark(marks, (block.address() as usize - base) as u32 as usize / size);
                // SAFETY: the list's blocks are free and the owner's.
                block = unsafe { block.next() };
            }
        }
        if self.has_holes() {
            let is_in_hole = |index: &usize| units_of_block(*index, size, unit) & self.holes.get() != 0;
            (0..capacity).filter(is_in_hole).for_each(|index| mark(marks, index));
        } else {
            (usize::from(self.carved.get())..capacity).for_each(|index| mark(marks, index));
        }
    }

    /// Gives runs of units back that have some of `gained` among them.
    fn release_runs(&'static self, found: u16, gained: u16) -> Released {
        let mut released = Released { bytes: 0, calls: 0 };
        let ((unit, units), mut at) = (self.units(), 0);
        while gained >> at != 0 {
            let ones = (found >> at).trailing_ones() as usize;
            let run = ((1_u32 << ones) - 1) << at;
            if u32::from(gained) & run != 0 {
                let from = (at * unit).next_multiple_of(KERNEL_PAGE);
                let end = if at + ones == units { self.bytes() } else { (at + ones) * unit };
                let to = end & !(KERNEL_PAGE - 1);
                if from < to {
                    // SAFETY: no block of the range is in use or cut.
                    let gone = unsafe { os::decommit(self.address().add(from), to - from) };
                    released.calls += 1;
                    released.bytes += if gone { to - from } else { 0 };
                }
            }
            at += ones.max(1);
            if at >= units {
                break;
            }
        }
        released
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::size_class::SizeClass;

    #[test]
    fn the_blocks_of_a_unit_are_those_that_lie_in_it() {
        for class in SizeClass::all() {
            let (info, size) = (class.info(), class.block());
            let ((unit, units), capacity) = (units_of(info), info.capacity as usize);
            assert!(units <= 16 && unit * units <= info.slab_pages as usize * ARENA_PAGE + unit);
            let mut bits = vec![0_u16; capacity];
            for at in 0..units {
                let end = ((at + 1) * unit).div_ceil(size).min(capacity);
                (at * unit / size..end).for_each(|index| bits[index] |= 1 << at);
            }
            for (index, bits) in bits.into_iter().enumerate() {
                assert_ne!(bits, 0);
                assert_eq!(bits, units_of_block(index, size, unit), "block {index} of {size} bytes");
            }
        }
    }
}
