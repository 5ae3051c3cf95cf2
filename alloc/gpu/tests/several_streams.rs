//! Several streams: what one of them has finished is everyone's.

mod support;

use poolscope_gpu::{Device, Stats, Stream};
use support::{MIB, MS, Program};

#[test]
fn what_other_streams_have_finished_is_taken_at_the_lowest_address_as_if_it_were_ones_own() {
    let program = Program::new(256 * MIB);
    let [one, other, third] = [(); 3].map(|()| program.device.non_blocking_stream());
    // Neighbours that are used on two streams in turns, behind them all that is in use.
    let blocks: Vec<_> =
        (0..8).map(|at| (program.alloc(3 * MIB, [one, other][at % 2]), [one, other][at % 2])).collect();
    let last = program.alloc(2 * MIB, third);
    for (block, stream) in &blocks {
        program.write(*block, 3 * MIB, *stream, MS);
        program.free(*block, *stream);
    }
    program.device.synchronize_all();
    let before = program.pool.stats();
    let whole = program.alloc(24 * MIB, third);
    let after = program.pool.stats();
    assert_eq!(whole, blocks[0].0, "the neighbours are one hole");
    assert_eq!((after.held, after.stream_waits, after.granules_remapped), (before.held, 0, 0), "{after}");
    program.write(whole, 24 * MIB, third, MS);
    for (block, stream) in [(whole, third), (last, third)] {
        program.free(block, stream);
    }
    program.assert_in_order();
}

#[test]
fn what_other_streams_still_work_on_is_not_taken_while_the_own_stream_has_memory() {
    let program = Program::new(256 * MIB);
    let [one, other] = [(); 2].map(|()| program.device.non_blocking_stream());
    let low = program.alloc(8 * MIB, one);
    let high = program.alloc(8 * MIB, other);
    program.write(low, 8 * MIB, one, 1000 * MS);
    program.free(low, one);
    program.free(high, other);
    assert_eq!(program.alloc(6 * MIB, other), high);
    assert_eq!(program.pool.stats().stream_waits, 0);
    program.assert_in_order();
}

#[test]
fn streams_at_work_are_asked_ever_more_seldom() {
    let program = Program::new(256 * MIB);
    let [one, other] = [(); 2].map(|()| program.device.non_blocking_stream());
    let blocks: Vec<_> = [5, 3, 7].map(|mib| program.alloc(mib * MIB, other)).into();
    let busy = program.alloc(8 * MIB, one);
    program.write(busy, 8 * MIB, one, 10_000 * MS);
    program.free(busy, one);
    blocks.iter().for_each(|block| program.free(*block, other));
    let calls = |stats: &Stats| stats.driver_calls;
    let before = calls(&program.pool.stats());
    for round in 0..1000 {
        // Each size is another one than that of the last free.
        let block = program.alloc((2 + round % 2) * MIB, other);
        program.free(block, other);
    }
    let asked = calls(&program.pool.stats()) - before;
    // Each stream's handle, an event and some questions.
    assert!((2..50).contains(&asked), "{asked}");
    program.assert_in_order();
}

/// Two streams, of which the first one has work for ten seconds, as the pool knows, and memory for the second one that
/// waits for nothing.
fn at_work() -> (Program, [Stream; 2]) {
    let program = Program::new(256 * MIB);
    let [one, other] = [(); 2].map(|()| program.device.non_blocking_stream());
    let [idle, beside, busy] = [32, 4, 6].map(|mib| program.alloc(mib * MIB, one));
    program.free(idle, one);
    let asks = program.alloc(3 * MIB, other);
    program.write(busy, 6 * MIB, one, 10_000 * MS);
    program.free(busy, one);
    let asks_again = program.alloc(5 * MIB, other);
    assert_eq!(program.pool.stats().stream_waits, 0);
    for (block, stream) in [(beside, one), (asks, other), (asks_again, other)] {
        program.free(block, stream);
    }
    (program, [one, other])
}

#[test]
fn what_waits_for_nothing_is_everyones_beside_what_a_stream_at_work_frees() {
    let (program, [_, other]) = at_work();
    let before = program.pool.stats();
    program.alloc(20 * MIB, other);
    let after = program.pool.stats();
    assert_eq!((after.held, after.stream_waits), (before.held, 0), "{after}");
    program.assert_in_order();
}

#[test]
fn what_a_stream_has_finished_is_everyones_while_it_goes_on_with_something_else() {
    let (program, [one, other]) = at_work();
    program.device.synchronize_all();
    // It has work again, and is asked for what it has freed.
    let busy = program.alloc(40 * MIB, one);
    program.write(busy, 40 * MIB, one, 20 * MS);
    program.free(busy, one);
    let asks = program.alloc(50 * MIB, other);
    let blocks: Vec<_> = (0..40).map(|_| program.alloc(3 * MIB, one)).collect();
    // What is freed last lies apart from what is freed first.
    for block in blocks[..16].iter().chain(&blocks[17..]) {
        program.write(*block, 3 * MIB, one, MS / 100);
        program.free(*block, one);
    }
    let long = program.alloc(6 * MIB, one);
    program.write(long, 6 * MIB, one, 10_000 * MS);
    program.device.advance(40 * MS);
    let before = program.pool.stats();
    let taken = program.alloc(32 * MIB, other);
    program.write(taken, 32 * MIB, other, MS);
    let after = program.pool.stats();
    assert_eq!((after.held, after.stream_waits), (before.held, before.stream_waits), "{after}");
    for (block, stream) in [(asks, other), (long, one), (taken, other)] {
        program.free(block, stream);
    }
    program.assert_in_order();
}

#[test]
fn a_stream_waits_for_one_at_work_where_the_device_has_no_more_memory() {
    let (program, [one, other]) = at_work();
    let filled: Vec<_> = std::iter::from_fn(|| program.try_alloc(2 * MIB, one).ok()).collect();
    program.write(filled[0], 2 * MIB, one, MS);
    program.free(filled[0], one);
    let (begun, waits) = (program.device.now(), program.pool.stats().stream_waits);
    let last = program.alloc(2 * MIB, other);
    program.write(last, 2 * MIB, other, MS);
    assert_eq!(last, filled[0]);
    assert_eq!(program.pool.stats().stream_waits, waits + 1);
    assert!(program.device.now() - begun < 1000 * MS, "the host waits for nothing");
    program.assert_in_order();
}
