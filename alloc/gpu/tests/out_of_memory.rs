//! What happens when there is no memory: the steps of the ladder, and the message at its end.

mod support;

use std::sync::Arc;

use poolscope_gpu::{Config, OutOfMemory, Pool, PoolError, Simulated, Step, Stream};
use support::{KIB, MIB, MS, Meeting, Program, US};

fn refused(program: &Program, size: u64) -> Box<OutOfMemory> {
    match program.try_alloc(size, program.device.stream()) {
        Err(PoolError::OutOfMemory(picture)) => picture,
        other => panic!("{other:?}"),
    }
}

#[test]
fn caches_of_sleeping_threads_serve_who_finds_no_memory() {
    let program = Program::new(32 * MIB);
    let stream = program.device.stream();
    let (cached, served) = (Meeting::of(2), Meeting::of(2));
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let blocks: Vec<_> = (0..384).map(|_| program.alloc(64 * KIB, stream)).collect();
            blocks.iter().for_each(|block| program.free(*block, stream));
            (0..4).for_each(|_| {
                let blocks: Vec<_> = (0..384).map(|_| program.alloc(64 * KIB, stream)).collect();
                blocks.iter().for_each(|block| program.free(*block, stream));
            });
            cached.wait();
            served.wait();
        });
        cached.wait();
        program.churn(30 * MIB, stream, US);
        served.wait();
        sleeper.join().unwrap();
    });
    let stats = program.pool.stats();
    assert_eq!((stats.ladder_climbed, stats.ladder_all_caches_served, stats.ladder_refused), (1, 1, 0), "{stats}");
    program.assert_in_order();
}

#[test]
fn the_host_waits_where_streams_can_not() {
    // A graph's memory must be free for good: while one is captured nothing can be waited for, but before that it can.
    let program = Program::plain(64 * MIB);
    let (one, other) = (program.device.non_blocking_stream(), program.device.non_blocking_stream());
    let blocks: Vec<_> = [one, other].map(|stream| (program.alloc(30 * MIB, stream), stream)).to_vec();
    for (block, stream) in blocks {
        program.write(block, 30 * MIB, stream, 100 * MS);
        program.free(block, stream);
    }
    // Neither segment is large enough: both have to go back, and for that the work on them must be over.
    program.churn(50 * MIB, one, US);
    let stats = program.pool.stats();
    assert_eq!((stats.ladder_release_served, stats.ladder_pending_frees_tried), (1, 1), "{stats}");
    program.assert_in_order();
}

#[test]
fn the_message_says_what_is_held_and_what_would_have_helped() {
    let program = Program::new(64 * MIB);
    let stream = program.device.stream();
    let blocks: Vec<_> = (0..10).map(|_| program.alloc(5 * MIB, stream)).collect();
    let small: Vec<_> = (0..20).map(|_| program.alloc(64 * KIB, stream)).collect();
    let picture = refused(&program, 20 * MIB);
    assert_eq!((picture.request, picture.by_size[0].bytes, picture.by_size[0].blocks), (20 * MIB, 50 * MIB, 10));
    assert_eq!(picture.by_stream[0].of, stream.0);
    let text = picture.to_string();
    for part in [
        "no 20 MiB (20971520 bytes)",
        "held by size: 50 MiB in 10 blocks of up to 8 MiB",
        &format!("of stream {:#x}", stream.0),
        "tried: own caches, caches of all threads, waiting for frees, defragmenting\n",
        "to free ",
        "pinned_fallback would have served it",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let missing = 20 * MIB - picture.whole_granules.max(picture.largest_hole);
    assert!(text.contains(&format!("to free {} MiB more would do", missing / MIB)), "{text}");
    assert_eq!(program.pool.stats().ladder_refused, 1);
    // What the message says is so.
    let enough = missing.div_ceil(5 * MIB) as usize + 1;
    blocks[..enough].iter().for_each(|block| program.free(*block, stream));
    program.churn(20 * MIB, stream, US);
    blocks[enough..].iter().chain(&small).for_each(|block| program.free(*block, stream));
    program.assert_in_order();
}

#[test]
fn what_can_never_be_had_is_refused_without_a_step_and_the_message_says_so() {
    let program = Program::new(64 * MIB);
    let picture = refused(&program, 80 * MIB);
    assert!(picture.tried.is_empty());
    let text = picture.to_string();
    assert!(text.contains("tried: nothing, since no step could make so much room\n"), "{text}");
}

#[test]
fn pinned_host_memory_serves_when_the_settings_say_so() {
    let config = Config { pinned_fallback: true, ..Config::default() };
    let program = Program::with(32 * MIB, config);
    let stream = program.device.stream();
    let block = program.alloc(30 * MIB, stream);
    let (large, small) = (program.alloc(10 * MIB, stream), program.alloc(MIB, stream));
    assert!(program.device.host_used() >= 10 * MIB);
    for (block, size) in [(large, 10 * MIB), (small, MIB)] {
        program.write(block, size, stream, US);
        assert_eq!(program.pool.size_of(block), Some(size));
        program.pool.record_stream(block, stream).unwrap();
        program.free(block, stream);
    }
    let stats = program.pool.stats();
    assert!(stats.ladder_pinned_host_served >= 1 && stats.ladder_refused == 0, "{stats}");
    program.free(block, stream);
    program.pool.pinned_memory().unwrap().release_all();
    assert_eq!(program.device.host_used(), 0);
    program.device.set_host_memory(0);
    let block = program.alloc(30 * MIB, stream);
    assert_eq!(refused(&program, 10 * MIB).tried.last(), Some(&Step::PinnedHost));
    program.free(block, stream);
    program.assert_in_order();
}

#[test]
fn the_fallback_comes_and_goes_while_the_pool_runs() {
    let program = Program::new(32 * MIB);
    let stream = program.device.stream();
    let block = program.alloc(30 * MIB, stream);
    refused(&program, 10 * MIB);
    program.pool.set_config(Config { pinned_fallback: true, ..program.pool.config() }).unwrap();
    let served = program.alloc(10 * MIB, stream);
    assert!(program.device.host_used() >= 10 * MIB);
    program.pool.set_config(Config { pinned_fallback: false, ..program.pool.config() }).unwrap();
    assert!(!refused(&program, 10 * MIB).tried.contains(&Step::PinnedHost));
    // What it served stays the program's, and its memory is there for who asks for pinned memory.
    assert_eq!(program.pool.size_of(served), Some(10 * MIB));
    program.free(served, stream);
    let used = program.device.host_used();
    let pinned = program.pool.pinned_memory().unwrap();
    let again = pinned.allocate(10 * MIB, stream).unwrap();
    assert_eq!(program.device.host_used(), used);
    program.pool.free(again, stream).unwrap();
    program.free(block, stream);
    program.assert_in_order();
}

#[test]
fn the_background_work_has_a_thread_as_long_as_the_settings_want_one() {
    let rounds = |pool: &Pool<Simulated>, least: u64| {
        let calls = pool.stats().driver_calls;
        let block = pool.allocate(8 * MIB, Stream::LEGACY).unwrap();
        pool.free(block, Stream::LEGACY).unwrap();
        // What is free goes back at once, if anybody looks.
        let began = std::time::Instant::now();
        while pool.stats().held > 0 && began.elapsed().as_millis() < u128::from(least) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        (pool.stats().held, pool.stats().driver_calls > calls)
    };
    let config = Config { background_interval_ms: 0, idle_release_ms: 0, ..Config::default() };
    let pool = Pool::new(Arc::new(Simulated::in_process(64 * MIB, 0)), config.clone()).unwrap();
    assert_eq!(rounds(&pool, 200), (8 * MIB, true));
    pool.set_config(Config { background_interval_ms: 1, ..config.clone() }).unwrap();
    assert_eq!(rounds(&pool, 60_000), (0, true));
    pool.set_config(config).unwrap();
    assert_eq!(rounds(&pool, 200), (8 * MIB, true));
    pool.maintain();
    pool.maintain();
    assert_eq!(pool.stats().held, 0);
}

#[test]
fn the_limit_of_the_settings_is_named() {
    let program = Program::with(256 * MIB, Config { memory_limit: 64 * MIB, ..Config::default() });
    let stream = program.device.stream();
    let block = program.alloc(50 * MIB, stream);
    let picture = refused(&program, 20 * MIB);
    assert!(picture.to_string().contains("memory_limit is 64 MiB"), "{picture}");
    assert!(program.device.peak() <= 64 * MIB);
    program.pool.set_config(Config::default()).unwrap();
    program.churn(20 * MIB, stream, US);
    program.free(block, stream);
}

#[test]
fn what_can_never_be_had_costs_nobody_a_cache() {
    let program = Program::new(64 * MIB);
    let stream = program.device.stream();
    program.churn(4 * KIB, stream, US);
    let calls = program.device.all_calls();
    refused(&program, 65 * MIB);
    assert!(program.device.all_calls() <= calls + 3, "a stream's number, and what the device has");
    let hits = program.pool.stats().thread_hits;
    program.churn(4 * KIB, stream, US);
    assert_eq!(program.pool.stats().thread_hits, hits + 1);
}

#[test]
fn free_granules_anywhere_are_no_fragmentation() {
    let program = Program::new(64 * MIB);
    let stream = program.device.stream();
    let blocks: Vec<_> = (0..16).map(|_| program.alloc(4 * MIB, stream)).collect();
    blocks.iter().step_by(2).for_each(|block| program.free(*block, stream));
    let stats = program.pool.stats();
    assert_eq!((stats.free, stats.largest_hole), (32 * MIB, 4 * MIB));
    assert_eq!(stats.fragmentation_bytes, 0, "pieces of 4 MiB serve the largest request");
    refused(&program, 48 * MIB);
    assert_eq!(program.pool.stats().fragmentation_bytes, 32 * MIB, "all of it is too little");
    let large = program.alloc(24 * MIB, stream);
    program.free(large, stream);
    blocks.iter().skip(1).step_by(2).for_each(|block| program.free(*block, stream));
    program.assert_in_order();
}
