//! Every system call that the pool makes, what for, and when: one table, for those who write a filter of system calls.
//! docs/guide/confinement.md has it as a list. A test looks for calls in the sources that it does not name
//! (`alloc/cpu/tests/guide.rs`).

/// When calls are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Always: the C library's allocator makes them, too.
    Always,
    /// Unless `POOLSCOPE_PLAIN=1` says that it is to be those alone.
    UnlessPlain,
    /// Only by a program that the pool has something to say of.
    InTrouble,
}

/// Calls that serve one purpose.
#[derive(Debug)]
pub struct Calls {
    /// Their names.
    pub names: &'static [&'static str],
    /// When they are made.
    pub when: When,
    /// What they serve.
    pub purpose: &'static str,
}

use When::{Always, InTrouble, UnlessPlain};

/// All of them. What the C library does by itself when it loads, starts threads or forks is not the pool's.
pub static KERNEL_CALLS: &[Calls] = &[
    Calls { names: &["mmap", "munmap", "mprotect", "madvise"], when: Always, purpose: "memory" },
    Calls { names: &["mremap"], when: Always, purpose: "large blocks that move" },
    Calls { names: &["futex"], when: Always, purpose: "locks, and the scavenger's sleep" },
    Calls {
        names: &["write", "getpid", "gettid", "tgkill"],
        when: InTrouble,
        purpose: "a message, and the end of a program whose heap is corrupt",
    },
    Calls { names: &["sched_yield"], when: UnlessPlain, purpose: "locks that are held for long" },
    Calls { names: &["prlimit64"], when: UnlessPlain, purpose: "limits of address space, of data and of file size" },
    Calls { names: &["mincore"], when: UnlessPlain, purpose: "which pages have memory" },
    Calls { names: &["getrandom"], when: UnlessPlain, purpose: "where samples fall" },
    Calls {
        names: &["getpid", "gettid", "getppid", "geteuid"],
        when: UnlessPlain,
        purpose: "who the process and its threads are",
    },
    Calls {
        names: &["openat", "close", "read", "pread64", "readlink", "readlinkat"],
        when: UnlessPlain,
        purpose: "`/proc`: what the segment says of the process, where threads sleep, and which pages are a file's",
    },
    Calls {
        names: &["mkdir", "newfstatat", "getdents64", "fallocate", "pwrite64", "unlink", "unlinkat"],
        when: UnlessPlain,
        purpose: "the segment's file and the trace's",
    },
    Calls {
        names: &["rt_sigaction", "rt_sigprocmask", "rt_sigtimedwait", "tgkill"],
        when: UnlessPlain,
        purpose: "files that are full or cut off; stacks that may not be readable, or are too small; the scavenger",
    },
    Calls {
        names: &["clone", "exit", "nanosleep", "clock_gettime"],
        when: UnlessPlain,
        purpose: "the scavenger's thread",
    },
    Calls {
        names: &["process_vm_readv", "membarrier"],
        when: UnlessPlain,
        purpose: "caches of threads that sleep; hooks",
    },
    Calls {
        names: &["flock", "nanosleep", "statfs", "getppid", "tgkill"],
        when: UnlessPlain,
        purpose: "a recorder, while there is one",
    },
    Calls {
        names: &[
            "openat",
            "close",
            "read",
            "pread64",
            "lseek",
            "readlinkat",
            "getdents64",
            "fstat",
            "newfstatat",
            "fcntl",
            "prlimit64",
            "mincore",
            "sysinfo",
            "rt_sigaction",
            "rt_sigprocmask",
            "sigaltstack",
            "tgkill",
        ],
        when: UnlessPlain,
        purpose: "a search for leaks: `POOLSCOPE_LEAK_CHECK`, `poolscope leaks PID`",
    },
    Calls {
        names: &["clone", "wait4", "kill"],
        when: UnlessPlain,
        purpose: "a search in a copy: `poolscope leaks --snapshot PID`",
    },
    Calls {
        names: &["memfd_create", "pwrite64", "openat", "write", "close", "access", "clone", "execve", "wait4"],
        when: UnlessPlain,
        purpose: "a check that the program asks for, of which the command writes the report",
    },
    Calls {
        names: &["openat", "pwrite64", "close", "rt_sigaction"],
        when: UnlessPlain,
        purpose: "copies of the segment: `POOLSCOPE_DUMP_AT_EXIT`, `POOLSCOPE_DUMP_SIGNAL`, \
                  `POOLSCOPE_DUMP_AT_REFUSAL`, and a program that asks for one",
    },
    Calls {
        names: &["openat", "newfstatat", "fcntl", "prlimit64", "close"],
        when: UnlessPlain,
        purpose: "files that stay open where the process calls `setuid`, `chroot` and their like",
    },
    Calls { names: &["mbind", "get_mempolicy", "getcpu"], when: UnlessPlain, purpose: "`POOLSCOPE_NUMA`" },
    Calls { names: &["sigaltstack", "rt_sigaction"], when: UnlessPlain, purpose: "`POOLSCOPE_HARDENED`" },
];
