//! The list that a freed block is pushed onto.
//!
//! `free` finds it in the descriptor of the block's page. It is the slab's own for small blocks, and the stack of the
//! owner's class for medium ones. So `free` does the same for either, and nothing has to foresee which it will be: where
//! sizes come at random, half of the branches would be taken in vain.

use core::cell::Cell;

use crate::layout::block::BlockPtr;

/// A list, and how many blocks may be pushed before its owner has to look. A slab's descriptor and a stack of the
/// medium cache have these two words, in this order.
#[repr(C)]
pub struct FreeList {
    /// The block that was pushed last.
    pub head: Cell<BlockPtr>,
    /// Falls by one with each push.
    pub countdown: Cell<u32>,
}

impl FreeList {
    /// Pushes a freed block; true if the owner has to look now. The countdown goes on below 0.
    ///
    /// # Safety
    /// The block was handed out and is free now; the list is the calling thread's.
    #[inline(always)]
    pub unsafe fn push(&self, block: BlockPtr) -> bool {
        // SAFETY: the caller's promise.
        unsafe { block.set_next(self.head.get()) };
        self.head.set(block);
        let left = self.countdown.get().wrapping_sub(1);
        self.countdown.set(left);
        left == 0
    }
}
