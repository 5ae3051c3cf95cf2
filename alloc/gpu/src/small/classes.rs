//! The size classes: the powers of two from 256 B to 1 MiB.

use crate::watch::sampling::LARGE;

/// How many there are.
pub const CLASSES: usize = 13;
const _: () = assert!(CLASSES == LARGE, "a thread has a budget of samples for each class, and one for large blocks");
const SMALLEST_LOG: u32 = 8;
/// Bytes of the largest class.
pub const LARGEST: u64 = 1 << (SMALLEST_LOG + CLASSES as u32 - 1);
/// Slabs begin at multiples of this.
pub const PAGE: u64 = 64 << 10;

/// Bytes of the largest blocks that always come from slabs. Longer ones, the medium ones, are placed as large blocks are
/// once there are some slabs of them: a class's size is up to twice what was asked for.
pub const ALWAYS_IN_SLABS: u64 = 64 << 10;

/// Whether the blocks of a class are medium ones.
#[inline]
pub fn is_medium(class: usize) -> bool {
    size_of(class) > ALWAYS_IN_SLABS
}

/// The smallest class whose blocks have so many bytes, at most [`LARGEST`].
pub fn class_of(size: u64) -> usize {
    let log = u64::BITS - size.saturating_sub(1).leading_zeros();
    log.saturating_sub(SMALLEST_LOG) as usize
}

/// Bytes of a class's blocks.
pub const fn size_of(class: usize) -> u64 {
    1 << (SMALLEST_LOG as usize + class)
}

/// Bytes of a class's slabs: a page, or one block. The smaller they are, the more of them are empty.
pub fn slab_size(class: usize) -> u64 {
    size_of(class).max(PAGE)
}

#[cfg(test)]
mod tests {
    use super::{CLASSES, LARGEST, class_of, size_of, slab_size};

    #[test]
    fn every_size_has_the_smallest_class_that_holds_it() {
        for size in (1..=LARGEST).step_by(97).chain([1, 256, 257, 512, 513, LARGEST - 1, LARGEST]) {
            let class = class_of(size);
            assert!(class < CLASSES && size_of(class) >= size, "{size}");
            assert!(class == 0 || size_of(class - 1) < size, "{size}");
        }
        assert_eq!((size_of(0), size_of(CLASSES - 1)), (256, 1 << 20));
    }

    #[test]
    fn slabs_are_whole_blocks() {
        assert!((0..CLASSES).all(|class| slab_size(class).is_multiple_of(size_of(class))));
    }
}
