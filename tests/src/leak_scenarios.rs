//! What the scenarios of `tests/csrc/leaks.c` leak, and real programs that leak something or nothing.

/// Blocks of so many bytes are leaked directly, and so many indirectly.
pub struct Expected {
    /// Its name.
    pub scenario: &'static str,
    /// Bytes of each block that is leaked directly.
    pub direct: &'static [u64],
    /// And of each that is leaked with what pointed to it.
    pub indirect: &'static [u64],
}

const fn held(scenario: &'static str) -> Expected {
    Expected { scenario, direct: &[], indirect: &[] }
}

const fn lost(scenario: &'static str, direct: &'static [u64], indirect: &'static [u64]) -> Expected {
    Expected { scenario, direct, indirect }
}

/// Each scenario of `leaks.c`.
pub const SCENARIOS: &[Expected] = &[
    // Pointers in each kind of root.
    held("use_globals_initialized"),
    held("use_globals_uninitialized"),
    held("use_stacks"),
    held("use_stacks_threaded"),
    held("use_registers"),
    held("use_registers_extra"),
    held("red_zone"),
    held("use_tls_static"),
    held("use_tls_static_threaded"),
    held("use_tls_dynamic"),
    held("use_tls_pthread_specific_static"),
    held("use_tls_pthread_specific_dynamic"),
    held("mapped"),
    held("swapcontext_running"),
    held("swapcontext_suspended"),
    held("result_not_joined"),
    // Pointers in blocks, and into them.
    held("user_pointer"),
    held("interior"),
    held("large_interior"),
    held("in_large"),
    // No pointers.
    lost("lost", &[1337], &[]),
    lost("pointer_to_self", &[1337], &[]),
    lost("cycle", &[1337], &[1337]),
    lost("list", &[1337], &[1337, 1337, 1337, 1337]),
    lost("unaligned_is_none", &[1337], &[]),
    lost("stale_stack", &[1337], &[]),
    lost("stale_thread", &[1337], &[]),
    lost("tls_of_ended_thread", &[1337], &[]),
    lost("freed_holder", &[1337], &[]),
    lost("large_lost", &[3 << 20], &[]),
    // Threads that are hard to stop, and memory that is hard to read.
    held("exit_in_thread"),
    held("first_thread_ended"),
    held("many_threads"),
    held("closed_pages"),
    held("busy_threads"),
    held("signals_blocked"),
    // What threads get, return and keep until their ends.
    held("argument_of_thread"),
    held("before_thread_started"),
    held("cleanup_in_tsd_destructor"),
    held("exit_in_tsd_destructor"),
    held("many_tls_keys_pthread"),
    held("many_tls_keys_thread"),
    held("detached_thread_dlsym"),
    held("use_tls_dynamic_threaded"),
    // The record of the last of 11 threads that ended still has what it returned.
    lost("create_thread_leak", &[234, 234, 234, 234, 234, 234, 234, 234, 234, 234], &[]),
    // Stacks that are not the threads' own.
    held("alternate_stack"),
    held("interrupted_stack"),
    held("nested_coroutines"),
    lost("exit_atexit_stale_stack", &[1337], &[]),
    // Modules, and the loader's lock.
    lost("dlclosed_library", &[1337], &[]),
    held("libdl_deadlock"),
    held("exit_in_walk"),
    held("signal_during_stop_the_world"),
    // Sizes.
    lost("malloc_zero", &[0], &[]),
    held("realloc_zero"),
    lost("realloc_too_big", &[1337], &[]),
    held("realloc_failure_keeps_original"),
    held("realloc_moves"),
    held("fork_threaded"),
];

/// Real programs that lose nothing exit with their own code.
pub const CLEAN: &[&str] = &[
    "ls -la /usr/bin",
    "bash -c 'for i in 1 2 3; do echo $i | cat; done; exit 7'",
    "sh -c 'exit 3'",
    "git init -q repository",
    "git -C repository status",
    "python3 -c 'import json, re, collections; print(json.dumps({1: 2}))'",
    "sqlite3 :memory: 'create table t(a); insert into t values(1), (2); select sum(a) from t'",
    "awk 'BEGIN { for (i = 0; i < 1000; i++) a[i] = i; print a[5]; exit 4 }'",
    "grep -r root /etc/passwd",
    "grep nobody-at-all /etc/passwd",
    "sed s/a/b/ /etc/passwd",
    "find /etc -maxdepth 1 -name '*.conf'",
    "make --version",
    "gzip -c /etc/passwd",
    "xz -c /etc/passwd",
    "diff /etc/passwd /etc/group",
    "cat /etc/passwd",
    "cp /etc/passwd copy",
    "env",
    "redis-cli --version",
    "tar --version",
    "head -n 2 /etc/passwd",
    "wc /etc/passwd",
    "du -s /etc/ssl",
    "curl --version",
    "curl -s file:///nowhere",
];

/// Some of Debian's programs do lose blocks, by the thousand or one, when `main` returns or before. LeakSanitizer and
/// valgrind report them, too. Built-in rules hold them.
pub const LOSING: &[&str] = &[
    "date",
    "sort /etc/passwd",
    "perl -e 1",
    "tar cf /dev/null /etc/passwd",
    "tr a b",
    "stat /etc/passwd",
    "mktemp -u",
    "df /",
    "split -n 1/2 /etc/passwd",
    "locale -a",
];

/// The compiler and what it starts, each of which loses blocks, and its exit code. Tools see different ones of them.
pub const TOOLCHAIN: &[(&str, i32)] =
    &[("gcc --version", 0), ("gcc -O1 -g one.c -o one", 0), ("gcc -c missing.c", 1), ("gcc -c wrong.c", 1)];

/// Programs of which LeakSanitizer and valgrind say different things.
pub const OTHERS: &[&str] = &["gcc --version"];
