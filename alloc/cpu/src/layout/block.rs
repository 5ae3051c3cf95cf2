//! Free blocks and lists of them.

/// A free block of at least 16 bytes; its first word links it to the next, its second is for notes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct BlockPtr(*mut Block);

/// The memory of a free block.
#[repr(C)]
pub struct Block {
    next: BlockPtr,
    /// What a batch says of itself, see [`crate::layout::block::Batch`].
    note: u64,
}

impl BlockPtr {
    /// The end of a list.
    pub const NULL: BlockPtr = BlockPtr(core::ptr::null_mut());

    /// A block at `address`.
    #[inline(always)]
    pub fn new(address: *mut u8) -> Self {
        BlockPtr(address.cast())
    }

    /// Whether this is the end of a list.
    #[inline(always)]
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The block's memory.
    #[inline(always)]
    pub fn address(self) -> *mut u8 {
        self.0.cast()
    }

    /// Has the block brought into the processor's caches, wherever it is.
    #[inline(always)]
    pub fn prefetch(self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, for any address.
        unsafe {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(self.0.cast());
        }
    }

    /// The next block of the list.
    ///
    /// # Safety
    /// The block is free, was linked by [`BlockPtr::set_next`], and belongs to the caller.
    #[inline(always)]
    pub unsafe fn next(self) -> BlockPtr {
        // SAFETY: the caller owns this free block.
        unsafe { (*self.0).next }
    }

    /// Links `next` behind this block.
    ///
    /// # Safety
    /// The block is free memory of the pool, at least 8 bytes and 8-byte aligned, and belongs to the caller.
    #[inline(always)]
    pub unsafe fn set_next(self, next: BlockPtr) {
        // SAFETY: the caller owns this free block.
        unsafe { (*self.0).next = next }
    }

    /// The note in the block.
    ///
    /// # Safety
    /// As for [`BlockPtr::next`], with [`BlockPtr::set_note`].
    #[inline(always)]
    pub unsafe fn note(self) -> u64 {
        // SAFETY: the caller owns this free block.
        unsafe { (*self.0).note }
    }

    /// Leaves a note in the block.
    ///
    /// # Safety
    /// As for [`BlockPtr::set_next`].
    #[inline(always)]
    pub unsafe fn set_note(self, note: u64) {
        // SAFETY: the caller owns this free block.
        unsafe { (*self.0).note = note }
    }

    /// The block `n` places behind this one.
    ///
    /// # Safety
    /// As for [`BlockPtr::next`], for all blocks between.
    pub unsafe fn nth(self, n: usize) -> BlockPtr {
        let mut block = self;
        for _ in 0..n {
            // SAFETY: as above.
            block = unsafe { block.next() };
        }
        block
    }

    /// Ends the list after `n` blocks, at least 1, and returns the rest of it.
    ///
    /// # Safety
    /// As for [`BlockPtr::next`], for the `n` blocks.
    pub unsafe fn cut(self, n: u32) -> BlockPtr {
        // SAFETY: as above.
        unsafe {
            let last = self.nth(n as usize - 1);
            let rest = last.next();
            last.set_next(BlockPtr::NULL);
            rest
        }
    }
}

/// Freed blocks of one slab, a linked list.
#[derive(Clone, Copy)]
pub struct Batch {
    /// The first block.
    pub first: BlockPtr,
    /// The last one.
    pub last: BlockPtr,
    /// How many there are.
    pub count: u32,
    /// They are in the counters as freed already: blocks that another thread than their owner has kept for a while.
    pub counted: bool,
}

impl Batch {
    /// A batch of one block.
    pub fn of(block: BlockPtr) -> Batch {
        Batch { first: block, last: block, count: 1, counted: false }
    }
}
