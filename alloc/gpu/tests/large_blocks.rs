//! Large blocks: streams, growth, idle memory, graphs, failures.

mod support;

use poolscope_gpu::{Call, Config, Fault, GRANULE, PoolError, Stream};
use support::{KIB, MIB, MS, Program, US};

#[test]
fn a_block_is_reused_on_its_stream_at_once_and_without_a_call() {
    let program = Program::new(64 * MIB);
    let stream = program.device.stream();
    let first = program.churn(16 * MIB, stream, 100 * MS);
    let calls = program.device.all_calls();
    let second = program.churn(16 * MIB, stream, 100 * MS);
    assert_eq!(first, second);
    assert_eq!(program.device.all_calls(), calls);
    program.assert_in_order();
}

#[test]
fn a_block_goes_to_another_stream_behind_an_event() {
    let program = Program::new(16 * MIB);
    let (first, second) = (program.device.non_blocking_stream(), program.device.non_blocking_stream());
    let block = program.churn(16 * MIB, first, 100 * MS);
    assert_eq!(program.churn(16 * MIB, second, US), block);
    assert_eq!((program.device.calls(Call::Record), program.device.calls(Call::Wait)), (1, 1));
    assert!(program.device.idle_at(second) > 100 * MS);
    program.assert_in_order();
}

#[test]
fn one_event_serves_all_that_was_freed_before_it() {
    let program = Program::new(16 * MIB);
    let (first, second) = (program.device.non_blocking_stream(), program.device.non_blocking_stream());
    let blocks: Vec<_> = (0..4).map(|_| program.alloc(4 * MIB, first)).collect();
    for block in blocks {
        program.write(block, 4 * MIB, first, MS);
        program.free(block, first);
    }
    for _ in 0..4 {
        let block = program.alloc(4 * MIB, second);
        program.write(block, 4 * MIB, second, US);
    }
    assert_eq!((program.device.calls(Call::Record), program.device.calls(Call::Wait)), (1, 1));
    program.assert_in_order();
}

/// The RAPIDS pool had this race: a stream took merged memory of two others and waited for one of them alone; a third
/// one took the rest.
#[test]
fn merged_memory_waits_for_all_streams_that_used_its_parts() {
    let program = Program::new(16 * MIB);
    let streams: Vec<_> = (0..4).map(|_| program.device.non_blocking_stream()).collect();
    let blocks: Vec<_> = (0..2).map(|at| program.alloc(8 * MIB, streams[at])).collect();
    for at in 0..2 {
        program.write(blocks[at], 8 * MIB, streams[at], 100 * MS);
        program.free(blocks[at], streams[at]);
    }
    let across = program.alloc(12 * MIB, streams[2]);
    program.write(across, 12 * MIB, streams[2], US);
    let rest = program.alloc(4 * MIB, streams[3]);
    program.write(rest, 4 * MIB, streams[3], US);
    program.free(across, streams[2]);
    let again = program.alloc(12 * MIB, streams[3]);
    program.write(again, 12 * MIB, streams[3], US);
    program.assert_in_order();
}

#[test]
fn a_recorded_stream_holds_a_block_back_until_it_is_past_the_free() {
    let program = Program::new(8 * MIB);
    let (own, other) = (program.device.non_blocking_stream(), program.device.non_blocking_stream());
    let block = program.alloc(8 * MIB, own);
    program.order(own, other);
    program.write(block, 8 * MIB, other, 100 * MS);
    program.pool.record_stream(block, other).unwrap();
    program.free(block, own);
    program.churn(8 * MIB, own, US);
    assert!(program.device.idle_at(own) > 100 * MS);
    program.assert_in_order();
}

#[test]
fn a_block_freed_on_another_stream_waits_for_both() {
    let program = Program::new(8 * MIB);
    let (own, other) = (program.device.non_blocking_stream(), program.device.non_blocking_stream());
    program.churn(8 * MIB, own, 100 * MS);
    let block = program.alloc(8 * MIB, own);
    program.free(block, other);
    program.churn(8 * MIB, other, US);
    program.assert_in_order();
}

#[test]
fn a_destroyed_streams_memory_is_handed_over() {
    let program = Program::new(8 * MIB);
    let (gone, other) = (program.device.non_blocking_stream(), program.device.non_blocking_stream());
    program.churn(8 * MIB, gone, 100 * MS);
    program.pool.stream_ends(gone).unwrap();
    program.device.destroy_stream(gone);
    program.churn(8 * MIB, other, US);
    for _ in 0..10 {
        program.device.advance(200 * MS);
        program.pool.maintain();
        let next = program.device.non_blocking_stream();
        program.churn(8 * MIB, next, 100 * MS);
        program.pool.stream_ends(next).unwrap();
        program.device.destroy_stream(next);
    }
    assert_eq!(program.pool.stats().peak_held, 8 * MIB);
    program.assert_in_order();
}

#[test]
fn blocks_of_a_destroyed_stream_can_be_freed_on_any_other() {
    let program = Program::new(8 * MIB);
    let (gone, other) = (program.device.non_blocking_stream(), program.device.non_blocking_stream());
    let block = program.alloc(8 * MIB, gone);
    program.write(block, 8 * MIB, gone, 100 * MS);
    program.order(gone, other);
    program.pool.stream_ends(gone).unwrap();
    program.device.destroy_stream(gone);
    program.free(block, other);
    program.churn(8 * MIB, Stream::PER_THREAD, US);
    program.assert_in_order();
}

#[test]
fn the_default_streams_are_streams_like_others() {
    let program = Program::new(8 * MIB);
    let own = program.device.non_blocking_stream();
    for stream in [Stream::NULL, Stream::LEGACY, own, Stream::PER_THREAD, own, Stream::NULL] {
        program.churn(8 * MIB, stream, MS);
    }
    program.assert_in_order();
}

#[test]
fn a_threads_default_stream_is_another_in_each_thread() {
    let program = Program::new(8 * MIB);
    program.churn(8 * MIB, Stream::PER_THREAD, 100 * MS);
    std::thread::scope(|scope| {
        scope.spawn(|| program.churn(8 * MIB, Stream::PER_THREAD, US));
    });
    program.churn(8 * MIB, Stream::PER_THREAD, US);
    program.assert_in_order();
}

/// Eight blocks fill the device; every second one is freed.
fn with_holes(program: &Program, stream: Stream) -> Vec<u64> {
    let blocks: Vec<_> = (0..8).map(|_| program.alloc(8 * MIB, stream)).collect();
    blocks.iter().for_each(|block| program.write(*block, 8 * MIB, stream, MS));
    blocks.iter().step_by(2).for_each(|block| program.free(*block, stream));
    blocks.into_iter().skip(1).step_by(2).collect()
}

#[test]
fn free_granules_anywhere_serve_one_large_request() {
    let program = Program::new(64 * MIB);
    let stream = program.device.stream();
    with_holes(&program, stream);
    let large = program.alloc(32 * MIB, stream);
    program.write(large, 32 * MIB, stream, MS);
    let stats = program.pool.stats();
    assert_eq!((stats.held, stats.granules_remapped), (64 * MIB, 16));
    assert_eq!(program.device.calls(Call::Unmap), 0);
    program.assert_in_order();
}

#[test]
fn the_same_large_request_costs_no_call_the_next_time() {
    let program = Program::new(64 * MIB);
    let stream = program.device.stream();
    with_holes(&program, stream);
    let first = program.churn(32 * MIB, stream, MS);
    let calls = program.device.all_calls();
    for _ in 0..10 {
        // What goes home serves small requests meanwhile.
        program.churn(8 * MIB, stream, MS);
        assert_eq!(program.churn(32 * MIB, stream, MS), first);
    }
    assert_eq!(program.device.all_calls(), calls);
    program.assert_in_order();
}

#[test]
fn remapped_memory_waits_for_the_streams_that_freed_it() {
    let program = Program::new(64 * MIB);
    let streams: Vec<_> = (0..3).map(|_| program.device.non_blocking_stream()).collect();
    with_holes(&program, streams[0]);
    let blocks: Vec<_> = (0..2).map(|_| program.churn(8 * MIB, streams[1], 200 * MS)).collect();
    assert_eq!(blocks[0], blocks[1]);
    program.churn(32 * MIB, streams[2], US);
    program.churn(8 * MIB, streams[0], US);
    program.churn(32 * MIB, streams[1], US);
    program.assert_in_order();
}

#[test]
fn idle_memory_goes_back_after_the_delay_and_not_before() {
    let program = Program::with(64 * MIB, Config { idle_release_ms: 1_000, ..Config::default() });
    let stream = program.device.stream();
    let kept = program.alloc(2 * MIB, stream);
    program.churn(32 * MIB, stream, MS);
    program.pool.maintain();
    program.device.advance(900 * MS);
    program.pool.maintain();
    assert_eq!(program.pool.stats().held, 34 * MIB);
    program.device.advance(200 * MS);
    program.pool.maintain();
    assert_eq!(program.pool.stats().held, 2 * MIB);
    program.write(kept, 2 * MIB, stream, MS);
    program.churn(32 * MIB, stream, MS);
    program.assert_in_order();
}

#[test]
fn memory_of_stitches_goes_back_too() {
    let program = Program::new(64 * MIB);
    let stream = program.device.stream();
    let kept = with_holes(&program, stream);
    program.churn(32 * MIB, stream, MS);
    kept.iter().for_each(|block| program.free(*block, stream));
    assert_eq!(program.pool.release_all(), 64 * MIB);
    assert_eq!(program.pool.stats().held, 0);
    program.churn(64 * MIB, stream, MS);
    program.assert_in_order();
}

#[test]
fn the_background_work_keeps_to_its_budget_of_calls() {
    // Pieces of a granule, so that there is much to do.
    let config = Config { idle_release_ms: 0, driver_calls_per_second: 20, piece_divisor: 0, ..Config::default() };
    let program = Program::with(512 * MIB, config);
    let stream = program.device.stream();
    program.churn(400 * MIB, stream, MS);
    program.device.advance(10 * MS);
    program.pool.maintain();
    let start = program.device.all_calls();
    for _ in 0..5_000 {
        program.device.advance(MS);
        program.pool.maintain();
    }
    let calls = program.device.all_calls() - start;
    assert!((80..=121).contains(&calls), "{calls}");
    assert!(program.pool.stats().held < 400 * MIB);
    program.assert_in_order();
}

#[test]
fn memory_under_work_is_not_given_back() {
    let program = Program::with(64 * MIB, Config { idle_release_ms: 0, ..Config::default() });
    let stream = program.device.stream();
    program.churn(32 * MIB, stream, 1_000 * MS);
    assert_eq!(program.pool.trim_cache(), 0);
    program.device.advance(1_000 * MS);
    assert_eq!(program.pool.trim_cache(), 32 * MIB);
    program.assert_in_order();
}

#[test]
fn a_captured_graph_keeps_its_memory_until_it_is_given_up() {
    let program = Program::new(64 * MIB);
    let (stream, other) = (program.device.non_blocking_stream(), program.device.non_blocking_stream());
    program.churn(32 * MIB, stream, 100 * MS);
    let graph_pool = program.pool.begin_capture(stream).unwrap();
    program.device.begin_capture(stream);
    let first = program.alloc(16 * MIB, stream);
    program.write(first, 16 * MIB, stream, MS);
    program.pool.free(first, stream).unwrap();
    let again = program.pool.allocate(16 * MIB, stream).unwrap();
    assert_eq!(first, again);
    program.pool.free(again, stream).unwrap();
    // Another stream's memory is asked for meanwhile, and the background work runs.
    program.churn(8 * MIB, other, MS);
    program.pool.maintain();
    let graph = program.device.end_capture(stream).unwrap();
    program.pool.end_capture(stream).unwrap();

    for _ in 0..3 {
        program.device.launch_graph(graph, other);
        program.churn(4 * MIB, stream, MS);
    }
    program.device.take_back(first);
    program.pool.end_graph(graph_pool, other).unwrap();
    program.churn(48 * MIB, stream, MS);
    program.assert_in_order();
}

/// As those are that a program branches off to while it captures: PyTorch allocates on them without more ado.
#[test]
fn a_stream_that_is_first_met_while_it_is_captured_has_memory_of_the_graph_and_is_the_same_stream_later() {
    let program = Program::new(64 * MIB);
    let (stream, other) = (program.device.non_blocking_stream(), program.device.non_blocking_stream());
    program.device.begin_capture(stream);
    // Nobody has said that it is captured: what it would get could be anybody's when the graph runs.
    assert!(program.pool.allocate(4 * MIB, stream).is_err());
    let graph_pool = program.pool.begin_capture(stream).unwrap();
    let block = program.alloc(4 * MIB, stream);
    program.write(block, 4 * MIB, stream, MS);
    program.pool.free(block, stream).unwrap();
    program.pool.maintain();
    let graph = program.device.end_capture(stream).expect("nothing illegal was done");
    program.pool.end_capture(stream).unwrap();
    for _ in 0..3 {
        program.device.launch_graph(graph, other);
        program.churn(4 * MIB, stream, MS);
        program.churn(4 * MIB, other, MS);
        program.pool.maintain();
    }
    program.device.take_back(block);
    program.pool.end_graph(graph_pool, other).unwrap();
    program.churn(48 * MIB, stream, MS);
    program.pool.stream_ends(stream).unwrap();
    program.assert_in_order();
}

#[test]
fn a_full_device_is_an_error_that_says_what_is_held() {
    let program = Program::new(64 * MIB);
    let stream = program.device.stream();
    let block = program.alloc(40 * MIB, stream);
    let error = program.try_alloc(30 * MIB, stream).unwrap_err();
    let PoolError::OutOfMemory(picture) = error else { panic!("{error}") };
    assert_eq!((picture.request, picture.used), (30 * MIB, 40 * MIB));
    assert!(picture.held >= 40 * MIB, "{picture}");
    program.free(block, stream);
    program.churn(64 * MIB, stream, MS);
    program.assert_in_order();
}

#[test]
fn a_memory_limit_is_kept() {
    let program = Program::new(64 * MIB);
    let stream = program.device.stream();
    program.pool.set_config(Config { memory_limit: 16 * MIB, ..program.pool.config() }).unwrap();
    let block = program.alloc(10 * MIB, stream);
    assert!(matches!(program.try_alloc(10 * MIB, stream), Err(PoolError::OutOfMemory { .. })));
    assert!(program.pool.stats().held <= 16 * MIB);
    program.free(block, stream);
    program.churn(16 * MIB, stream, MS);
    program.pool.set_config(Config { memory_limit: 0, ..program.pool.config() }).unwrap();
    program.churn(40 * MIB, stream, MS);
    program.assert_in_order();
}

#[test]
fn impossible_sizes_are_refused() {
    let program = Program::new(64 * MIB);
    for size in [1 << 40, u64::MAX, u64::MAX - 100] {
        assert!(matches!(program.try_alloc(size, Stream::NULL), Err(PoolError::OutOfMemory(_))));
    }
    assert_eq!(program.pool.stats().current_usage, 0);
}

#[test]
fn a_foreign_address_and_a_second_free_are_errors() {
    let program = Program::new(64 * MIB);
    let block = program.churn(4 * MIB, Stream::NULL, US);
    for address in [block, block + 256, 1] {
        assert_eq!(program.pool.free(address, Stream::NULL), Err(PoolError::NotABlock(address)));
        assert_eq!(program.pool.record_stream(address, Stream::NULL), Err(PoolError::NotABlock(address)));
    }
}

#[test]
fn every_call_may_fail_once_and_nothing_is_lost() {
    for nth in 1..200 {
        let program = Program::new(64 * MIB);
        let streams: Vec<_> = (0..2).map(|_| program.device.non_blocking_stream()).collect();
        program.device.fail(None, nth, Fault::Driver(999));
        let mut live = Vec::new();
        for round in 0..24u64 {
            let stream = streams[(round % 2) as usize];
            let size = (round * 7 % 10 + 1) * MIB + round * KIB;
            if let Ok(block) = program.try_alloc(size, stream) {
                program.write(block, size, stream, MS);
                live.push((block, stream));
            }
            if round % 3 != 0 && !live.is_empty() {
                let (block, stream) = live.remove(round as usize % live.len());
                program.free(block, stream);
            }
            program.pool.maintain();
        }
        for (block, stream) in live {
            program.free(block, stream);
        }
        program.device.fail_no_more();
        program.pool.release_all();
        let held = program.pool.stats().held;
        assert_eq!(held, 0, "call {nth} failed");
        program.churn(64 * MIB - GRANULE, streams[0], US);
        program.assert_in_order();
    }
}

#[test]
fn a_pool_that_goes_gives_everything_back() {
    let program = Program::new(64 * MIB);
    let stream = program.device.stream();
    let kept = with_holes(&program, stream);
    program.churn(32 * MIB, stream, MS);
    kept.iter().for_each(|block| program.free(*block, stream));
    let device = program.device.clone();
    drop(program);
    assert_eq!(device.calls(Call::Unreserve), 1);
    assert_eq!(device.calls(Call::CreateEvent), device.calls(Call::DestroyEvent));
    assert_eq!(device.violations(), []);
}

#[test]
fn blocks_are_aligned_as_the_settings_say_from_then_on() {
    let program = Program::new(64 * MIB);
    program.pool.set_config(Config { alignment: 64 * KIB, ..Config::default() }).unwrap();
    let blocks: Vec<_> = (1..5).map(|size| program.alloc(size * 1000, Stream::NULL)).collect();
    assert!(blocks.iter().all(|block| block % (64 * KIB) == 0));
}

#[test]
fn what_is_free_of_a_stitch_in_use_serves_where_there_is_no_other_memory() {
    let program = Program::new(64 * MIB);
    let stream = program.device.stream();
    let blocks: Vec<_> = (0..16).map(|_| program.alloc(4 * MIB, stream)).collect();
    blocks.iter().step_by(2).for_each(|block| program.free(*block, stream));
    // A stitch of 24 MiB is mapped, and half of it used again.
    program.churn(24 * MIB, stream, MS);
    let half = program.alloc(12 * MIB, stream);
    program.write(half, 12 * MIB, stream, MS);
    assert_eq!(program.pool.stats().stitches_reused, 1);
    // The other half and what is free beside it.
    let other = program.alloc(20 * MIB, stream);
    program.write(other, 20 * MIB, stream, MS);
    program.write(half, 12 * MIB, stream, MS);
    assert!(program.try_alloc(4 * MIB, stream).is_err(), "all of the device is in use");
    program.free(half, stream);
    program.churn(12 * MIB, stream, MS);
    program.free(other, stream);
    program.churn(32 * MIB, stream, MS);
    blocks.iter().skip(1).step_by(2).for_each(|block| program.free(*block, stream));
    program.pool.release_all();
    assert_eq!(program.pool.stats().held, 0);
    program.assert_in_order();
}

#[test]
fn what_is_free_of_a_stitch_in_use_is_taken_before_the_pool_grows() {
    let program = Program::new(256 * MIB);
    let (one, other) = (program.device.non_blocking_stream(), program.device.non_blocking_stream());
    let blocks: Vec<_> = (0..32).map(|_| program.alloc(4 * MIB, one)).collect();
    blocks.iter().step_by(2).for_each(|block| program.free(*block, one));
    // All that is free is put together, and then used by half.
    program.churn(64 * MIB, one, MS);
    let half = program.alloc(32 * MIB, one);
    program.write(half, 32 * MIB, one, MS);
    let held = program.pool.stats().held;
    let rest = program.alloc(32 * MIB, other);
    program.write(rest, 32 * MIB, other, MS);
    program.write(half, 32 * MIB, one, MS);
    assert_eq!(program.pool.stats().held, held, "{}", program.pool.stats());
    program.free(half, one);
    program.free(rest, other);
    blocks.iter().skip(1).step_by(2).for_each(|block| program.free(*block, one));
    program.pool.release_all();
    assert_eq!(program.pool.stats().held, 0);
    program.assert_in_order();
}

#[test]
fn what_several_streams_have_finished_is_merged_before_memory_is_put_together() {
    let program = Program::new(256 * MIB);
    let (one, other) = (program.device.non_blocking_stream(), program.device.non_blocking_stream());
    let blocks: Vec<_> = (0..16).map(|_| program.alloc(4 * MIB, one)).collect();
    blocks.iter().step_by(2).for_each(|block| program.free(*block, one));
    // All that is free is put together, and its halves are used by two streams.
    program.churn(32 * MIB, one, MS);
    let halves = [one, other].map(|stream| (program.alloc(16 * MIB, stream), stream));
    for (half, stream) in halves {
        program.write(half, 16 * MIB, stream, MS);
        program.free(half, stream);
    }
    blocks.iter().skip(1).step_by(2).for_each(|block| program.free(*block, one));
    program.device.synchronize_all();
    let before = program.pool.stats();
    program.churn(64 * MIB, one, MS);
    let after = program.pool.stats();
    let mapped = |stats: &poolscope_gpu::Stats| (stats.granules_created, stats.granules_remapped);
    assert_eq!(mapped(&after), mapped(&before), "{after}");
    program.assert_in_order();
}

#[test]
fn no_stream_waits_for_another_one_where_the_settings_say_so() {
    for wait_for_streams in [true, false] {
        let program = Program::with(256 * MIB, Config { wait_for_streams, ..Config::default() });
        let (one, other) = (program.device.non_blocking_stream(), program.device.non_blocking_stream());
        program.churn(32 * MIB, one, MS);
        let block = program.alloc(32 * MIB, other);
        program.write(block, 32 * MIB, other, MS);
        let stats = program.pool.stats();
        assert_eq!(stats.stream_waits, u64::from(wait_for_streams), "{stats}");
        assert_eq!(stats.held, if wait_for_streams { 32 * MIB } else { 64 * MIB });
        // Its own memory a stream has at once, and another's when the work is over.
        program.free(block, other);
        program.churn(32 * MIB, other, MS);
        program.pool.synchronize().unwrap();
        program.pool.defragment();
        let both = program.alloc(64 * MIB, other);
        assert_eq!(program.pool.stats().held, 64 * MIB);
        program.free(both, other);
        program.assert_in_order();
    }
}
