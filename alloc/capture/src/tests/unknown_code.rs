//! Code that no table describes, and processes that part.
use super::*;
use crate::{fork_child, fork_parent, fork_prepare, module_count};
use std::ffi::c_void;

extern "C" fn callback(result: *mut c_void) {
    // SAFETY: `run` passes its own variable.
    unsafe { *result.cast() = here() };
}

#[cfg(target_arch = "aarch64")]
unsafe extern "C" {
    /// Has the processor see code that was just written (libgcc).
    fn __clear_cache(from: *mut c_void, to: *mut c_void);
}

/// Runs `code`, which calls its first argument with its second, at an address that belongs to no module.
fn run(code: &[u8]) -> (Captured, Vec<u64>) {
    let mut seen: (Captured, Vec<u64>) = Default::default();
    // SAFETY: a page of our own, with code that keeps to the calling convention.
    unsafe {
        let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let page = libc::mmap(std::ptr::null_mut(), 4096, all, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        page.cast::<u8>().copy_from_nonoverlapping(code.as_ptr(), code.len());
        #[cfg(target_arch = "aarch64")]
        __clear_cache(page, page.byte_add(4096));
        let enter: extern "C" fn(extern "C" fn(*mut c_void), *mut c_void) = std::mem::transmute(page);
        enter(callback, (&raw mut seen).cast());
        libc::munmap(page, 4096);
    }
    seen
}

#[test]
fn generated_code_with_frame_pointers_is_passed() {
    // stp x29, x30, [sp, #-16]!; mov x29, sp; mov x2, x0; mov x0, x1; blr x2; ldp x29, x30, [sp], #16; ret
    #[cfg(target_arch = "aarch64")]
    let code = [0xa9bf_7bfd_u32, 0x9100_03fd, 0xaa00_03e2, 0xaa01_03e0, 0xd63f_0040, 0xa8c1_7bfd, 0xd65f_03c0]
        .map(u32::to_le_bytes)
        .concat();
    #[cfg(target_arch = "x86_64")]
    // push rbp; mov rbp, rsp; mov rax, rdi; mov rdi, rsi; call rax; pop rbp; ret
    let code = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3];
    let (captured, frames) = run(&code);
    let names = names(&frames);
    assert!(!captured.incomplete, "{names:#?}");
    assert!(names.iter().any(|name| name.contains("generated_code_with")), "{names:#?}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn generated_code_without_frame_pointers_ends_the_walk() {
    // push rbp; xor ebp, ebp; mov rax, rdi; mov rdi, rsi; call rax; mov ecx, ecx; pop rbp; ret
    let code = [0x55, 0x31, 0xed, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x89, 0xc9, 0x5d, 0xc3];
    let (captured, frames) = run(&code);
    assert!(captured.incomplete);
    // The last frame that is certain is the callback that the code called.
    assert!(names(&frames).last().is_some_and(|name| name.contains("callback")));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_stub_around_a_call_is_passed_without_a_frame_pointer() {
    // sub rsp, 8; mov rax, rdi; mov rdi, rsi; call rax; add rsp, 8; ret
    let code = [0x48, 0x83, 0xec, 8, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x48, 0x83, 0xc4, 8, 0xc3];
    let (captured, frames) = run(&code);
    let names = names(&frames);
    assert!(!captured.incomplete, "{names:#?}");
    assert!(names.iter().any(|name| name.contains("a_stub_around")), "{names:#?}");
}

#[test]
fn a_child_captures_on() {
    // A fork holds the table's lock, and listing a module waits for no one.
    let _guard = super::replaced::LOADING.lock();
    here();
    for _ in 0..20 {
        fork_prepare(|_| {});
        // SAFETY: the child captures, which takes no lock of libc, and leaves.
        let child = unsafe { libc::fork() };
        if child == 0 {
            fork_child();
            let mut frames = [0; MAX_DEPTH];
            let captured = capture(&mut ThreadState::new(), &Caller::here(), &mut frames);
            let good = captured.depth > 3 && !captured.incomplete && module_count() > 0;
            // SAFETY: ends the child.
            unsafe { libc::_exit(if good { 0 } else { 1 }) };
        }
        fork_parent();
        let mut status = -1;
        // SAFETY: waits for the child just made.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
