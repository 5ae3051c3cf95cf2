//! Where a function keeps the registers of its caller, by the machine's calling convention.

/// Where the return address lies of a frame that ends at `end`, its canonical frame address, and that keeps the
/// caller's frame pointer `fp` bytes below that.
///
/// On x86-64 a call pushes it, so that it is a frame's last word. On AArch64 a function stores it behind the caller's
/// frame pointer: both make a frame record, which may lie anywhere in the frame (procedure call standard, 6.4.6).
#[inline(always)]
pub(crate) const fn return_address(end: usize, fp: usize) -> usize {
    if cfg!(target_arch = "x86_64") { end.wrapping_sub(8) } else { end.wrapping_sub(fp).wrapping_add(8) }
}

/// The address that a stored return address names. On AArch64 its highest bits may be a signature (pointer
/// authentication), which no address of user space reaches (48 bits, unless a program asks for more by a hint).
#[inline(always)]
pub(crate) const fn unsigned(word: usize) -> usize {
    if cfg!(target_arch = "x86_64") { word } else { word & ((1 << ADDRESS_BITS) - 1) }
}

/// Bits of an address of user space.
pub(crate) const ADDRESS_BITS: u32 = 48;
