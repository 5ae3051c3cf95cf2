//! Small blocks: classes, caches, streams, threads.

mod support;

use std::sync::atomic::Ordering;

use poolscope_gpu::{Config, PoolError, Simulated, Stream, refresh_sampling_period};
use support::{Book, KIB, MIB, MS, Meeting, Program, US};

#[test]
fn a_hot_pair_makes_no_call_and_takes_one_block() {
    let program = Program::new(64 * MIB);
    let stream = program.device.stream();
    for class in 0..13 {
        let size = 256 << class;
        let first = program.churn(size, stream, 100 * MS);
        let calls = program.device.all_calls();
        for _ in 0..1000 {
            assert_eq!(program.churn(size, stream, 0), first);
        }
        assert_eq!(program.device.all_calls(), calls, "{size}");
    }
    assert!(program.pool.stats().thread_hits >= 13_000);
    program.assert_in_order();
}

#[test]
fn every_block_is_aligned_and_apart_from_the_others() {
    let program = Program::new(64 * MIB);
    let stream = program.device.stream();
    let sizes = [1, 255, 256, 257, 3000, 40_000, 65_536, 65_537, 300_000, MIB - 1, MIB, MIB + 1];
    for round in 0..3 {
        let blocks: Vec<_> = sizes.iter().map(|size| program.alloc(*size, stream)).collect();
        assert!(blocks.iter().all(|block| block % 256 == 0), "{round}");
        blocks.iter().for_each(|block| program.free(*block, stream));
    }
    program.assert_in_order();
}

#[test]
fn a_block_freed_on_another_stream_is_not_reused_before_both_are_past_it() {
    let program = Program::new(64 * MIB);
    let (own, other) = (program.device.non_blocking_stream(), program.device.non_blocking_stream());
    let block = program.alloc(64 * KIB, own);
    program.order(own, other);
    program.write(block, 64 * KIB, other, 100 * MS);
    program.free(block, other);
    let next = program.alloc(64 * KIB, own);
    assert_ne!(next, block);
    program.write(next, 64 * KIB, own, US);
    program.free(next, own);
    program.pool.maintain();
    program.device.advance(200 * MS);
    program.pool.maintain();
    let blocks: Vec<_> = (0..3).map(|_| program.alloc(64 * KIB, own)).collect();
    blocks.iter().for_each(|block| program.write(*block, 64 * KIB, own, US));
    program.assert_in_order();
}

#[test]
fn a_recorded_stream_holds_a_small_block_back() {
    let program = Program::new(64 * MIB);
    let (own, other) = (program.device.non_blocking_stream(), program.device.non_blocking_stream());
    let block = program.alloc(64 * KIB, own);
    program.order(own, other);
    program.write(block, 64 * KIB, other, 100 * MS);
    program.pool.record_stream(block, other).unwrap();
    program.free(block, own);
    for _ in 0..100 {
        let next = program.alloc(64 * KIB, own);
        program.write(next, 64 * KIB, own, US);
    }
    program.assert_in_order();
}

#[test]
fn small_memory_of_a_destroyed_stream_serves_others() {
    let program = Program::new(4 * MIB);
    for _ in 0..20 {
        let stream = program.device.non_blocking_stream();
        let blocks: Vec<_> = (0..32).map(|_| program.alloc(64 * KIB, stream)).collect();
        for block in blocks {
            program.write(block, 64 * KIB, stream, MS);
            program.free(block, stream);
        }
        program.pool.stream_ends(stream).unwrap();
        program.device.destroy_stream(stream);
    }
    assert!(program.pool.stats().peak_held <= 4 * MIB);
    program.assert_in_order();
}

#[test]
fn cached_memory_serves_a_large_request_before_new_memory_does() {
    let program = Program::new(32 * MIB);
    let stream = program.device.stream();
    let blocks: Vec<_> = (0..32).map(|_| program.alloc(MIB, stream)).collect();
    blocks.iter().for_each(|block| program.write(*block, MIB, stream, MS));
    blocks.iter().for_each(|block| program.free(*block, stream));
    program.churn(32 * MIB, stream, MS);
    program.churn(256, stream, MS);
    program.assert_in_order();
}

#[test]
fn a_wrong_address_is_an_error() {
    let program = Program::new(32 * MIB);
    let stream = program.device.stream();
    let block = program.alloc(4 * KIB, stream);
    for address in [block + 256, block + 1] {
        assert_eq!(program.pool.free(address, stream), Err(PoolError::NotABlock(address)));
    }
    program.free(block, stream);
    assert_eq!(program.pool.stats().current_usage, 0);
}

#[test]
fn a_block_that_is_freed_again_is_refused_and_has_one_owner() {
    let book = Book::new(1 << 40);
    let program = Program::recorded(Simulated::new(256 * MIB), Config::default(), book.clone());
    let (stream, other) = (program.device.stream(), program.device.stream());
    let refused = |address, stream| {
        assert_eq!(program.pool.free(address, stream), Err(PoolError::NotABlock(address)));
        assert_eq!(program.pool.record_stream(address, other), Err(PoolError::NotABlock(address)));
        assert_eq!(program.pool.size_of(address), None);
    };
    for size in (0..14).map(|class| 256 << class) {
        // In the thread's own list, behind others, and where another stream's blocks and recorded ones go.
        for (period, freed_on) in [(1 << 40, stream), (1 << 40, other), (1, stream)] {
            book.period.store(period, Ordering::Relaxed);
            refresh_sampling_period();
            let blocks: Vec<_> = (0..3).map(|_| program.alloc(size, stream)).collect();
            assert_eq!(program.pool.size_of(blocks[0]), Some(size));
            blocks.iter().for_each(|block| program.free(*block, freed_on));
            blocks.iter().for_each(|block| refused(*block, stream));
            std::thread::scope(|scope| scope.spawn(|| refused(blocks[1], stream)).join().unwrap());
            // The checker sees to it that no block has two owners.
            let again: Vec<_> = (0..6).map(|_| program.alloc(size, stream)).collect();
            again.iter().for_each(|block| program.free(*block, stream));
        }
    }
    program.pool.release_all();
    let stats = program.pool.stats();
    assert_eq!((stats.current_usage, stats.allocation_count - stats.free_count, stats.held), (0, 0, 0), "{stats}");
    assert_eq!(book.sizes(), [0u64; 0]);
    program.assert_in_order();
}

#[test]
fn an_address_inside_of_a_block_is_refused_and_the_block_stays() {
    let program = Program::new(64 * MIB);
    let stream = program.device.stream();
    for size in (0..13).map(|class| 256 << class) {
        let block = program.alloc(size, stream);
        for inside in [block + 1, block + size / 2, block + (size / 2).next_multiple_of(64 * KIB), block + size - 256] {
            if (block + 1..block + size).contains(&inside) {
                assert_eq!(program.pool.free(inside, stream), Err(PoolError::NotABlock(inside)), "{size}");
                assert_eq!(program.pool.size_of(inside), None, "{size}");
            }
        }
        assert_eq!(program.pool.size_of(block), Some(size));
        program.free(block, stream);
    }
}

#[test]
fn blocks_travel_between_threads_and_all_come_back() {
    let program = Program::with(64 * MIB, Config { global_cache_max_blocks: 100, ..Config::default() });
    let stream = program.device.stream();
    std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::sync_channel::<u64>(64);
        let program = &program;
        let first = scope.spawn(move || {
            for number in 0..5_000u64 {
                sender.send(program.alloc(256 << (number % 5), stream)).unwrap();
            }
        });
        let second = scope.spawn(move || receiver.into_iter().for_each(|block| program.free(block, stream)));
        // Joined one by one: only then have their caches gone home.
        first.join().unwrap();
        second.join().unwrap();
    });
    let stats = program.pool.stats();
    assert_eq!((stats.current_usage, stats.allocation_count, stats.free_count), (0, 5_000, 5_000));
    assert!(stats.global_hits > 0, "{stats}");
    assert!(stats.peak_held <= 8 * MIB, "{stats}");
    program.pool.release_all();
    assert_eq!(program.pool.stats().held, 0);
    program.assert_in_order();
}

#[test]
fn threads_on_their_own_streams_never_share_a_block() {
    let program = Program::new(1024 * MIB);
    let meeting = Meeting::of(4);
    std::thread::scope(|scope| {
        let threads = (1..5u64).map(|seed| {
            let (program, meeting) = (&program, &meeting);
            scope.spawn(move || {
                let stream = program.device.non_blocking_stream();
                let mut random = seed;
                let mut live = Vec::new();
                meeting.wait();
                for _ in 0..2_000 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let size = (random >> 33) % (3 << (8 + (random >> 60) % 13)) + 1;
                    let block = program.alloc(size, stream);
                    program.write(block, size, stream, US);
                    live.push(block);
                    if live.len() > 32 {
                        program.free(live.swap_remove((random >> 40) as usize % 32), stream);
                    }
                    if random.is_multiple_of(97) {
                        program.pool.maintain();
                    }
                }
                live.into_iter().for_each(|block| program.free(block, stream));
                program.pool.stream_ends(stream).unwrap();
                program.device.destroy_stream(stream);
            })
        });
        // All start, and each is joined: only then has its cache gone home.
        threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(program.pool.stats().current_usage, 0);
    program.pool.release_all();
    assert_eq!(program.pool.stats().held, 0);
    program.assert_in_order();
}

#[test]
fn settings_take_effect_while_the_pool_runs() {
    let program = Program::new(64 * MIB);
    let stream = program.device.stream();
    program.churn(300, stream, US);
    program.pool.set_config(Config { alignment: 4096, ..Config::default() }).unwrap();
    let block = program.alloc(300, stream);
    assert_eq!((block % 4096, program.pool.size_of(block)), (0, Some(4096)));
    for config in [Config { batch_alloc_count: 0, ..Config::default() }, Config { alignment: 0, ..Config::default() }] {
        assert!(matches!(program.pool.set_config(config), Err(PoolError::Config(_))));
    }
}

#[test]
fn preallocated_blocks_cost_no_call_later() {
    let program = Program::new(64 * MIB);
    let stream = program.device.stream();
    program.pool.preallocate(4 * KIB, 500, stream).unwrap();
    let calls = program.device.all_calls();
    let blocks: Vec<_> = (0..500).map(|_| program.alloc(4 * KIB, stream)).collect();
    assert_eq!(program.device.all_calls(), calls);
    assert_eq!(program.pool.stats().current_usage, 500 * 4 * KIB);
    blocks.iter().for_each(|block| program.free(*block, stream));
}

#[test]
fn counters_begin_anew_when_they_are_reset() {
    let program = Program::new(64 * MIB);
    let block = program.alloc(1000, Stream::NULL);
    program.churn(5 * MIB, Stream::NULL, US);
    let stats = program.pool.stats();
    assert_eq!((stats.allocation_count, stats.free_count), (2, 1));
    assert_eq!((stats.current_usage, stats.total_allocated), (1024, 5 * MIB + 1024));
    program.pool.reset_stats();
    let stats = program.pool.stats();
    assert_eq!((stats.allocation_count, stats.total_allocated, stats.current_usage), (0, 0, 1024));
    program.free(block, Stream::NULL);
    let stats = program.pool.stats();
    assert_eq!((stats.free_count, stats.total_freed, stats.current_usage), (1, 1024, 0));
}

#[test]
fn peaks_begin_anew_with_what_there_is_and_nothing_else_does() {
    let program = Program::new(64 * MIB);
    let kept = program.alloc(MIB, Stream::NULL);
    program.churn(20 * MIB, Stream::NULL, US);
    program.pool.synchronize().expect("is over");
    program.pool.release_all();
    let before = program.pool.stats();
    assert!(before.peak_usage >= 21 * MIB && before.peak_held > before.held, "{before}");
    program.pool.reset_peaks();
    let after = program.pool.stats();
    assert_eq!((after.peak_usage, after.peak_held), (before.current_usage, before.held));
    assert_eq!((after.total_allocated, after.free_count), (before.total_allocated, before.free_count));
    program.free(kept, Stream::NULL);
}

#[test]
fn trimming_takes_what_sleeping_threads_have_cached() {
    let program = Program::new(64 * MIB);
    let stream = program.device.stream();
    let (cached, trimmed) = (Meeting::of(2), Meeting::of(2));
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let blocks: Vec<_> = (0..40).map(|number| program.alloc(256 << (number % 13), stream)).collect();
            blocks.iter().for_each(|block| program.free(*block, stream));
            let held = program.alloc(300, stream);
            cached.wait();
            trimmed.wait();
            let next = program.alloc(300, stream);
            [held, next].iter().for_each(|block| program.free(*block, stream));
        });
        cached.wait();
        program.device.synchronize_all();
        assert!(program.pool.trim_cache() > 0);
        assert_eq!(program.pool.stats().held, 2 * MIB, "one chunk has the block that is still held");
        trimmed.wait();
        sleeper.join().unwrap();
    });
    program.pool.release_all();
    assert_eq!(program.pool.stats().held, 0);
    program.assert_in_order();
}

#[test]
fn blocks_that_come_and_go_in_numbers_stay_with_their_thread() {
    let program = Program::new(256 * MIB);
    let stream = program.device.stream();
    let burst = || {
        let blocks: Vec<_> = (0..20).map(|_| program.alloc(64 * KIB, stream)).collect();
        blocks.iter().for_each(|block| program.free(*block, stream));
    };
    (0..10).for_each(|_| burst());
    let before = program.pool.stats();
    (0..10).for_each(|_| burst());
    let after = program.pool.stats();
    assert_eq!(after.thread_hits - before.thread_hits, 200);
}

#[test]
fn caches_keep_what_a_program_on_many_streams_swings_by() {
    let program = Program::new(4096 * MIB);
    let mut random = 1u64;
    let mut live: Vec<_> = (0..8).map(|_| (program.device.stream(), [0; 64])).collect();
    let mut replace_all = |rounds: usize| {
        for at in 0..rounds * 64 {
            for (stream, blocks) in &mut live {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let block = &mut blocks[at % 64];
                if *block != 0 {
                    program.pool.free(*block, *stream).unwrap();
                }
                *block = program.pool.allocate(256 + random % (MIB - 255), *stream).unwrap();
            }
        }
    };
    replace_all(1500);
    let before = program.pool.stats();
    replace_all(1500);
    let stats = program.pool.stats();
    let (misses, pairs) = (stats.cache_misses - before.cache_misses, stats.allocation_count - before.allocation_count);
    assert!(misses < pairs / 5_000, "{misses} slabs for {pairs} blocks");
}

#[test]
fn without_counts_the_usage_is_what_is_out_of_the_slabs() {
    let program = Program::with(64 * MIB, Config { enable_stats: false, ..Config::default() });
    let stream = program.device.stream();
    let large = program.alloc(4 * MIB, stream);
    let blocks: Vec<_> = (0..10).map(|_| program.alloc(4 * KIB, stream)).collect();
    let stats = program.pool.stats();
    assert_eq!((stats.allocation_count, stats.total_allocated), (0, 0));
    assert_eq!(stats.current_usage, 4 * MIB + 16 * 4 * KIB, "a batch is 16 blocks");
    blocks.iter().for_each(|block| program.free(*block, stream));
    program.free(large, stream);
    program.pool.release_all();
    assert_eq!(program.pool.stats().current_usage, 0);
    program.assert_in_order();
}

#[test]
fn a_chunk_of_large_memory_goes_back_when_its_last_block_waited_for_another_stream() {
    let program = Program::new(4 * MIB);
    let (stream, other) = (program.device.non_blocking_stream(), program.device.non_blocking_stream());
    // The device has no memory left: the chunk is cut from what large blocks have.
    program.churn(3 * MIB, stream, US);
    let block = program.alloc(256, stream);
    program.order(stream, other);
    program.write(block, 256, other, MS);
    program.free(block, other);
    // Rounds in which nobody names the streams: events behind them are not to be had any more.
    for _ in 0..3 {
        program.pool.maintain();
    }
    program.pool.release_all();
    assert_eq!(program.pool.stats().held, 0);
    program.assert_in_order();
}
