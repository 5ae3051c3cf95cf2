//! What the pool takes of a stack that may be small: a thread's of `PTHREAD_STACK_MIN`, a coroutine's of 8 KiB,
//! a signal handler's.
//!
//! `csrc/small_stacks.c` fills the stack below each call with a pattern and looks how far it was changed: refills, new
//! slabs, large blocks, samples and frees are among 2,800 calls.
//! Around the stacks that it makes itself lie guards, which it looks at.

use std::path::PathBuf;

use poolscope_e2e::compiler::compile_with_headers;
use poolscope_e2e::{Pool, Program};

/// Bytes below the caller's frame that a call may change, where every allocation is sampled, or some are.
const SAMPLED_MAX: u64 = 2048;
/// The same of the hardened mode.
const HARDENED_MAX: u64 = 2304;
/// The same of a full recording: a `realloc` that moves is told as a whole, around an allocation that is not.
const RECORDED_MAX: u64 = 2816;

fn program(pool: &Pool) -> PathBuf {
    // Bound at the start: the loader's own way to a function takes 3 KiB the first time.
    let options = ["-O2", "-fno-builtin", "-Wl,-z,now"];
    compile_with_headers(pool.files(), "tests/csrc/small_stacks.c", "small_stacks", &options)
}

/// Runs it on each kind of stack.
fn assert_shallow(pool: &Pool, most: u64, run: impl Fn(PathBuf) -> Program) {
    for stack in ["thread", "coroutine", "handler"] {
        let output = run(program(pool)).arg(stack).run();
        assert_eq!(output.code(), 0, "on the stack of a {stack}: {}", output.report());
        println!("{stack}: {}", output.stdout.trim().replace('\n', ", "));
        let depths: Vec<(&str, u64)> = (output.stdout.lines())
            .map(|line| line.split_once(' ').expect("a kind and a depth"))
            .map(|(kind, depth)| (kind, depth.parse().expect("a number of bytes")))
            .collect();
        assert_eq!(depths.len(), 7, "{}", output.stdout);
        for (kind, depth) in depths {
            // A free may be done without a function of its own.
            assert!(kind == "free" || depth > 100, "{kind} on the stack of a {stack} was not seen: {depth}");
            assert!(depth <= most, "{kind} changed {depth} bytes of the stack of a {stack} instead of {most}");
        }
    }
}

#[test]
fn a_sample_takes_at_most_two_kibibytes_of_any_stack() {
    for period in ["1", "16K", "512K"] {
        let pool = Pool::new();
        assert_shallow(&pool, SAMPLED_MAX, |program| {
            pool.program(program).env("POOLSCOPE_PERIOD", period).env("POOLSCOPE_SAMPLE_RATE", "0")
        });
        pool.assert_ran("small_stacks");
    }
}

#[test]
fn the_hardened_mode_does_with_a_little_more() {
    let pool = Pool::new();
    assert_shallow(&pool, HARDENED_MAX, |program| pool.program(program).env("POOLSCOPE_HARDENED", "1"));
}

#[test]
fn a_recorded_call_does_with_a_little_more() {
    let pool = Pool::new();
    assert_shallow(&pool, RECORDED_MAX, |program| {
        let recorder = pool.poolscope().args(["record", "-o", "small.rec", "--"]).arg(program);
        recorder.env("POOLSCOPE_PERIOD", "16K")
    });
}
