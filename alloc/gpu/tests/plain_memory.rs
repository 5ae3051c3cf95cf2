//! Memory in segments: devices without virtual memory, and pinned host memory.

mod support;

use std::sync::Arc;

use poolscope_gpu::{Call, Config, Pool, Simulated};
use support::{KIB, MIB, MS, Program, US};

#[test]
fn a_device_without_virtual_memory_serves_all_sizes_from_segments() {
    let program = Program::plain(256 * MIB);
    let stream = program.device.stream();
    let sizes = [256, 4 * KIB, MIB, 3 * MIB, 9 * MIB, 11 * MIB, 40 * MIB];
    let blocks: Vec<_> = sizes.iter().map(|size| program.alloc(*size, stream)).collect();
    sizes.iter().zip(&blocks).for_each(|(size, block)| program.write(*block, *size, stream, US));
    assert_eq!(program.device.calls(Call::Reserve) + program.device.calls(Call::Create), 0);
    assert!(program.device.calls(Call::Allocate) <= 5, "requests share segments");
    blocks.iter().for_each(|block| program.free(*block, stream));
    let calls = program.device.calls(Call::Allocate);
    let again: Vec<_> = sizes.iter().map(|size| program.alloc(*size, stream)).collect();
    assert_eq!(program.device.calls(Call::Allocate), calls);
    again.iter().for_each(|block| program.free(*block, stream));
    program.pool.release_all();
    assert_eq!(program.pool.stats().held, 0, "{}", program.pool.stats());
    program.assert_in_order();
}

#[test]
fn hot_pairs_of_plain_memory_make_no_call() {
    let program = Program::plain(256 * MIB);
    let stream = program.device.stream();
    for size in [256, 64 * KIB, 16 * MIB] {
        let first = program.churn(size, stream, MS);
        let calls = program.device.all_calls();
        assert!((0..100).all(|_| program.churn(size, stream, 0) == first));
        assert_eq!(program.device.all_calls(), calls, "{size}");
    }
    program.assert_in_order();
}

#[test]
fn segments_that_are_idle_go_back_and_others_stay() {
    let program = Program::plain(256 * MIB);
    let stream = program.device.stream();
    let kept = program.alloc(4 * MIB, stream);
    program.churn(4 * MIB, stream, MS);
    program.churn(32 * MIB, stream, MS);
    assert_eq!(program.pool.stats().held, 52 * MIB);
    program.pool.maintain();
    program.device.advance(11_000 * MS);
    program.pool.maintain();
    program.pool.maintain();
    assert_eq!(program.pool.stats().held, 20 * MIB);
    program.free(kept, stream);
    program.assert_in_order();
}

#[test]
fn no_segment_is_freed_while_a_graph_is_captured() {
    let program = Program::plain(256 * MIB);
    let (stream, captured) = (program.device.stream(), program.device.stream());
    program.churn(32 * MIB, stream, MS);
    program.device.synchronize_all();
    program.pool.maintain();
    let graph = program.pool.begin_capture(captured).unwrap();
    program.device.begin_capture(captured);
    let block = program.alloc(5 * MIB, captured);
    program.write(block, 5 * MIB, captured, US);
    program.pool.free(block, captured).unwrap();
    assert_eq!(program.pool.trim_cache(), 0);
    assert!(program.device.end_capture(captured).is_some());
    program.pool.end_capture(captured).unwrap();
    program.pool.end_graph(graph, captured).unwrap();
    program.device.take_back(block);
    assert!(program.pool.release_all() > 0);
    program.assert_in_order();
}

#[test]
fn pinned_host_memory_is_a_pool_like_the_others() {
    let device = Arc::new(Simulated::new(64 * MIB));
    let pool = Pool::pinned(device.clone(), Config::default()).unwrap();
    let streams = [device.non_blocking_stream(), device.non_blocking_stream()];
    for size in [256, 4 * KIB, MIB, 3 * MIB, 100 * MIB] {
        let block = pool.allocate(size, streams[0]).unwrap();
        device.lend(block, size);
        device.launch(streams[0], poolscope_gpu::Kernel::writing(block, size, MS));
        device.take_back(block);
        pool.free(block, streams[0]).unwrap();
        // The same memory, behind an event.
        let next = pool.allocate(size, streams[1]).unwrap();
        device.lend(next, size);
        device.launch(streams[1], poolscope_gpu::Kernel::writing(next, size, MS));
        device.take_back(next);
        pool.free(next, streams[1]).unwrap();
    }
    assert_eq!(device.peak(), 0, "none of it is the device's");
    let first = pool.allocate(4 * KIB, streams[0]).unwrap();
    pool.free(first, streams[0]).unwrap();
    let calls = device.calls(Call::AllocateHost);
    assert_eq!(pool.allocate(4 * KIB, streams[0]), Ok(first));
    assert_eq!(device.calls(Call::AllocateHost), calls);
    pool.free(first, streams[0]).unwrap();
    assert!(pool.stats().held >= 100 * MIB);
    drop(pool);
    assert_eq!(device.host_used(), 0);
    assert_eq!(device.violations(), []);
}
