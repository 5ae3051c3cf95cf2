//! What a sample costs: the instructions that a sampled pair of `malloc` and `free` executes, counted under callgrind.
//!
//! Counted is the difference between a run and one of twice as many pairs. So what is done once does not count: threads
//! and modules that are met for the first time, and rules that are learned. What is left is what every sample does, and
//! unwind tables that are read anew would show as tens of thousands of instructions.
#![cfg(target_arch = "x86_64")]

use std::path::{Path, PathBuf};

use poolscope_e2e::compiler::{compile_into, compile_with_headers};
use poolscope_e2e::{Pool, Segment};

/// Pairs of a run where each is sampled, and where one in seventeen is.
const PAIRS: [u64; 2] = [4096, 65_536];
/// A sampled pair with a stack of six frames, with all that the pool does for it: 1,730 were measured.
const MOST_FOR_A_SAMPLE: f64 = 1_850.0;
/// The same where samples come by chance: the lists that it cuts have to be filled again. 2,530 were measured.
const MOST_BY_CHANCE: f64 = 2_650.0;
/// One frame more: 37 were measured.
const MOST_FOR_A_FRAME: f64 = 40.0;
/// A frame of a library that may have been unloaded: the loader is asked. 390 were measured.
const MOST_FOR_A_LIBRARY: f64 = 450.0;

fn program(pool: &Pool) -> PathBuf {
    let options = ["-O2", "-fno-builtin", "-fno-inline", "-fomit-frame-pointer"];
    compile_with_headers(pool.files(), "tests/csrc/sample_cost.c", "sample_cost", &options)
}

/// Instructions of a run, and the samples that it took.
fn run(pool: &Pool, program: &Path, arguments: &[&str], period: &str) -> (u64, u64) {
    // Segments of earlier runs are still there.
    let samples = || pool.segments().iter().map(Segment::samples).sum::<u64>();
    let before = samples();
    let dump = pool.files().join("callgrind.out");
    let callgrind = pool
        .program("valgrind")
        .args(["-q", "--tool=callgrind", "--vgdb=no"])
        .arg(format!("--callgrind-out-file={}", dump.display()))
        .arg(program)
        .args(arguments)
        .env("POOLSCOPE_PERIOD", period)
        .env("POOLSCOPE_SAMPLE_RATE", "0");
    // Valgrind says that it does not know the call by which a capture asks whether a page can be read.
    callgrind.run().success();
    let counts = std::fs::read_to_string(dump).expect("callgrind wrote its counts");
    let total = counts.lines().find_map(|line| line.strip_prefix("summary: ")).expect("a summary");
    (total.trim().parse().expect("a number of instructions"), samples() - before)
}

/// What so many pairs more take.
struct More {
    pairs: f64,
    instructions: f64,
    samples: f64,
}

/// What twice as many pairs take more than so many, behind a stack of `depth` frames more than `main` and those that a
/// program has.
fn more(pool: &Pool, program: &Path, pairs: u64, depth: u32, library: Option<&Path>, period: &str) -> More {
    let run = |pairs: u64| {
        let (pairs, depth) = (pairs.to_string(), depth.to_string());
        let library = library.map(|library| library.to_str().expect("a path in UTF-8"));
        let arguments: Vec<&str> = [pairs.as_str(), depth.as_str()].into_iter().chain(library).collect();
        run(pool, program, &arguments, period)
    };
    let (once, twice) = (run(pairs), run(2 * pairs));
    More { pairs: pairs as f64, instructions: (twice.0 - once.0) as f64, samples: twice.1 as f64 - once.1 as f64 }
}

/// Instructions of a pair of which each is sampled.
fn sampled_pair(pool: &Pool, program: &Path, depth: u32, library: Option<&Path>) -> f64 {
    let more = more(pool, program, PAIRS[0], depth, library, "1");
    assert_eq!(more.samples, more.pairs, "each is sampled");
    more.instructions / more.pairs
}

#[test]
fn a_sample_of_a_known_stack_costs_its_frames_and_little_else() {
    let pool = Pool::new();
    let program = program(&pool);
    let [shallow, deep] = [0, 50].map(|depth| sampled_pair(&pool, &program, depth, None));
    println!("a sampled pair: {shallow} instructions, behind 50 frames more {deep}");
    assert!(shallow > 100.0, "a pair that is not sampled takes 31: {shallow}");
    assert!(shallow <= MOST_FOR_A_SAMPLE, "{shallow} instead of {MOST_FOR_A_SAMPLE}");
    let frame = (deep - shallow) / 50.0;
    assert!(frame > 5.0 && frame <= MOST_FOR_A_FRAME, "a frame: {frame} instead of {MOST_FOR_A_FRAME}");
}

#[test]
fn a_library_that_may_be_unloaded_is_confirmed_and_its_tables_are_not_read_again() {
    let pool = Pool::new();
    let program = program(&pool);
    let library = pool.files().join("through.so");
    compile_into(&library, Path::new("tests/csrc/through.c"), &["-O2", "-fPIC", "-shared"], &[]);
    let without = sampled_pair(&pool, &program, 0, None);
    let with = sampled_pair(&pool, &program, 0, Some(&library));
    let library = with - without;
    assert!(library > 20.0 && library <= MOST_FOR_A_LIBRARY, "{library} instead of {MOST_FOR_A_LIBRARY}");
}

#[test]
fn a_sample_by_chance_costs_a_cut_list_more() {
    let pool = Pool::new();
    let program = program(&pool);
    let [never, often] = ["1T", "16K"].map(|period| more(&pool, &program, PAIRS[1], 0, None, period));
    assert_eq!(never.samples, 0.0);
    let without = never.instructions / never.pairs;
    // How many samples come is chance, a twentieth more or less; what they cost is divided by how many came.
    let sample = (often.instructions - never.instructions) / often.samples;
    println!("a pair without samples: {without}; {} samples, each {sample}", often.samples);
    assert!(without < 60.0 && often.samples > 1000.0, "{without} and {}", often.samples);
    assert!(sample <= MOST_BY_CHANCE, "{sample} instead of {MOST_BY_CHANCE}");
}
