//! How a pool grows: by how much, in which pieces, and ahead of what is asked for.

mod support;

use poolscope_gpu::{Call, Config, Device, Stats, Stream};
use support::{MIB, MS, Program, US};

#[test]
fn a_pool_that_holds_more_grows_by_larger_pieces() {
    let calls_of_a_growth = |piece_divisor| {
        let program = Program::with(1024 * MIB, Config { piece_divisor, ..Config::default() });
        let stream = program.device.non_blocking_stream();
        let _held: Vec<_> = (0..4).map(|_| program.alloc(64 * MIB, stream)).collect();
        let before = program.pool.stats().driver_calls;
        let block = program.alloc(64 * MIB, stream);
        let calls = program.pool.stats().driver_calls - before;
        program.write(block, 64 * MIB, stream, US);
        program.assert_in_order();
        calls
    };
    // 32 granules: each created and mapped, and all opened at once; or two pieces, which are a tenth of what is held.
    assert_eq!([calls_of_a_growth(0), calls_of_a_growth(8)], [65, 5]);
}

/// Requests of 4 MiB, which a pool of some GiB creates ten at a time. Returns how many of them made a call.
fn requests_that_made_a_call(program: &Program, stream: Stream, blocks: &mut Vec<u64>) -> usize {
    let mut made = 0;
    for _ in 0..40 {
        let before = program.device.calls(Call::Create);
        blocks.push(program.alloc(4 * MIB, stream));
        made += usize::from(program.device.calls(Call::Create) > before);
    }
    made
}

#[test]
fn a_pool_that_holds_much_grows_by_a_stock_that_is_bounded_and_given_back() {
    let program = Program::new(8192 * MIB);
    let stream = program.device.stream();
    let mut blocks: Vec<_> = (0..40).map(|_| program.alloc(64 * MIB, stream)).collect();
    let made = requests_that_made_a_call(&program, stream, &mut blocks);
    assert!((4..20).contains(&made), "{made} of 40 requests made a call");
    let used = 40 * 68 * MIB;
    let stats = program.pool.stats();
    assert!(stats.peak_held <= used + used / 50, "{} MiB for {}", stats.peak_held / MIB, used / MIB);
    for _ in 0..1_000 {
        program.device.advance(20 * MS);
        program.pool.maintain();
    }
    assert_eq!(program.pool.stats().held, used, "what nobody took is given back");
    blocks.into_iter().for_each(|block| program.free(block, stream));
    program.assert_in_order();
}

/// A program that computes between its requests, as training does, waits for the first growth alone.
#[test]
fn what_a_program_grows_by_is_created_ahead_while_it_does_something_else() {
    let waited = |is_maintained: bool| {
        let program = Program::new(8192 * MIB);
        let stream = program.device.stream();
        let _held: Vec<_> = (0..40).map(|_| program.alloc(64 * MIB, stream)).collect();
        let mut waited = 0;
        for _ in 0..60 {
            program.device.advance(20 * MS);
            if is_maintained {
                program.pool.maintain();
            }
            let began = program.device.now();
            program.alloc(24 * MIB, stream);
            waited += program.device.now() - began;
            let Stats { held, current_usage, .. } = program.pool.stats();
            assert!(held <= current_usage + current_usage / 60 + 24 * MIB, "{held} bytes for {current_usage}");
        }
        let used = program.pool.stats().current_usage;
        for _ in 0..1_000 {
            program.device.advance(20 * MS);
            program.pool.maintain();
        }
        // A piece stays that the last block has the beginning of.
        let left = program.pool.stats().held - used;
        assert!(left < 48 * MIB, "{left} bytes that nobody took are not given back");
        program.assert_in_order();
        waited
    };
    let (alone, beside) = (waited(false), waited(true));
    assert!(beside * 10 <= alone, "{} us instead of {}", beside / US, alone / US);
}

#[test]
fn a_pool_grows_by_what_is_asked_for_where_there_is_no_more() {
    // Until all there may be is in use, by the setting or on the device.
    for (memory, memory_limit) in [(8192 * MIB, 2600 * MIB), (2600 * MIB, 0)] {
        let program = Program::with(memory, Config { memory_limit, ..Config::default() });
        let stream = program.device.stream();
        for _ in 0..40 {
            program.alloc(64 * MIB, stream);
        }
        for _ in 0..10 {
            program.alloc(4 * MIB, stream);
        }
        let stats = program.pool.stats();
        assert_eq!((stats.held, stats.current_usage), (2600 * MIB, 2600 * MIB));
        assert!(program.try_alloc(4 * MIB, stream).is_err());
        program.assert_in_order();
    }
}

#[test]
fn a_stream_that_was_not_used_for_long_does_not_count_as_one_of_several() {
    let program = Program::with(1024 * MIB, Config { piece_divisor: 8, idle_release_ms: 1 << 20, ..Config::default() });
    let (stream, other) = (program.device.non_blocking_stream(), program.device.non_blocking_stream());
    program.churn(2 * MIB, other, US);
    let _held: Vec<_> = (0..4).map(|_| program.alloc(64 * MIB, stream)).collect();
    let calls_of_a_growth = || {
        let before = program.pool.stats().driver_calls;
        program.alloc(64 * MIB, stream);
        program.pool.stats().driver_calls - before
    };
    let of_two = calls_of_a_growth();
    for _ in 0..600 {
        program.churn(256, stream, US);
        program.device.advance(20 * MS);
        program.pool.maintain();
    }
    let of_one = calls_of_a_growth();
    // Eight pieces of 8 MiB, or a few of up to 24: each created and mapped, and all opened at once.
    assert!(of_two == 17 && of_one < 10, "{of_two} {of_one}");
    program.assert_in_order();
}

/// To cut it, the stitch would be unmapped, for more than all the calls that it takes to create the memory.
#[test]
fn a_piece_that_is_part_of_a_stitch_is_not_cut() {
    let program = Program::with(1024 * MIB, Config { piece_divisor: 1, ..Config::default() });
    let stream = program.device.stream();
    let blocks = [64, 2, 64, 2, 64, 2].map(|size| program.alloc(size * MIB, stream));
    [blocks[2], blocks[4]].into_iter().for_each(|block| program.free(block, stream));
    let stitch = program.churn(128 * MIB, stream, US);
    program.free(blocks[0], stream);
    program.device.advance(MS);
    program.pool.maintain();
    let calls = || (program.device.calls(Call::Unmap), program.device.calls(Call::Create));
    let before = calls();
    // The first two of those that are free, and a part of the third one.
    let other = program.alloc(140 * MIB, stream);
    assert_eq!(calls(), before, "nothing was taken apart, and nothing created");
    program.write(other, 140 * MIB, stream, US);
    program.free(other, stream);
    assert_eq!(program.churn(128 * MIB, stream, US), stitch, "the stitch serves again");
    program.assert_in_order();
}

#[test]
fn a_piece_is_cut_where_a_part_of_it_is_wanted() {
    let program = Program::with(1024 * MIB, Config { piece_divisor: 1, ..Config::default() });
    let stream = program.device.non_blocking_stream();
    let [first, between, last] = [64 * MIB; 3].map(|size| program.alloc(size, stream));
    for block in [first, last] {
        program.write(block, 64 * MIB, stream, US);
        program.free(block, stream);
    }
    program.device.advance(MS);
    program.pool.maintain();
    // All of the first block's memory and three granules of a piece of the last one's; then all the rest.
    let sizes = [70 * MIB, 58 * MIB];
    let blocks = sizes.map(|size| program.alloc(size, stream));
    assert_eq!(program.pool.stats().peak_held, 192 * MIB);
    for (block, size) in blocks.into_iter().zip(sizes) {
        program.write(block, size, stream, US);
        program.free(block, stream);
    }
    program.free(between, stream);
    program.pool.release_all();
    assert_eq!(program.pool.stats().held, 0);
    program.assert_in_order();
}
