//! Where the caller's part of the stack begins, and what it has in registers.

/// Whether the registers and the thread-local storage of this machine are known. A search for leaks needs both.
pub const IS_KNOWN: bool = cfg!(all(target_arch = "x86_64", not(miri)));

/// Calls `f` with the address of the registers that a function keeps for its caller, and with `argument`. The caller's
/// stack begins behind them, and nothing of the callee's lies there. Returns what `f` does.
///
/// # Safety
/// `f` returns.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[unsafe(naked)]
pub unsafe extern "C" fn with_callers(f: extern "C" fn(*const usize, usize) -> usize, argument: usize) -> usize {
    core::arch::naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov rax, rdi",
        "mov rdi, rsp",
        "sub rsp, 8",
        "call rax",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// Elsewhere registers are not known.
///
/// # Safety
/// `f` returns.
#[cfg(any(not(target_arch = "x86_64"), miri))]
pub unsafe fn with_callers(f: extern "C" fn(*const usize, usize) -> usize, argument: usize) -> usize {
    f(core::ptr::null(), argument)
}

/// The calling thread's pointer to its thread-local storage (ELF TLS, 3.4.6: the first word there is its own address).
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: reads the first word.
    unsafe { core::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly)) };
    pointer
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
pub fn thread_pointer() -> usize {
    0
}
