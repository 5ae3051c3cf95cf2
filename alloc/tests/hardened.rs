//! The hardened mode in a Rust program: what `dealloc` says of a block is compared with what was asked for.

use std::alloc::{GlobalAlloc, Layout};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

use poolscope_alloc::Poolscope;

#[global_allocator]
static POOL: Poolscope = Poolscope;

/// Runs one of the ignored tests below in a process of its own, in the hardened mode.
fn run(test: &str) -> Output {
    let this = std::env::current_exe().expect("a test knows its own path");
    let mut command = Command::new(this);
    command.args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env("POOLSCOPE_HARDENED", "1").env("POOLSCOPE_PERIOD", "64K").env("POOLSCOPE_DIR", "/dev/null/nowhere");
    command.output().expect("a test can be started")
}

#[track_caller]
fn assert_aborts(test: &str, expected: &str) {
    let output = run(test);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{said}");
    let line = said.lines().find(|line| line.starts_with("poolscope: ")).unwrap_or_default();
    assert!(line.contains(expected), "{said}");
    assert!(said.contains("  freed here, thread ") && said.contains("  allocated, thread "), "{said}");
}

#[test]
fn a_layout_of_another_size_is_named() {
    assert_aborts("frees_with_another_size", "with a size of 48 bytes, which does not fit: it is a block of 40 bytes");
}

#[test]
fn a_layout_of_another_alignment_is_named() {
    assert_aborts("frees_with_another_alignment", "it is a block of 256 bytes aligned to 64");
}

#[test]
fn what_rust_programs_do_is_no_fault() {
    let output = run("works_with_threads_and_collections");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("poolscope: "), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

fn allocate_and_free(asked: Layout, said: Layout) {
    // SAFETY: none; the fault is what the test is about, and ends the process.
    unsafe { POOL.dealloc(POOL.alloc(asked), said) };
}

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).expect("a layout")
}

#[test]
#[ignore = "is run by another test"]
fn frees_with_another_size() {
    allocate_and_free(layout(40, 8), layout(48, 8));
}

#[test]
#[ignore = "is run by another test"]
fn frees_with_another_alignment() {
    allocate_and_free(layout(256, 64), layout(256, 32));
}

#[test]
#[ignore = "is run by another test"]
fn works_with_threads_and_collections() {
    let work = |seed: usize| {
        let mut words: std::collections::BTreeMap<String, Vec<u64>> = std::collections::BTreeMap::new();
        for n in 0..3000 {
            words.entry(format!("{}", n * seed % 97)).or_default().push(n as u64);
            if n % 500 == 0 {
                words.values_mut().for_each(Vec::shrink_to_fit);
            }
        }
        words.values().map(Vec::len).sum::<usize>()
    };
    let threads: Vec<_> = (1..5).map(|seed| std::thread::spawn(move || work(seed))).collect();
    for thread in threads {
        assert_eq!(thread.join().expect("the thread ends"), 3000);
    }
    allocate_and_free(layout(40, 1), layout(40, 1));
    allocate_and_free(layout(256, 64), layout(256, 64));
}
