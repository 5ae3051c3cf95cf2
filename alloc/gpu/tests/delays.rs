//! What calls are held up by, and how long: statistics against what the device itself says of its time.

mod support;

use poolscope_gpu::{Config, Device, GRANULE};
use support::{KIB, MIB, Program, US};

/// A request that finds memory is not held up; one that has to create it is, for as long as the driver takes.
#[test]
fn a_call_is_held_up_for_as_long_as_the_driver_takes() {
    let program = Program::new(256 * MIB);
    let stream = program.device.stream();
    let began = program.device.now();
    let block = program.alloc(16 * MIB, stream);
    let took = program.device.now() - began;
    assert!(took > 10 * US, "the device charges for new memory: {took} ns");
    let stats = program.pool.stats();
    assert_eq!((stats.held_up, stats.wait_longest_ns), (1, took));
    assert_eq!((stats.waited_for_driver_ns, stats.waited_for_work_ns, stats.waited_for_lock_ns), (took, 0, 0));
    assert_eq!(stats.wait_p50_ns, took, "it was the only call");

    program.free(block, stream);
    for _ in 0..5_000 {
        let block = program.alloc(16 * MIB, stream);
        program.free(block, stream);
    }
    let stats = program.pool.stats();
    assert_eq!((stats.held_up, stats.wait_longest_ns), (1, took), "no other call waited");
    let waits = (stats.wait_p50_ns, stats.wait_p99_ns, stats.wait_p999_ns);
    assert_eq!(waits, (0, 0, 0), "one of 10,002 calls is none of 1,000");
}

#[test]
fn one_call_in_fifty_is_seen_in_the_tail_and_not_in_the_middle() {
    let program = Program::with(4096 * MIB, Config { piece_divisor: 0, ..Config::default() });
    let stream = program.device.stream();
    let mut longest = 0;
    for _ in 0..100 {
        let began = program.device.now();
        program.alloc(2 * GRANULE, stream);
        longest = longest.max(program.device.now() - began);
        for _ in 0..50 {
            let small = program.alloc(4 * KIB, stream);
            program.free(small, stream);
        }
    }
    let stats = program.pool.stats();
    assert_eq!(stats.wait_longest_ns, longest);
    assert_eq!(stats.wait_p50_ns, 0);
    assert!(stats.held_up >= 100 && stats.wait_p999_ns <= longest, "{stats}");
    assert!(stats.wait_p999_ns > 10 * US, "{stats}");
    program.pool.reset_stats();
    let stats = program.pool.stats();
    assert_eq!((stats.held_up, stats.wait_longest_ns, stats.waited_for_driver_ns), (0, 0, 0));
}

/// What the program does beside its calls is in none of them.
#[test]
fn background_work_of_the_programs_own_holds_no_call_up() {
    let program = Program::new(256 * MIB);
    let stream = program.device.stream();
    let block = program.alloc(16 * MIB, stream);
    program.free(block, stream);
    program.pool.reset_stats();
    assert_eq!(program.pool.trim_cache(), 16 * MIB);
    assert!(program.pool.free(block, stream).is_err(), "a call of the slow path that waits for nothing");
    assert_eq!(program.pool.stats().held_up, 0);
}
