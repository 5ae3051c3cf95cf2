//! A slab's free blocks, put in order.

use super::Slab;
use crate::layout::block::BlockPtr;
use crate::layout::holes::Marks;

impl Slab {
    /// A list of this slab's free blocks, in the order of their addresses, up or down as most of it led before: lists
    /// that are used one after the other go on in one direction. `marks` are all zero, before and after.
    #[inline(never)]
    pub fn in_order(&'static self, list: BlockPtr, marks: &Marks) -> BlockPtr {
        let (base, size) = (self.address() as usize, self.class.get().block() as u32);
        let (mut block, mut rises) = (list, 0_i32);
        while !block.is_null() {
            let index = (block.address() as usize - base) as u32 / size;
            let word = &marks[index as usize / 64 % marks.len()];
            word.set(word.get() | 1 << (index % 64));
            // SAFETY: the list's blocks are free and the owner's.
            let next = unsafe { block.next() };
            rises += if next.address() > block.address() { 1 } else { -1 };
            block = next;
        }
        let (mut first, mut last) = (BlockPtr::NULL, BlockPtr::NULL);
        for (at, word) in marks.iter().enumerate().rev() {
            let mut left = word.replace(0);
            while left != 0 {
                let bit = 63 - left.leading_zeros();
                left ^= 1 << bit;
                let block = BlockPtr::new((base + (at * 64 + bit as usize) * size as usize) as *mut u8);
                if rises >= 0 {
                    // SAFETY: it is one of the list's.
                    unsafe { block.set_next(first) };
                    first = block;
                } else if first.is_null() {
                    (first, last) = (block, block);
                } else {
                    // SAFETY: as above.
                    unsafe { last.set_next(block) };
                    last = block;
                }
            }
        }
        if !last.is_null() {
            // SAFETY: as above.
            unsafe { last.set_next(BlockPtr::NULL) };
        }
        first
    }
}
