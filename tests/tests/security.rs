//! Programs with one fault of memory each: how many of them are caught, hardened and as the pool comes.
//! `scripts/security.sh` counts the same beside other allocators.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use poolscope_e2e::compiler::compile_with_headers;
use poolscope_e2e::{Pool, Program};

/// Sizes with which each kind of fault is tried.
const SIZES: usize = 3;

fn compiled(pool: &Pool) -> PathBuf {
    let options = ["-std=c++17", "-O1", "-w", "-fno-builtin", "-fsized-deallocation"];
    compile_with_headers(pool.files(), "tests/csrc/security.cpp", "security", &options)
}

/// The programs that are not caught: for each kind, with which sizes.
fn missed(pool: &Pool, program: &Path, hardened: &str) -> BTreeMap<String, Vec<String>> {
    let list = Program::new(program).run().success().stdout;
    let mut missed = BTreeMap::<String, Vec<String>>::new();
    for line in list.lines() {
        let (kind, size) = line.split_once(' ').expect("a kind and a size");
        if !is_caught(pool, program, kind, size, hardened) {
            missed.entry(kind.to_owned()).or_default().push(size.to_owned());
        }
    }
    missed
}

/// Whether a program ends by a signal, or finds that what it looks at is as it should be. Without samples: which blocks
/// are samples is chance, and a large one's memory is soon another's.
fn is_caught(pool: &Pool, program: &Path, kind: &str, size: &str, hardened: &str) -> bool {
    let program = pool.program(program).args([kind, size]).env("POOLSCOPE_PERIOD", "1T");
    let output = program.env("POOLSCOPE_HARDENED", hardened).run();
    output.status.signal().is_some() || (output.status.success() && output.stdout == "held\n")
}

#[test]
fn the_hardened_mode_catches_every_program() {
    let pool = Pool::new();
    let program = compiled(&pool);
    assert_eq!(Program::new(&program).run().success().stdout.lines().count(), 116);
    assert_eq!(missed(&pool, &program, "1"), BTreeMap::new());
    for fault in [".new-free", ".malloc-delete"] {
        assert!(is_caught(&pool, &program, fault, "4096", "1"), "{fault}");
    }
    let sound = pool.program(&program).args([".nothing", "8"]).env("POOLSCOPE_HARDENED", "1");
    assert_eq!(sound.run().silent_success().stdout, "held\n");
}

#[test]
fn the_pool_as_it_comes_catches_what_shows_in_its_lists() {
    let pool = Pool::new();
    let program = compiled(&pool);
    let missed = missed(&pool, &program, "0");
    for kind in [
        "double-free",
        "double-free-around-another",
        "double-free-long-after",
        "double-free-and-on",
        "double-free-of-used-again",
        "free-number",
        "free-stack",
        "free-alloca",
        "free-1-inside",
        "free-8-inside",
        "free-4K-behind",
        "free-1G-behind",
        "run-data",
        "huge-request",
        "smaller-again",
        "write-freed",
        "write-freed-and-on",
    ] {
        assert!(!missed.contains_key(kind), "{kind} with {:?}", missed[kind]);
    }
    let all = missed.values().map(Vec::len).sum::<usize>();
    assert!(all <= 116 - 60, "{all} of 116 are missed: {missed:?}");
    // Nothing looks at blocks of no bytes, nor at what lies right behind a block.
    for kind in ["read-empty", "overflow-1"] {
        assert_eq!(missed.get(kind).map(Vec::len), Some(SIZES), "{kind}");
    }
    let sound = pool.program(&program).args([".nothing", "8"]).run();
    assert_eq!(sound.silent_success().stdout, "held\n");
}
