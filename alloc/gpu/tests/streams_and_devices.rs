//! Streams that come and go without a word, and several devices.

mod support;

use std::sync::Arc;

use poolscope_gpu::{Call, Config, OpenError, Pool, Pools, Simulated, Stream};
use support::{KIB, MIB, MS, Program, US};

#[test]
fn memory_of_a_stream_that_was_destroyed_without_a_word_serves_others() {
    let program = Program::new(64 * MIB);
    let other = program.device.non_blocking_stream();
    for _ in 0..10 {
        let gone = program.device.non_blocking_stream();
        let blocks = [program.alloc(40 * MIB, gone), program.alloc(4 * KIB, gone)];
        for (block, size) in blocks.into_iter().zip([40 * MIB, 4 * KIB]) {
            program.write(block, size, gone, 100 * MS);
            program.free(block, gone);
        }
        program.device.destroy_stream(gone);
        program.pool.maintain();
        program.churn(50 * MIB, other, MS);
        program.pool.release_all();
    }
    assert_eq!(program.pool.stats().held, 0, "{}", program.pool.stats());
    program.assert_in_order();
}

/// As CuPy's are that a function makes for itself: each has the next one's memory soon.
#[test]
fn streams_that_come_and_go_without_a_word_hold_no_more_than_those_of_a_few_rounds() {
    let program = Program::new(16 << 30);
    let kept = program.device.non_blocking_stream();
    for turn in 0..300 {
        let gone = program.device.non_blocking_stream();
        for size in [12 * MIB, 12 * MIB, 4 * KIB] {
            let block = program.alloc(size, gone);
            program.write(block, size, gone, MS);
            program.free(block, gone);
        }
        program.device.destroy_stream(gone);
        program.churn(8 * MIB, kept, 100 * US);
        program.device.advance(8 * MS);
        if turn % 3 == 0 {
            program.pool.maintain();
        }
    }
    let held = program.pool.stats().peak_held;
    assert!(held < 200 * MIB, "{} MiB", held / MIB);
    program.assert_in_order();
}

#[test]
fn a_request_that_needs_memory_of_a_lost_stream_waits_for_the_device() {
    let program = Program::new(64 * MIB);
    let (gone, other) = (program.device.non_blocking_stream(), program.device.non_blocking_stream());
    let block = program.alloc(60 * MIB, gone);
    program.write(block, 60 * MIB, gone, 100 * MS);
    program.free(block, gone);
    program.device.destroy_stream(gone);
    // No background work in between: the ladder finds it.
    program.churn(50 * MIB, other, MS);
    assert!(program.device.calls(Call::SynchronizeAll) > 0);
    program.assert_in_order();
}

#[test]
fn a_handle_that_is_another_streams_now_is_not_taken_for_the_old_one() {
    let program = Program::new(64 * MIB);
    let stream = program.device.non_blocking_stream();
    for _ in 0..5 {
        for size in [50 * MIB, 64 * KIB, 256] {
            let block = program.alloc(size, stream);
            program.write(block, size, stream, 500 * MS);
            program.free(block, stream);
        }
        program.device.replace_stream(stream);
        // Within a second each thread asks again.
        program.device.advance(1_000 * MS);
        program.pool.maintain();
        for size in [256, 64 * KIB, 50 * MIB] {
            program.churn(size, stream, US);
        }
    }
    program.assert_in_order();
}

#[test]
fn peers_may_use_what_is_mapped_and_what_will_be() {
    let (program, peer) = (Program::new(256 * MIB), Simulated::new(64 * MIB));
    let stream = program.device.stream();
    let blocks: Vec<_> = (0..16).map(|_| program.alloc(4 * MIB, stream)).collect();
    assert!(program.device.is_open_to_peers(blocks[0], 4 * MIB), "nobody was let in");
    program.pool.enable_peer(&peer).unwrap();
    assert!(blocks.iter().all(|block| program.device.is_open_to_peers(*block, 4 * MIB)));
    blocks.iter().step_by(2).for_each(|block| program.free(*block, stream));
    let (stitched, small) = (program.alloc(24 * MIB, stream), program.alloc(KIB, stream));
    assert!(program.device.is_open_to_peers(stitched, 24 * MIB));
    assert!(program.device.is_open_to_peers(small, KIB));
    let other = Simulated::new(64 * MIB);
    assert!(!program.device.is_open_to(&other, stitched, 24 * MIB) && program.device.is_open_to(&peer, small, KIB));
    program.pool.enable_peer(&other).unwrap();
    for (block, size) in [(stitched, 24 * MIB), (small, KIB), (blocks[1], 4 * MIB)] {
        assert!(program.device.is_open_to_peers(block, size));
        program.free(block, stream);
    }
    blocks[3..].iter().step_by(2).for_each(|block| program.free(*block, stream));
}

#[test]
fn each_device_has_one_pool() {
    let pools = Pools::new(|ordinal| {
        let error = poolscope_gpu::CudaError::NoSuchDevice { ordinal, devices: 2 };
        if ordinal >= 2 {
            return Err(OpenError::Device(error));
        }
        Ok(Pool::new(Arc::new(Simulated::new(64 * MIB)), Config::default())?)
    });
    let (first, second) = (pools.get(0).unwrap(), pools.get(1).unwrap());
    let block = first.allocate(4 * MIB, Stream::NULL).unwrap();
    assert!(Arc::ptr_eq(&first, &pools.get(0).unwrap()));
    assert!(second.free(block, Stream::NULL).is_err());
    pools.enable_peer(0, 1).unwrap();
    assert!(first.device().is_open_to(second.device(), block, 4 * MIB));
    assert!(!second.device().is_open_to(first.device(), block, 4 * MIB), "the other way round is another call");
    assert!(pools.enable_peer(1, 1).is_err(), "a device is no peer of its own");
    first.free(block, Stream::NULL).unwrap();
    let stats = pools.stats();
    assert_eq!((stats.len(), stats[0].1.allocation_count, stats[1].1.allocation_count), (2, 1, 0));
    let error = pools.get(7).err().unwrap().to_string();
    assert_eq!(error, "no device 7: the CUDA driver sees 2, counted from 0");
}
