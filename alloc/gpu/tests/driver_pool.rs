//! The simulated driver's own pool: what it reuses, in whose order, and what it holds.

mod support;

use poolscope_gpu::{Call, Device, Fault, Kernel, Simulated};
use support::{KIB, MIB, MS};

fn written(device: &Simulated, bytes: u64, stream: poolscope_gpu::Stream) -> u64 {
    let address = device.allocate_async(bytes, stream).unwrap();
    device.lend(address, bytes);
    device.launch(stream, Kernel::writing(address, bytes, MS));
    address
}

fn free(device: &Simulated, address: u64, stream: poolscope_gpu::Stream) {
    device.take_back(address);
    device.free_async(address, stream).unwrap();
}

#[test]
fn a_stream_gets_back_what_it_freed_and_nothing_more_is_held() {
    let device = Simulated::new(256 * MIB);
    let stream = device.non_blocking_stream();
    let first = written(&device, MIB, stream);
    free(&device, first, stream);
    assert_eq!(written(&device, MIB, stream), first);
    assert_eq!(device.async_pool().unwrap().reserved, 32 * MIB);
    assert_eq!(device.violations(), []);
}

#[test]
fn another_stream_waits_for_the_work_on_what_it_gets() {
    let device = Simulated::new(32 * MIB);
    let (one, other) = (device.non_blocking_stream(), device.non_blocking_stream());
    let block = written(&device, 30 * MIB, one);
    free(&device, block, one);
    let again = written(&device, 30 * MIB, other);
    assert_eq!(again, block);
    assert_eq!(device.idle_at(other), device.idle_at(one) + MS);
    assert_eq!(device.violations(), []);
}

#[test]
fn neighbours_of_two_streams_merge_and_wait_for_both() {
    let device = Simulated::new(32 * MIB);
    let streams: Vec<_> = (0..3).map(|_| device.non_blocking_stream()).collect();
    let halves: Vec<u64> = streams[..2].iter().map(|stream| written(&device, 16 * MIB, *stream)).collect();
    for (half, stream) in halves.iter().zip(&streams) {
        free(&device, *half, *stream);
    }
    written(&device, 32 * MIB, streams[2]);
    assert_eq!(device.violations(), []);
}

#[test]
fn whole_free_segments_go_back_before_more_is_taken() {
    let device = Simulated::new(100 * MIB);
    let stream = device.non_blocking_stream();
    for size in [30 * MIB, 60 * MIB, 90 * MIB] {
        let block = written(&device, size, stream);
        free(&device, block, stream);
    }
    let held = device.async_pool().unwrap();
    assert_eq!((held.reserved, held.used), (96 * MIB, 0));
    assert_eq!(device.violations(), []);
}

#[test]
fn it_keeps_what_its_threshold_lets_it_keep_when_the_host_waits() {
    let device = Simulated::new(256 * MIB);
    let stream = device.non_blocking_stream();
    for (keep, left) in [(u64::MAX, 32 * MIB), (0, 0)] {
        device.keep_async(keep).unwrap();
        let block = written(&device, 4 * KIB, stream);
        free(&device, block, stream);
        let event = device.create_event().unwrap();
        device.record(event, stream).unwrap();
        device.synchronize(event).unwrap();
        assert_eq!(device.async_pool().unwrap().reserved, left);
    }
}

#[test]
fn what_no_memory_could_hold_is_refused() {
    let device = Simulated::new(64 * MIB);
    let stream = device.non_blocking_stream();
    for bytes in [65 * MIB, u64::MAX] {
        let error = device.allocate_async(bytes, stream).unwrap_err();
        assert_eq!((error.call, error.fault), (Call::AllocateAsync, Fault::OutOfMemory));
    }
    assert!(device.allocate_async(64 * MIB, stream).is_ok(), "a refusal changes nothing");
}
