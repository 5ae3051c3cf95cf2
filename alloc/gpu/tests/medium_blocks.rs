//! Medium blocks of a small pool: each takes what was asked for, and threads keep those that they have freed.

mod support;

use std::sync::Barrier;

use poolscope_gpu::{Call, Config, PoolError, Stream};
use support::{KIB, MIB, MS, Program};

/// A pool of any size whose medium blocks take what was asked for.
fn fitted() -> Config {
    Config { fit_medium_below: 1 << 40, ..Config::default() }
}

/// Takes the blocks of the slabs of medium blocks, one of each class: what comes then is placed as large ones are.
fn take_slabs(program: &Program, stream: Stream) {
    (0..4).for_each(|class| {
        program.alloc((128 * KIB) << class, stream);
    });
}

#[test]
fn medium_blocks_take_what_was_asked_for() {
    let program = Program::with(256 * MIB, fitted());
    let stream = program.device.stream();
    // Their class has 512 KiB, of which 40% would be nobody's.
    let blocks: Vec<_> = (0..200).map(|_| program.alloc(300 * KIB, stream)).collect();
    let stats = program.pool.stats();
    assert!(stats.held <= 200 * 300 * KIB + 6 * MIB, "{stats}");
    assert_eq!(program.pool.size_of(blocks[199]), Some(300 * KIB));
    blocks.iter().for_each(|block| program.free(*block, stream));
    assert_eq!(program.pool.stats().current_usage, 0);
    program.assert_in_order();
}

#[test]
fn threads_that_wait_for_each_other_have_medium_blocks_of_their_own() {
    let program = Program::with(4096 * MIB, fitted());
    let streams: Vec<_> = (0..4).map(|_| program.device.stream()).collect();
    let before = program.pool.stats();
    // Until they have met often enough; a machine with one processor takes longer.
    let is_met = || program.pool.stats().thread_hits - before.thread_hits > 2_000;
    std::thread::scope(|scope| {
        for stream in &streams {
            scope.spawn(|| {
                for round in 0..200_000 {
                    if round % 64 == 0 && is_met() {
                        break;
                    }
                    let blocks: Vec<_> = (0..16).map(|_| program.pool.allocate(300 * KIB, *stream).unwrap()).collect();
                    blocks.iter().for_each(|block| program.pool.free(*block, *stream).unwrap());
                }
            });
        }
    });
    assert!(is_met(), "{}", program.pool.stats());
    program.assert_in_order();
}

#[test]
fn a_round_of_medium_blocks_is_served_by_what_the_thread_has_freed() {
    let program = Program::with(256 * MIB, fitted());
    let stream = program.device.stream();
    take_slabs(&program, stream);
    let sizes: Vec<u64> = (0..20).map(|at| (100 + 37 * at) * KIB).collect();
    let round = || {
        let blocks: Vec<_> = sizes.iter().map(|size| program.alloc(*size, stream)).collect();
        blocks.iter().zip(&sizes).for_each(|(block, size)| program.write(*block, *size, stream, 0));
        blocks.iter().for_each(|block| program.free(*block, stream));
    };
    round();
    round();
    let before = program.pool.stats();
    (0..10).for_each(|_| round());
    let stats = program.pool.stats();
    assert_eq!(stats.thread_hits - before.thread_hits, 200, "{stats}");
    assert_eq!((stats.driver_calls, stats.held), (before.driver_calls, before.held));
    let bytes: u64 = sizes.iter().sum();
    let counted = (stats.total_allocated - before.total_allocated, stats.total_freed - before.total_freed);
    assert_eq!((counted, stats.current_usage), ((10 * bytes, 10 * bytes), before.current_usage));
    assert_eq!(stats.allocation_count, stats.free_count + 4);
    program.assert_in_order();
}

#[test]
fn what_is_in_use_counts_no_medium_block_that_a_thread_keeps() {
    let program = Program::with(256 * MIB, fitted());
    let stream = program.device.stream();
    take_slabs(&program, stream);
    let before = program.pool.stats().current_usage;
    let usage = || program.pool.stats().current_usage - before;
    let blocks = [300 * KIB, 700 * KIB].map(|size| program.alloc(size, stream));
    assert_eq!(usage(), 1000 * KIB);
    program.free(blocks[1], stream);
    assert_eq!(usage(), 300 * KIB);
    // By what was freed, and not by what it was before.
    let again = program.alloc(700 * KIB, stream);
    assert_eq!((again, usage()), (blocks[1], 1000 * KIB));
    [blocks[0], again].iter().for_each(|block| program.free(*block, stream));
    program.pool.reset_stats();
    let stats = program.pool.stats();
    assert_eq!((usage(), stats.allocation_count, stats.free_count), (0, 0, 0), "{stats}");
}

#[test]
fn what_a_thread_keeps_serves_a_large_request_before_the_pool_grows() {
    let program = Program::with(256 * MIB, fitted());
    let stream = program.device.stream();
    let blocks: Vec<_> = (0..64).map(|_| program.alloc(512 * KIB, stream)).collect();
    blocks.iter().for_each(|block| program.free(*block, stream));
    let held = program.pool.stats().held;
    let large = program.alloc(30 * MIB, stream);
    assert_eq!(program.pool.stats().held, held, "{}", program.pool.stats());
    program.free(large, stream);
    program.assert_in_order();
}

#[test]
fn what_another_thread_keeps_serves_before_the_pool_grows() {
    let program = Program::with(256 * MIB, fitted());
    let stream = program.device.stream();
    let (freed, end) = (Barrier::new(2), Barrier::new(2));
    let mut before = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Those that are freed last are those that it keeps.
            let blocks: Vec<_> = (0..64).map(|_| program.alloc(512 * KIB, stream)).collect();
            blocks.iter().for_each(|block| program.free(*block, stream));
            freed.wait();
            end.wait();
        });
        freed.wait();
        before = program.pool.stats().held;
        let large = program.alloc(31 * MIB, stream);
        program.free(large, stream);
        end.wait();
    });
    assert_eq!(program.pool.stats().held, before, "{}", program.pool.stats());
    program.assert_in_order();
}

#[test]
fn what_a_quiet_thread_keeps_goes_home() {
    let program = Program::with(256 * MIB, fitted());
    let stream = program.device.stream();
    let blocks: Vec<_> = (0..32).map(|_| program.alloc(512 * KIB, stream)).collect();
    blocks.iter().for_each(|block| program.free(*block, stream));
    for _ in 0..4 {
        program.device.advance(20_000 * MS);
        program.pool.maintain();
    }
    // A chunk stays with what is cached of its slab.
    assert_eq!(program.pool.stats().held, 2 * MIB, "{}", program.pool.stats());
}

#[test]
fn a_medium_block_that_a_thread_keeps_is_nobodys() {
    let program = Program::with(256 * MIB, fitted());
    let (stream, other) = (program.device.stream(), program.device.stream());
    take_slabs(&program, stream);
    let block = program.alloc(300 * KIB, stream);
    program.free(block, stream);
    assert_eq!(program.pool.size_of(block), None);
    assert_eq!(program.pool.free(block, stream), Err(PoolError::NotABlock(block)));
    assert_eq!(program.pool.free(block, other), Err(PoolError::NotABlock(block)));
    assert_eq!(program.pool.record_stream(block, other), Err(PoolError::NotABlock(block)));
    // Refusals have taken it from nobody.
    let again = program.alloc(300 * KIB, stream);
    assert_eq!((again, program.pool.size_of(again)), (block, Some(300 * KIB)));
    assert_eq!(program.pool.free(again + 256, stream), Err(PoolError::NotABlock(again + 256)));
    program.free(again, stream);
}

#[test]
fn a_medium_block_that_another_stream_used_is_kept_by_nobody() {
    let program = Program::with(256 * MIB, fitted());
    let (stream, other) = (program.device.stream(), program.device.stream());
    take_slabs(&program, stream);
    take_slabs(&program, other);
    let block = program.alloc(300 * KIB, stream);
    program.write(block, 300 * KIB, stream, 10 * MS);
    program.order(stream, other);
    program.write(block, 300 * KIB, other, 10 * MS);
    program.pool.record_stream(block, other).unwrap();
    program.free(block, stream);
    // Its memory waits for both.
    for _ in 0..8 {
        program.churn(300 * KIB, stream, MS);
        program.churn(300 * KIB, other, MS);
    }
    // And one that is freed on a stream that it was not allocated on.
    let block = program.alloc(300 * KIB, stream);
    program.write(block, 300 * KIB, stream, 10 * MS);
    program.order(stream, other);
    program.free(block, other);
    (0..8).for_each(|_| {
        program.churn(300 * KIB, stream, MS);
    });
    program.assert_in_order();
}

#[test]
fn threads_that_wait_for_each_other_get_chunks_in_one_piece() {
    let threads = 8;
    let program = Program::with(4096 * MIB, fitted());
    let streams: Vec<_> = (0..threads).map(|_| program.device.stream()).collect();
    let start = Barrier::new(threads);
    // A machine with one processor lets none of them wait for a while.
    let pieces = || program.device.calls(Call::Create);
    for _ in 0..100 {
        std::thread::scope(|scope| {
            for stream in &streams {
                let (start, pool) = (&start, &program.pool);
                scope.spawn(move || {
                    start.wait();
                    let blocks: Vec<_> = (0..2000).map(|_| pool.allocate(16 * KIB, *stream).unwrap()).collect();
                    blocks.iter().for_each(|block| pool.free(*block, *stream).unwrap());
                });
            }
        });
        let created = program.pool.stats().granules_created;
        if pieces() < created {
            return;
        }
        program.pool.release_all();
    }
    panic!("{} pieces, {}", pieces(), program.pool.stats());
}
