//! Room for the events of a thread.

use poolscope_profiler::words::figures;
use poolscope_wire::trace::RING_BYTES_LOG2;

use crate::args::parse_bytes;

/// Room for the events of a thread, and for those of all that a process has when its recording begins.
const RING: u64 = 2 << 20;
const ALL_RINGS: u64 = 256 << 20;

/// Of the memory that the process's control group may still have, all rings have one part in so many ...
const PARTS_OF_A_GROUP: u64 = 4;
/// ... if there are no more threads than these. A command may have more than it has at its start.
const THREADS_OF_A_GROUP: u64 = 32;

/// Room for the events of each of so many threads, of a process whose control group may have `free` more bytes.
pub(super) fn ring_for(threads: usize, free: Option<u64>) -> u64 {
    let threads = threads.next_power_of_two() as u64;
    let share = ALL_RINGS / threads;
    let part = free.map_or(share, |free| free / PARTS_OF_A_GROUP / threads.max(THREADS_OF_A_GROUP));
    let least = 1 << RING_BYTES_LOG2.start();
    1 << share.min(part).clamp(least, RING).ilog2()
}

pub(super) fn parse_ring(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    let (least, most) = (1u64 << RING_BYTES_LOG2.start(), 1u64 << RING_BYTES_LOG2.end());
    if !bytes.is_power_of_two() || !(least..=most).contains(&bytes) {
        return Err(format!(
            "a power of two between {} and {}",
            figures::bytes(least as f64),
            figures::bytes(most as f64)
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_threads_share_the_room_of_128() {
        let rings = [0, 1, 128, 129, 1000, 8000, 100_000].map(|threads| ring_for(threads, None) >> 10);
        assert_eq!(rings, [2048, 2048, 2048, 1024, 256, 64, 64]);
    }

    #[test]
    fn rings_leave_most_of_a_control_groups_memory_to_the_program() {
        let rings = |threads, free: u64| ring_for(threads, Some(free)) >> 10;
        assert_eq!(
            [u64::MAX, 1 << 30, 256 << 20, 100 << 20, 20 << 20, 0].map(|free| rings(1, free)),
            [2048, 2048, 2048, 512, 128, 64]
        );
        for threads in [1, 16, 100, 500] {
            let all = rings(threads, 200 << 20) * threads as u64;
            assert!(all <= 50 << 10, "{threads} threads take {all} KiB");
        }
    }
}
