//! A hint to the processor: the one thing in this crate that safe code can't say.
#![expect(unsafe_code, reason = "the instruction takes a pointer")]

/// Has a value brought into the processor's caches, because it is about to be looked at. Nothing waits for it.
#[inline(always)]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which is harmless for any address; every x86-64 processor knows it.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(value).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
