//! Several streams: what one of them has finished is everyone's.

mod support;

use poolscope_gpu::Stats;
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
