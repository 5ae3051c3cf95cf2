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

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod platform {
    use core::arch::asm;
    use core::sync::atomic::{AtomicIsize, AtomicU32, AtomicUsize, Ordering};

    use super::Started;
    use crate::kernel::os;
    use crate::kernel::this_thread;

    /// Bytes of the stack.
    const STACK: usize = 64 * 1024;
    /// Bytes above the thread pointer: larger than the C library's control block.
    const CONTROL_BLOCK: usize = 8192;
    const KERNEL_PAGE: usize = 4096;
    /// Looks for a thread that has ended, until it is taken for another one with its number.
    const TRIES: usize = 2000;
    /// Words of the control block (`tcbhead_t`): its own address, twice, and the stack protector's value.
    const SELF_WORDS: [usize; 2] = [0, 0x10];
    const GUARDS: [usize; 2] = [0x28, 0x30];

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

    /// Makes the stack and the thread-local block, once. False without memory.
    fn prepare() -> bool {
        if CONTROL.load(Ordering::Acquire) != 0 {
            return true;
        }
        let here = this_thread::address();
        // SAFETY: errno is this thread's.
        let errno = unsafe { libc::__errno_location() } as usize;
        let words = here.wrapping_add_signed(WORDS.load(Ordering::Relaxed));
        // Static thread-local storage lies below the thread pointer.
        let below = here.saturating_sub(errno.min(words));
        if below > 64 << 20 {
            return false;
        }
        let below = (below + 64).next_multiple_of(KERNEL_PAGE);
        // A page without access below the stack.
        let memory = os::reserve(KERNEL_PAGE + STACK + below + CONTROL_BLOCK);
        // SAFETY: the mapping was just made, and everything below lies in it.
        unsafe {
            if memory.is_null() || !os::commit(memory.add(KERNEL_PAGE), STACK + below + CONTROL_BLOCK) {
                return false;
            }
            let control = memory.add(KERNEL_PAGE + STACK + below);
            for at in SELF_WORDS {
                control.add(at).cast::<usize>().write(control as usize);
            }
            for at in GUARDS {
                control.add(at).cast::<usize>().write((here as *const u8).add(at).cast::<usize>().read());
            }
            let word = control.offset(words as isize - here as isize).cast::<usize>();
            word.write(IN_WORDS.load(Ordering::Relaxed));
            word.add(1).write(IN_WORDS.load(Ordering::Relaxed));
            STACK_TOP.store(memory.add(KERNEL_PAGE + STACK) as usize, Ordering::Relaxed);
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
        let result: isize;
        // SAFETY: the stack and the block are nobody else's: the thread before is gone. The new thread starts behind
        // `syscall` with the registers of this one and never leaves the assembly.
        unsafe {
            asm!(
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
                in("rsi") STACK_TOP.load(Ordering::Relaxed),
                in("rdx") ALIVE.as_ptr(),
                in("r10") ALIVE.as_ptr(),
                // Any register that the new thread does not clear before it calls, and the kernel keeps.
                in("r9") body,
                in("r8") CONTROL.load(Ordering::Relaxed),
                out("rcx") _,
                out("r11") _,
            );
        }
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
            control => (STACK_TOP.load(Ordering::Relaxed) - STACK, control + CONTROL_BLOCK),
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
#[cfg(any(not(target_arch = "x86_64"), miri))]
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
