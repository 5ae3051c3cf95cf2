//! How long a new ring may be.
//!
//! Nobody knows how many threads a program will have when its recording begins. Rings of 2 MiB for 1,500 of them are 3
//! GiB, and a container's `/dev/shm` has 64 MiB unless somebody said otherwise: the first thirty threads would have it
//! all. So each ring takes a small part of what is left, of the folder's room and of a budget. The first threads of a
//! program get what the recorder asks for, the later ones less and less. One that has little is waited for more often,
//! or loses more, where the recorder wants no waiting.

/// Bytes of all rings together, more or less; twice what `PARTS` rings of full length take, if that is more.
const BUDGET: u64 = 256 << 20;
/// What part of the bytes that are left a ring may have: one in so many. So many rings have full length.
const PARTS: u64 = 32;
/// Bytes of the shortest ring, however many there are.
const LEAST: u64 = 64 << 10;
/// The same where the folder is nearly full.
const LEAST_WITHOUT_ROOM: u64 = 16 << 10;

/// Bytes of the next ring, a power of two: `asked`, or less where the rings before it have `taken` so many, or where
/// the folder has room for `free` bytes.
pub fn next_ring(asked: u64, taken: u64, free: u64) -> u64 {
    let budget = BUDGET.max(2 * PARTS * asked).saturating_sub(taken);
    let part = (budget / PARTS).max(LEAST).min((free / PARTS).max(LEAST_WITHOUT_ROOM));
    asked.min(1 << part.ilog2())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// The rings that so many threads get one after the other, until there is no room.
    fn rings(asked: u64, threads: usize, room: u64) -> Vec<u64> {
        let (mut taken, mut rings) = (0, Vec::new());
        while rings.len() < threads {
            let ring = next_ring(asked, taken, room - taken);
            if taken + ring > room {
                break;
            }
            taken += ring;
            rings.push(ring);
        }
        rings
    }

    #[test]
    fn a_program_of_few_threads_gets_what_is_asked_for() {
        for asked in [64 << 10, 2 * MIB, 256 * MIB] {
            assert_eq!(rings(asked, 32, 1 << 40), [asked; 32]);
        }
    }

    #[test]
    fn a_program_of_many_threads_takes_hardly_more_than_the_budget() {
        let all = rings(2 * MIB, 8000, 1 << 40);
        assert_eq!(all.len(), 8000);
        assert!(all.is_sorted_by(|before, after| before >= after) && all[90] == 2 * MIB && all[300] == LEAST);
        let sum = |threads: usize| all[..threads].iter().sum::<u64>();
        assert!(sum(1500) < 350 * MIB && sum(8000) < 760 * MIB, "{} and {}", sum(1500), sum(8000));
    }

    #[test]
    fn a_folder_of_64_mib_has_room_for_two_hundred_threads() {
        assert!(rings(2 * MIB, 8000, 64 * MIB).len() > 200);
        assert!(rings(64 << 10, 8000, 64 * MIB).len() > 1000);
    }

    #[test]
    fn whatever_there_is_a_ring_is_a_power_of_two_and_not_longer_than_asked() {
        for asked in (16..=28).map(|log2| 1 << log2) {
            for taken in [0, MIB, 255 * MIB, 256 * MIB, u64::MAX] {
                for free in [0, 1, LEAST, MIB, 64 * MIB, u64::MAX] {
                    let ring = next_ring(asked, taken, free);
                    assert!(ring.is_power_of_two() && ring <= asked && ring >= LEAST_WITHOUT_ROOM);
                }
            }
        }
    }
}
