//! Hints to the processor.

/// Has the line of a value brought into the processor's caches, to be written to. Nothing waits for it.
#[inline(always)]
pub fn prefetch_to_write<T>(place: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint, which is harmless for any address. A processor without it takes it for no operation.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}
