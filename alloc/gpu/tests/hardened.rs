//! The hardened mode: frees that race, blocks that wait in quarantine, streams that are gone.

mod support;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use poolscope_gpu::{Config, ConfigError, PoolError, Stream};
use support::{KIB, MIB, MS, Meeting, Program, US};

fn hardened() -> Config {
    Config { hardened: true, ..Config::default() }
}

#[test]
fn of_two_threads_that_free_one_block_at_once_one_is_refused() {
    const ROUNDS: usize = 4_000;
    let program = Program::with(256 * MIB, hardened());
    let stream = program.device.stream();
    for size in [256, 64 * KIB, MIB + 1] {
        let meeting = Meeting::of(2);
        let current = AtomicU64::new(0);
        let freed = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for first in [true, false] {
                let (program, meeting, current, freed) = (&program, &meeting, &current, &freed);
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        if first {
                            let block = program.pool.allocate(size, stream).unwrap();
                            current.store(block, Ordering::SeqCst);
                        }
                        meeting.wait();
                        let block = current.load(Ordering::SeqCst);
                        match program.pool.free(block, stream) {
                            Ok(()) => _ = freed.fetch_add(1, Ordering::SeqCst),
                            Err(PoolError::DoubleFree { address, .. } | PoolError::NotABlock(address)) => {
                                assert_eq!(address, block);
                            }
                            Err(error) => panic!("{error}"),
                        }
                        meeting.wait();
                    }
                });
            }
        });
        assert_eq!(freed.into_inner(), ROUNDS, "{size}");
        assert_eq!(program.pool.stats().current_usage, 0);
    }
    let stats = program.pool.stats();
    assert_eq!(stats.allocation_count, stats.free_count);
}

#[test]
fn a_freed_block_waits_before_it_is_given_out_again_and_a_second_free_of_it_is_told() {
    let program = Program::with(64 * MIB, hardened());
    let (stream, other) = (program.device.stream(), program.device.stream());
    for size in (0..14).map(|class| 256 << class) {
        for freed_on in [stream, other] {
            let block = program.alloc(size, stream);
            program.write(block, size, stream, 10 * US);
            program.order(stream, freed_on);
            let before = program.pool.stats();
            program.free(block, freed_on);
            let after = program.pool.stats();
            assert_eq!(before.current_usage - after.current_usage, size);
            assert_eq!(after.held, before.held);
            let refused = PoolError::DoubleFree { address: block, stream: freed_on };
            assert_eq!(program.pool.free(block, stream), Err(refused.clone()), "{size}");
            assert_eq!(program.pool.record_stream(block, other), Err(refused.clone()), "{size}");
            assert_eq!(program.pool.size_of(block), None);
            let words = refused.to_string();
            assert!(words.starts_with(&format!("double free of {block:#x}: it was freed on stream ")), "{words}");
            // Where no quarantine is, the next request gets it.
            let next = program.alloc(size, stream);
            assert_ne!(next, block, "{size}");
            program.free(next, stream);
        }
    }
    assert_eq!(program.pool.stats().current_usage, 0);
    program.pool.release_all();
    assert_eq!(program.pool.stats().held, 0);
    program.assert_in_order();
}

#[test]
fn a_block_of_the_quarantine_keeps_the_order_of_the_streams_that_used_it() {
    let program = Program::with(8 * MIB, hardened());
    let (own, other) = (program.device.non_blocking_stream(), program.device.non_blocking_stream());
    for size in [4 * KIB, MIB, 2 * MIB] {
        let block = program.alloc(size, own);
        program.order(own, other);
        program.write(block, size, other, 100 * MS);
        program.free(block, other);
        // Pushes it out of the quarantine, while the other stream still writes.
        for _ in 0..200 {
            let next = program.alloc(size, own);
            program.write(next, size, own, US);
            program.free(next, own);
        }
    }
    program.assert_in_order();
}

#[test]
fn where_there_is_no_memory_the_quarantine_is_emptied_first() {
    let program = Program::with(4 * MIB, hardened());
    let stream = program.device.stream();
    for (first, second) in [(2 * MIB, 4 * MIB), (4 * KIB, 4 * MIB), (2 * MIB, 2 * MIB), (2 * MIB, 1)] {
        let kept = (second < 4 * MIB).then(|| program.alloc(2 * MIB, stream));
        let block = program.alloc(first, stream);
        program.free(block, stream);
        let served = program.alloc(second, stream);
        program.free(served, stream);
        kept.into_iter().for_each(|block| program.free(block, stream));
    }
    let block = program.alloc(4 * KIB, stream);
    program.free(block, stream);
    assert!(program.pool.trim_cache() > 0);
    program.pool.release_all();
    assert_eq!(program.pool.stats().held, 0, "blocks in quarantine go back, too");
    program.assert_in_order();
}

#[test]
fn a_free_on_a_stream_that_is_gone_or_never_was_is_refused_and_the_block_stays() {
    let program = Program::with(64 * MIB, hardened());
    let (stream, gone, new) = (program.device.stream(), program.device.stream(), program.device.stream());
    for size in [4 * KIB, 4 * MIB] {
        program.churn(size, gone, US);
    }
    program.device.destroy_stream(gone);
    for size in [4 * KIB, 4 * MIB] {
        let block = program.alloc(size, stream);
        for none in [gone, Stream(0x1234_5678)] {
            let refused = Err(PoolError::NoStream { address: block, stream: none });
            assert_eq!(program.pool.free(block, none), refused);
            assert_eq!(program.pool.size_of(block), Some(size));
        }
        // One that is there and was not named before is none of these.
        program.order(stream, new);
        program.free(block, new);
    }
    assert_eq!(program.pool.stats().current_usage, 0);
    program.assert_in_order();
}

#[test]
fn it_is_decided_when_the_pool_is_made() {
    let program = Program::new(64 * MIB);
    let late = program.pool.set_config(hardened());
    let Err(PoolError::Config(error @ ConfigError::TooLate { .. })) = late else { panic!("{late:?}") };
    assert!(error.to_string().contains("POOLSCOPE_GPU_HARDENED"), "{error}");
    assert_eq!(program.pool.config(), Config::default());
}

#[test]
fn pinned_memory_is_hardened_as_well() {
    let program = Program::with(64 * MIB, hardened());
    let (pinned, stream) = (program.pool.pinned_memory().unwrap(), program.device.stream());
    let block = pinned.allocate(4 * KIB, stream).unwrap();
    pinned.free(block, stream).unwrap();
    assert_eq!(pinned.free(block, stream), Err(PoolError::DoubleFree { address: block, stream }));
    assert_eq!(program.pool.free(block, stream), Err(PoolError::DoubleFree { address: block, stream }));
}
