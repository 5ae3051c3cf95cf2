//! The calling thread, told from others without a call.

/// The thread pointer: another one for each thread that lives, an even number, and the same in a forked child.
#[inline(always)]
pub fn address() -> usize {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let pointer;
        // SAFETY: the ABI keeps the block's own address in its first word (ELF TLS, 3.4.6).
        unsafe {
            core::arch::asm!(
                "mov {}, fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly, pure)
            );
        }
        pointer
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    {
        let pointer;
        // SAFETY: reads the register that the ABI has for it.
        unsafe {
            core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, preserves_flags, pure, nomem))
        };
        pointer
    }
    #[cfg(miri)]
    {
        // SAFETY: returns an address, always.
        unsafe { libc::__errno_location() }.addr()
    }
}
