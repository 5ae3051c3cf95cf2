//! The fast path's length: the instructions that a pair of `malloc` and `free` executes in the preloaded library,
//! counted one by one under callgrind. Nothing that the pool can do besides may add one to them.
//!
//! Counted are those that most pairs execute: a refill or a sample now and then goes through others. Valgrind changes
//! nothing of the fast path; the pool only goes without its own thread there.
#![cfg(target_arch = "x86_64")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use poolscope_e2e::compiler::compile_with_headers;
use poolscope_e2e::{Pool, Program, library};

/// `malloc` and `free` of a small block together. mimalloc v3 takes 36.
const MOST_FOR_A_PAIR: u64 = 31;
const PAIRS: u64 = 4096;

fn program(pool: &Pool) -> PathBuf {
    compile_with_headers(pool.files(), "tests/csrc/fast_path.c", "fast_path", &["-O2", "-fno-builtin"])
}

/// What a pair executes of `malloc` and `free`.
#[derive(Debug, PartialEq, Eq)]
struct FastPath {
    /// How often each instruction, by its address in the library.
    instructions: BTreeMap<u64, u64>,
    /// The addresses of those that are of `free`.
    free: BTreeSet<u64>,
    /// Calls of other functions.
    calls: u64,
}

impl FastPath {
    fn length(&self) -> u64 {
        self.instructions.values().sum()
    }
}

/// Runs the program under callgrind.
fn fast_path(arguments: &[&str], environment: &[(&str, &str)]) -> FastPath {
    let pool = Pool::new();
    let dump = pool.files().join("callgrind.out");
    let callgrind = pool
        .program("valgrind")
        .args(["-q", "--tool=callgrind", "--vgdb=no", "--dump-instr=yes", "--compress-strings=no", "--compress-pos=no"])
        .arg(format!("--callgrind-out-file={}", dump.display()))
        .arg(program(&pool))
        .arg(PAIRS.to_string())
        .args(arguments);
    environment.iter().fold(callgrind, |callgrind, (name, value)| callgrind.env(name, value)).run().success();
    path_in(&std::fs::read_to_string(dump).expect("callgrind wrote its counts"))
}

/// What most pairs executed, from callgrind's own format.
fn path_in(dump: &str) -> FastPath {
    let mut counts = BTreeMap::<u64, u64>::new();
    let mut free = BTreeSet::new();
    let mut in_free = false;
    let mut calls = 0;
    let (mut in_library, mut in_function, mut after_call) = (false, false, false);
    for line in dump.lines() {
        if let Some(object) = line.strip_prefix("ob=") {
            in_library = Path::new(object).file_name() == library().file_name();
        } else if let Some(function) = line.strip_prefix("fn=") {
            in_function = ["malloc", "__libc_malloc", "free"].contains(&function);
            in_free = function == "free";
        } else if !in_library || !in_function {
            continue;
        } else if let Some(call) = line.strip_prefix("calls=") {
            after_call = true;
            calls += call.split(' ').next().and_then(|count| count.parse::<u64>().ok()).expect("a number of calls");
        } else if let Some(fields) = line.strip_prefix("0x") {
            // The line after a call has what the callee took.
            if !std::mem::take(&mut after_call) {
                let mut fields = fields.split(' ');
                let address = u64::from_str_radix(fields.next().expect("an address"), 16).expect("an address");
                let count: u64 = fields.nth(1).and_then(|count| count.parse().ok()).expect("a count after the line");
                *counts.entry(address).or_default() += count;
                if in_free {
                    free.insert(address);
                }
            }
        }
    }
    let by_pair = |count: u64| (count + PAIRS / 2) / PAIRS;
    let by_pair_at = counts.into_iter().map(|(address, count)| (address, by_pair(count)));
    let instructions: BTreeMap<u64, u64> = by_pair_at.filter(|&(_, count)| count > 0).collect();
    free.retain(|address| instructions.contains_key(address));
    FastPath { instructions, free, calls: by_pair(calls) }
}

/// The functions that a pair goes through, with a star at each instruction that it executes.
fn disassembly(path: &FastPath) -> String {
    let output = Program::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(library()).run().silent_success();
    let address = |line: &str| u64::from_str_radix(line.trim_start().split_once(":\t")?.0, 16).ok();
    let is_executed = |line: &str| address(line).is_some_and(|address| path.instructions.contains_key(&address));
    let functions = output.stdout.split("\n\n").filter(|function| function.lines().any(is_executed));
    let marked = |line: &str| format!("{} {line}\n", if is_executed(line) { '*' } else { ' ' });
    functions.flat_map(str::lines).map(marked).collect()
}

#[track_caller]
fn assert_short(arguments: &[&str], environment: &[(&str, &str)]) -> FastPath {
    let path = fast_path(arguments, environment);
    let length = path.length();
    assert!(length > 0, "callgrind saw no pair");
    assert!(
        length <= MOST_FOR_A_PAIR && path.calls == 0,
        "malloc and free with {arguments:?} {environment:?} take {length} instructions and {} calls instead of \
         {MOST_FOR_A_PAIR} and none:\n{}",
        path.calls,
        disassembly(&path),
    );
    path
}

#[test]
fn a_pair_of_malloc_and_free_takes_31_instructions() {
    for size in ["64", "1", "1024"] {
        assert_short(&[size], &[]);
    }
}

/// Where sizes come at random, a branch between the two would be taken wrongly each other time.
#[test]
fn free_takes_the_same_instructions_for_small_and_for_medium_blocks() {
    let [small, medium] = ["64", "2048"].map(|size| fast_path(&[size], &[("POOLSCOPE_PERIOD", "1T")]));
    assert!(small.free.len() > 10, "{small:?}");
    assert_eq!(small.free, medium.free);
}

#[test]
fn sampling_has_no_instruction_on_the_fast_path() {
    let practically_never = assert_short(&["64"], &[("POOLSCOPE_PERIOD", "1T")]);
    let often = assert_short(&["64"], &[("POOLSCOPE_PERIOD", "8K")]);
    assert_eq!(practically_never, often);
}

#[test]
fn hooks_that_have_gone_leave_no_instruction_on_the_fast_path() {
    assert_eq!(assert_short(&["64", "hooked"], &[]), assert_short(&["64"], &[]));
}

#[test]
fn idle_memory_has_no_instruction_on_the_fast_path() {
    let never = assert_short(&["64"], &[("POOLSCOPE_SCAVENGE_MS", "-1"), ("POOLSCOPE_GC_MS", "-1")]);
    let soon = assert_short(&["64"], &[("POOLSCOPE_SCAVENGE_MS", "1"), ("POOLSCOPE_GC_MS", "1")]);
    assert_eq!(never, soon);
}

/// Without it, none of the above would show that the counts are those of the pairs.
#[test]
fn pairs_that_the_hardened_mode_checks_are_all_seen_to_leave_the_fast_path() {
    let checked = fast_path(&["64"], &[("POOLSCOPE_HARDENED", "1")]);
    assert_eq!(checked.calls, 2);
    assert!(checked.length() < MOST_FOR_A_PAIR, "{checked:?}");
}

/// Instructions of a pair with its share of refills: of the pairs from some number to five times as many, all functions
/// counted.
fn with_refills(from: u64, arguments: &[&str]) -> f64 {
    let total = |pairs: u64| {
        let pool = Pool::new();
        let dump = pool.files().join("callgrind.out");
        let callgrind = pool
            .program("valgrind")
            .args(["-q", "--tool=callgrind", "--vgdb=no"])
            .arg(format!("--callgrind-out-file={}", dump.display()))
            .arg(program(&pool))
            .arg(pairs.to_string())
            .args(arguments)
            .env("POOLSCOPE_PERIOD", "1T");
        callgrind.run().success();
        let counts = std::fs::read_to_string(dump).expect("callgrind wrote its counts");
        let total = counts.lines().find_map(|line| line.strip_prefix("summary: ")).expect("a summary");
        total.trim().parse::<u64>().expect("a number of instructions")
    };
    (total(5 * from) - total(from)) as f64 / (4 * from) as f64
}

#[test]
fn blocks_that_another_thread_freed_are_taken_up_where_the_own_ones_are_few() {
    for size in ["64", "1024"] {
        let (own, returned) = (with_refills(PAIRS, &[size]), with_refills(PAIRS, &[size, "returned"]));
        println!("a pair of {size} bytes: {own} instructions, {returned} after another thread freed most blocks");
        assert!(own > 31.0 && returned <= own + 5.0, "{returned} instructions instead of {own}");
    }
}

/// A worker that is handed a table frees each block of the other thread's once. Where it kept them for itself, it went on
/// with them for ever, by the slow way: 110 instructions instead of 88.
#[test]
fn a_thread_that_inherits_a_table_soon_has_blocks_of_its_own() {
    let [own, inherited] = ["own", "inherited"].map(|table| with_refills(100_000, &["1000", table]));
    println!("a block is replaced in {own} instructions, in a table that another thread made in {inherited}");
    assert!(own > 31.0 && inherited <= own + 3.0, "{inherited} instructions instead of {own}");
}
