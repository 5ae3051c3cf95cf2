//! Blocks of device memory among the records of the host's.

use std::sync::Once;

use poolscope_cpu::device::{self, Block, State, UNRECORDED, kind};
use poolscope_cpu::scope;

/// Puts the pool to use before a test asks for more: while another thread's first allocation makes the segment,
/// there is none.
fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        poolscope_cpu::malloc(1);
    });
}

/// The blocks of a scope: kind, device, size.
fn live(scope: u32) -> Vec<(u16, u32, u64)> {
    let mut blocks = Vec::with_capacity(16);
    scope::visit_live(scope, |block, stack| {
        assert!(!stack.is_empty());
        blocks.push((block.kind, block.device, block.size));
    });
    blocks.sort_unstable();
    blocks
}

fn block(kind: u16, device: u32, address: u64, size: u64) -> Block {
    Block { address, size, weight: 65_536, in_use: 0, place: u32::MAX, device, kind }
}

#[test]
fn a_block_of_a_device_is_recorded_in_the_threads_scope_and_forgotten_when_it_is_freed() {
    start();
    let (id, outer) = scope::begin().expect("the pool is in use");
    assert_eq!(device::period(), 1, "a scope records everything");
    let one = device::allocated(&block(kind::DEVICE, 1, 0x1000, 4096));
    let two = device::allocated(&block(kind::PINNED, 0, 0x2000, 512));
    assert_ne!(one, UNRECORDED);
    let host = device::allocated(&block(kind::HOST, 0, 0x3000, 512));
    assert_eq!(host, UNRECORDED, "blocks of the host are the pool's own");
    scope::set(outer);
    assert_eq!(live(id), [(kind::DEVICE, 1, 4096), (kind::PINNED, 0, 512)]);
    // Not the block that the token stands for: another pool's mistake must not cost a record.
    device::freed(one, 0x9999, u32::MAX, [0, 0]);
    device::freed(UNRECORDED, 0x1000, u32::MAX, [0, 0]);
    assert_eq!(live(id).len(), 2);
    device::freed(one, 0x1000, u32::MAX, [0, 0]);
    device::freed(one, 0x1000, u32::MAX, [0, 0]);
    assert_eq!(live(id), [(kind::PINNED, 0, 512)]);
    device::freed(two, 0x2000, u32::MAX, [0, 0]);
    assert_eq!(live(id), []);
    assert!(device::period() > 1);
}

#[test]
fn places_for_pools_are_bounded_and_used_again() {
    start();
    let places: Vec<u32> = std::iter::from_fn(device::attach).take(100).collect();
    assert_eq!(places.len(), 32);
    let state = State {
        device: 3,
        kind: kind::DEVICE,
        name: &[b'n'; 200],
        memory_bytes: 1 << 30,
        counters: &[7; 100],
        cells: &vec![1; 100_000],
        cell_bytes: 1,
        places: &vec![4096; 100_000],
        streams: &[2; 1000],
    };
    device::publish(places[3], &state);
    device::detach(places[3]);
    assert_eq!(device::attach(), Some(places[3]));
    // A place that was never given.
    device::publish(1000, &state);
    places.into_iter().for_each(device::detach);
}
