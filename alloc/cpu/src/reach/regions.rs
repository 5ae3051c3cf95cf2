//! Regions that the program has named as roots: memory that the search does not look at by itself, such as memory that
//! processes share.

use core::sync::atomic::{AtomicUsize, Ordering};

use super::roots::Range;

/// Most regions.
const MAX: usize = 256;

/// The first address, one more than which is taken for a region that is just being named; 0 for a free place. And the
/// address behind the last.
struct Region {
    from: AtomicUsize,
    to: AtomicUsize,
}

/// The first address of a region that is just being named.
const CLAIMED: usize = 1;

static REGIONS: [Region; MAX] = [const { Region { from: AtomicUsize::new(0), to: AtomicUsize::new(0) } }; MAX];

/// Names a region. False if there is no place for it.
pub fn add_root(from: usize, len: usize) -> bool {
    let (from, Some(to)) = (from.max(CLAIMED + 1), from.checked_add(len)) else { return false };
    REGIONS.iter().any(|region| {
        let is_ours = region.from.compare_exchange(0, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if is_ours {
            region.to.store(to, Ordering::Relaxed);
            region.from.store(from, Ordering::Release);
        }
        is_ours
    })
}

/// Takes a region back that was named just so. False if there is none.
pub fn remove_root(from: usize, len: usize) -> bool {
    REGIONS.iter().any(|region| {
        region.to.load(Ordering::Relaxed) == from.wrapping_add(len)
            && region.from.compare_exchange(from, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    })
}

/// Calls `f` with each region.
pub fn for_each(mut f: impl FnMut(Range)) {
    for region in &REGIONS {
        let from = region.from.load(Ordering::Acquire);
        if from > CLAIMED {
            f((from, region.to.load(Ordering::Relaxed)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_there_until_it_is_taken_back() {
        let has = |wanted: Range| {
            let mut found = false;
            for_each(|range| found |= range == wanted);
            found
        };
        assert!(add_root(0x7000, 0x100) && has((0x7000, 0x7100)));
        assert!(!remove_root(0x7000, 0x80), "that is no region");
        assert!(remove_root(0x7000, 0x100) && !has((0x7000, 0x7100)));
        assert!(!remove_root(0x7000, 0x100));
        assert!(!add_root(usize::MAX, 2));
    }
}
