//! Addresses that a program frees and that are no allocated block's: the process ends with a message.

use crate::kernel::message::Message;
use crate::layout::block::BlockPtr;
use crate::layout::slab::Slab;

/// Ends the process unless the address has the alignment that all blocks of the slab have. For most addresses inside a
/// block that is the same as [`check_start`], without its division: that takes a tenth of what such a free takes.
#[inline]
pub fn check_alignment(slab: &'static Slab, block: BlockPtr) {
    let size = slab.class.get().block();
    if block.address() as usize & ((size & size.wrapping_neg()) - 1) != 0 {
        check_start(slab, block);
    }
}

/// Ends the process unless a block of the slab begins at this address.
#[inline]
pub fn check_start(slab: &'static Slab, block: BlockPtr) {
    let inside = inside_block(slab, block.address() as usize - slab.address() as usize);
    if inside != 0 {
        not_a_start(block.address(), inside, slab.class.get().block());
    }
}

/// How far inside a block of the slab the byte lies that is `offset` bytes behind the slab's start.
#[inline(always)]
pub fn inside_block(slab: &'static Slab, offset: usize) -> usize {
    // A slab is shorter than 4 GiB, and the division of such numbers is the faster one.
    (offset as u32 % slab.class.get().block() as u32) as usize
}

/// Ends the process: `p` lies inside a block that has room for `block` bytes.
#[cold]
pub fn not_a_start(p: *mut u8, inside: usize, block: usize) -> ! {
    Message::new("free of ")
        .address(p as usize)
        .text(", which lies ")
        .number(inside as u64)
        .text(" bytes inside a block of up to ")
        .number(block as u64)
        .text(" bytes")
        .abort()
}

/// Ends the process: the block at `p`, which had room for `block` bytes, was freed before.
#[cold]
pub fn freed_before(p: *mut u8, block: usize) -> ! {
    Message::new("double free of ")
        .address(p as usize)
        .text(", a block of up to ")
        .number(block as u64)
        .text(" bytes")
        .abort()
}

/// Ends the process: the free block at `p`, which has room for `block` bytes, is not as the pool left it.
#[cold]
pub fn written(p: *mut u8, block: usize) -> ! {
    Message::new("use after free of ")
        .address(p as usize)
        .text(", a block of up to ")
        .number(block as u64)
        .text(" bytes: it was written to after it was freed, or from the block before it")
        .abort()
}

/// Ends the process: `p` is not a block of the pool, or was freed before.
#[cold]
pub fn invalid(p: *mut u8) -> ! {
    Message::new("free of ").address(p as usize).text(", which is not an allocated block").abort()
}
