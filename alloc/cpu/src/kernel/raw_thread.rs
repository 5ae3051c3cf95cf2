//! A thread of the kernel's, which the C library knows nothing of.
//!
//! `pthread_create` allocates, takes the loader's locks, makes the C library's locks and counters those of a
//! multi-threaded program for good, and keeps the process alive after its last other thread. A `clone` does none of
//! that. The thread blocks every signal but `SIGBUS`, which the pool handles (`bus_error.rs`), so that none of the
//! program's handlers runs on it, and may only call what
//! touches no thread-local storage but `errno`: it has a block of its own for that, with this crate's words and the
//! stack protector's in their places. There is one such thread at a time; its memory is made once.

/// What came of [`start`].
pub enum Started {
    /// The thread runs.
    Yes,
    /// It can't be started at this moment.
    NotNow,
    /// There is no memory for it, or the process may have no more threads: later that may be otherwise.
    NoRoom,
    /// Not in this process.
    Never,
}

pub use platform::{
    begin, forget, is_alive, is_of_another_process, is_this, own_memory, start, wait_for_end, wait_until_gone,
};

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
mod platform {
    use core::sync::atomic::{AtomicIsize, AtomicU32, AtomicUsize, Ordering};

    use super::Started;
    use crate::kernel::os;
    use crate::kernel::this_thread;

    /// Bytes of the stack.
    const STACK: usize = 64 * 1024;
    /// Bytes of the C library's record of a thread, with some to spare.
    const RECORD: usize = 8192;
    /// A page of the kernel's, or several.
    const KERNEL_PAGE: usize = if cfg!(target_arch = "x86_64") { 4096 } else { 64 << 10 };
    /// The most bytes of thread-local storage that the thread could have.
    const STORAGE_MAX: usize = 64 << 20;
    /// Looks for a thread that has ended, until it is taken for another one with its number.
    const TRIES: usize = 2000;
    const FLAGS: i32 = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_SETTLS
        | libc::CLONE_PARENT_SETTID
        | libc::CLONE_CHILD_CLEARTID;

    /// Its id while it lives; the kernel writes 0 when it is gone, and its stack is free.
    static ALIVE: AtomicU32 = AtomicU32::new(0);
    /// Its id, until it was seen to be gone.
    static LAST: AtomicU32 = AtomicU32::new(0);
    /// The process that may start it: whose memory this is.
    static PROCESS: AtomicU32 = AtomicU32::new(0);
    /// Its thread pointer; the stack lies below the block.
    static CONTROL: AtomicUsize = AtomicUsize::new(0);
    /// Where a thread's words lie, from its thread pointer on, and what the thread has there.
    static WORDS: AtomicIsize = AtomicIsize::new(0);
    static IN_WORDS: AtomicUsize = AtomicUsize::new(0);
    static STACK_TOP: AtomicUsize = AtomicUsize::new(0);
    /// Where its thread-local block ends.
    static END: AtomicUsize = AtomicUsize::new(0);

    /// Bytes of a thread-local block below the thread pointer and from there on. The C library's words reach from
    /// `first` to `last`, counted in the calling thread, whose pointer is `here`.
    ///
    /// On x86-64 static storage lies below the thread pointer and the C library's record above it. On AArch64 it is the
    /// other way round (ELF TLS, 3: variants II and I).
    fn extent(here: usize, first: usize, last: usize) -> Option<(usize, usize)> {
        let storage = if cfg!(target_arch = "x86_64") { here.saturating_sub(first) } else { last.saturating_sub(here) };
        if storage > STORAGE_MAX {
            return None;
        }
        let storage = (storage + 64).next_multiple_of(KERNEL_PAGE);
        let record = RECORD.next_multiple_of(KERNEL_PAGE);
        Some(if cfg!(target_arch = "x86_64") { (storage, record) } else { (record, storage) })
    }

    /// Fills a new control block (`tcbhead_t`) with what code of the C library reads there: its own address, twice, and
    /// the stack protector's value, which is the process's. On AArch64 both lie elsewhere.
    ///
    /// # Safety
    /// `control` is the block's, and `here` the calling thread's.
    unsafe fn fill(control: *mut u8, here: usize) {
        const SELF_WORDS: [usize; 2] = [0, 0x10];
        const GUARDS: [usize; 2] = [0x28, 0x30];
        if !cfg!(target_arch = "x86_64") {
            return;
        }
        // SAFETY: the caller's promise.
        unsafe {
            for at in SELF_WORDS {
                control.add(at).cast::<usize>().write(control as usize);
            }
            for at in GUARDS {
                control.add(at).cast::<usize>().write((here as *const u8).add(at).cast::<usize>().read());
            }
        }
    }

    /// Makes the stack and the thread-local block, once. False without memory.
    fn prepare() -> bool {
        if CONTROL.load(Ordering::Acquire) != 0 {
            return true;
        }
        let here = this_thread::address();
        // SAFETY: errno is this thread's.
        let errno = unsafe { libc::__errno_location() } as usize;
        let words = here.wrapping_add_signed(WORDS.load(Ordering::Relaxed));
        let Some((below, above)) = extent(here, errno.min(words), errno.max(words)) else { return false };
        // A page without access below the stack.
        let memory = os::reserve(KERNEL_PAGE + STACK + below + above);
        // SAFETY: the mapping was just made, and everything below lies in it.
        unsafe {
            if memory.is_null() || !os::commit(memory.add(KERNEL_PAGE), STACK + below + above) {
                return false;
            }
            let control = memory.add(KERNEL_PAGE + STACK + below);
            fill(control, here);
            let word = control.offset(words as isize - here as isize).cast::<usize>();
            word.write(IN_WORDS.load(Ordering::Relaxed));
            word.add(1).write(IN_WORDS.load(Ordering::Relaxed));
            STACK_TOP.store(memory.add(KERNEL_PAGE + STACK) as usize, Ordering::Relaxed);
            END.store(control as usize + above, Ordering::Relaxed);
            CONTROL.store(control as usize, Ordering::Release);
        }
        true
    }

    /// To be called when the process begins, before it could have a child. `words` are the two thread-local words of
    /// the calling thread, and the thread is to have `in_words` in both of its own.
    pub fn begin(words: usize, in_words: usize) {
        // Static thread-local storage lies at the same distance in every thread.
        WORDS.store(words.wrapping_sub(this_thread::address()) as isize, Ordering::Relaxed);
        IN_WORDS.store(in_words, Ordering::Relaxed);
        PROCESS.store(os::process_id(), Ordering::Relaxed);
    }

    /// Starts the thread. Returns its id, or the kernel's error as a negative number.
    ///
    /// # Safety
    /// Nobody uses the stack that ends at `stack`, nor the thread-local block `control`. `alive` stays.
    #[cfg(target_arch = "x86_64")]
    unsafe fn clone(stack: usize, control: usize, alive: *mut u32, body: extern "C" fn()) -> isize {
        let result: isize;
        // SAFETY: the caller's promise. The new thread starts behind `syscall` with the registers of this one and never
        // leaves the assembly.
        unsafe {
            core::arch::asm!(
                "syscall",
                "test rax, rax",
                "jnz 2f",
                "xor ebp, ebp",
                "call r9",
                "mov eax, {exit}",
                "xor edi, edi",
                "syscall",
                "ud2",
                "2:",
                exit = const libc::SYS_exit as i32,
                inlateout("rax") libc::SYS_clone as isize => result,
                in("rdi") FLAGS as isize,
                in("rsi") stack,
                in("rdx") alive,
                in("r10") alive,
                // Any register that the new thread does not clear before it calls, and the kernel keeps.
                in("r9") body,
                in("r8") control,
                out("rcx") _,
                out("r11") _,
            );
        }
        result
    }

    /// The same.
    ///
    /// # Safety
    /// As above.
    #[cfg(target_arch = "aarch64")]
    unsafe fn clone(stack: usize, control: usize, alive: *mut u32, body: extern "C" fn()) -> isize {
        let result: isize;
        // SAFETY: as above, behind `svc`. The third and fourth argument are the other way round here (clone(2)).
        unsafe {
            core::arch::asm!(
                "svc #0",
                "cbnz x0, 2f",
                "mov x29, xzr",
                "mov x30, xzr",
                "blr x9",
                "mov x8, #{exit}",
                "mov x0, xzr",
                "svc #0",
                "brk #1",
                "2:",
                exit = const libc::SYS_exit as i32,
                inlateout("x0") FLAGS as isize => result,
                in("x1") stack,
                in("x2") alive,
                in("x3") control,
                in("x4") alive,
                in("x8") libc::SYS_clone,
                // A register that the kernel keeps.
                in("x9") body,
            );
        }
        result
    }

    /// Starts a thread that runs `body` and ends when it returns.
    pub fn start(body: extern "C" fn()) -> Started {
        if ALIVE.load(Ordering::Acquire) != 0 || is_of_another_process() {
            return Started::NotNow;
        }
        if os::is_emulated() {
            return Started::Never;
        }
        if !prepare() {
            return Started::NoRoom;
        }
        let before = os::block_signals(!(1 << (libc::SIGBUS - 1)));
        // SAFETY: the stack and the block are nobody else's: the thread before is gone.
        let result =
            unsafe { clone(STACK_TOP.load(Ordering::Relaxed), CONTROL.load(Ordering::Relaxed), ALIVE.as_ptr(), body) };
        os::set_blocked_signals(before);
        if result <= 0 {
            let no_room = [libc::EAGAIN, libc::ENOMEM].iter().any(|&error| result == -(error as isize));
            return if no_room { Started::NoRoom } else { Started::Never };
        }
        LAST.store(result as u32, Ordering::Relaxed);
        Started::Yes
    }

    /// Whether there is one, also one that is just ending.
    pub fn is_alive() -> bool {
        ALIVE.load(Ordering::Acquire) != 0
    }

    /// Whether the caller is the thread.
    pub fn is_this() -> bool {
        this_thread::address() == CONTROL.load(Ordering::Acquire)
    }

    /// Where its stack and its thread-local block lie, if there was ever one.
    pub fn own_memory() -> (usize, usize) {
        match CONTROL.load(Ordering::Acquire) {
            0 => (0, 0),
            _ => (STACK_TOP.load(Ordering::Relaxed) - STACK, END.load(Ordering::Relaxed)),
        }
    }

    /// Waits for its end, or a moment if it is not there yet.
    pub fn wait_for_end() {
        os::sleep_on_shared(&ALIVE, ALIVE.load(Ordering::Acquire), 1);
    }

    /// Waits until the kernel does not count it among the process's threads any more, which it still does for a moment
    /// after its end.
    pub fn wait_until_gone() {
        let last = LAST.load(Ordering::Relaxed);
        // Its number may be another thread's by now.
        for _ in 0..TRIES {
            if last == 0 || !os::thread_exists(os::process_id(), last) {
                break;
            }
            os::sleep_us(50);
        }
        let _ = LAST.compare_exchange(last, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whether the caller is no thread of the process whose memory this is: a child of `vfork`.
    pub fn is_of_another_process() -> bool {
        PROCESS.load(Ordering::Relaxed) != os::process_id()
    }

    /// In a forked child: the thread stayed with the parent.
    pub fn forget() {
        ALIVE.store(0, Ordering::Release);
        LAST.store(0, Ordering::Relaxed);
        PROCESS.store(os::process_id(), Ordering::Relaxed);
    }
}

/// Elsewhere there is none.
#[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri))]
mod platform {
    use super::Started;

    pub fn begin(_: usize, _: usize) {}

    pub fn start(_: extern "C" fn()) -> Started {
        Started::Never
    }

    pub fn is_alive() -> bool {
        false
    }

    pub fn is_this() -> bool {
        false
    }

    pub fn own_memory() -> (usize, usize) {
        (0, 0)
    }

    pub fn wait_for_end() {}

    pub fn wait_until_gone() {}

    pub fn is_of_another_process() -> bool {
        false
    }

    pub fn forget() {}
}
