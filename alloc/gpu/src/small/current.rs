//! The word of thread-local storage that each call to a pool begins with: the cache that the thread used last.
//!
//! It is of the initial-exec model, one load from the thread pointer. `thread_local!` costs a call to `__tls_get_addr` in
//! a shared library, and every register that is saved around it. Stable Rust has no attribute for the model, so the word
//! is declared and read in assembly. It is null in a new thread.

use super::thread_cache::ThreadCache;

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod word {
    use std::arch::{asm, global_asm};

    // The version suffix keeps two versions of this crate in one program apart.
    global_asm!(
        ".section .tbss.poolscope_gpu_cache_0_1,\"awT\",@nobits",
        ".globl poolscope_gpu_cache_0_1",
        ".hidden poolscope_gpu_cache_0_1",
        ".type poolscope_gpu_cache_0_1,@object",
        ".size poolscope_gpu_cache_0_1,8",
        ".p2align 3",
        "poolscope_gpu_cache_0_1:",
        ".zero 8",
        ".text",
    );

    #[inline(always)]
    pub fn get() -> usize {
        let cache: usize;
        // SAFETY: reads the TLS word declared above through its GOT entry (which a linker may relax).
        unsafe {
            asm!(
                "mov {p}, qword ptr [rip + poolscope_gpu_cache_0_1@GOTTPOFF]",
                "mov {p}, qword ptr fs:[{p}]",
                p = out(reg) cache,
                options(nostack, preserves_flags, readonly)
            );
        }
        cache
    }

    pub fn set(cache: usize) {
        // SAFETY: writes the TLS word declared above.
        unsafe {
            asm!(
                "mov {p}, qword ptr [rip + poolscope_gpu_cache_0_1@GOTTPOFF]",
                "mov qword ptr fs:[{p}], {cache}",
                p = out(reg) _,
                cache = in(reg) cache,
                options(nostack, preserves_flags)
            );
        }
    }
}

// Other processors have no such library that was measured, and Miri knows no assembly.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod word {
    use std::cell::Cell;

    thread_local! {
        static CACHE: Cell<usize> = const { Cell::new(0) };
    }

    #[inline]
    pub fn get() -> usize {
        CACHE.get()
    }

    pub fn set(cache: usize) {
        CACHE.set(cache);
    }
}

/// The cache that this thread used last; null before the first one and after the last.
#[inline(always)]
pub fn get() -> *const ThreadCache {
    std::ptr::with_exposed_provenance(word::get())
}

/// Changes it.
pub fn set(cache: *const ThreadCache) {
    word::set(cache.expose_provenance());
}
