//! Addresses that a program frees and that are no allocated block's: the process ends with a message.

use crate::kernel::message::Message;
use crate::layout::block::BlockPtr;
use crate::layout::slab::Slab;

/// Ends the process unless a block of the slab begins at this address.
#[inline]
pub fn check_start(slab: &'static Slab, block: BlockPtr) {
    let offset = block.address() as usize - slab.address() as usize;
    if !slab.class.get().begins_at(offset as u32) {
        inside_block(slab, block);
    }
}

#[cold]
#[inline(never)]
fn inside_block(slab: &'static Slab, block: BlockPtr) -> ! {
    let (offset, size) = (block.address() as usize - slab.address() as usize, slab.class.get().block());
    not_a_start(block.address(), offset % size, size)
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
