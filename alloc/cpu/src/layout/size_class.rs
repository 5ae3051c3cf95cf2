//! Size classes: which block serves a request.
//!
//! Multiples of 16 bytes up to 1024, so that the fast path finds a class by one shift; above, eight classes for
//! each doubling up to 256 KiB, so that at most 12.5% of a block is wasted. Blocks of a class lie at multiples of
//! its size from the start of a slab, which begins on a page of the arena: a block whose size is a multiple of an
//! alignment has that alignment.

use crate::layout::arena::ARENA_PAGE;

/// The largest request that the fast path serves.
pub const SMALL_MAX: usize = 1024;
/// The largest request that comes from a slab; larger ones have a span of their own.
pub const MEDIUM_MAX: usize = 256 * 1024;
/// Classes of at most [`SMALL_MAX`] bytes: the first ones.
pub const SMALL_CLASSES: usize = SMALL_MAX / 16 + 1;
/// The most blocks that a slab has.
pub const CAPACITY_MAX: usize = ARENA_PAGE / 16;
/// Number of size classes.
pub const CLASSES: usize = SMALL_CLASSES + 8 * 8;

/// Index of a size class.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SizeClass(pub u8);

/// A class's row in the table.
#[derive(Clone, Copy)]
pub struct ClassInfo {
    /// Bytes of each block.
    pub block: u32,
    /// Pages of each slab.
    pub slab_pages: u32,
    /// Blocks in each slab.
    pub capacity: u32,
}

/// The table of classes.
pub static TABLE: [ClassInfo; CLASSES] = build_table();

const fn block_of(class: usize) -> usize {
    if class == 0 {
        16
    } else if class < SMALL_CLASSES {
        class * 16
    } else {
        let above = class - SMALL_CLASSES;
        let base = SMALL_MAX << (above / 8);
        base + base / 8 * (above % 8 + 1)
    }
}

/// Blocks that a slab of medium ones has at least, and the part of it that may be left over at its end. One block keeps
/// all of a slab, and of long blocks a program has few of each size: the longest lie alone.
const fn medium_slab(block: usize) -> (usize, usize) {
    match block >> 10 {
        64.. => (1, 8),
        16.. => (2, 8),
        _ => (4, 16),
    }
}

/// Pages for a slab: one for small blocks, of which `free` finds the slab by its page; for others see [`medium_slab`].
///
/// A slab is as small as its refills allow: one block keeps all of it, whatever sizes the program goes on to.
const fn slab_pages(block: usize) -> usize {
    if block <= SMALL_MAX {
        return 1;
    }
    let (blocks, rest) = medium_slab(block);
    let mut pages = (block * blocks).div_ceil(ARENA_PAGE);
    while (pages * ARENA_PAGE) % block > pages * ARENA_PAGE / rest {
        pages += 1;
    }
    pages
}

pub const fn build_table() -> [ClassInfo; CLASSES] {
    let mut table = [ClassInfo { block: 0, slab_pages: 0, capacity: 0 }; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        let block = block_of(class);
        let pages = slab_pages(block);
        table[class] =
            ClassInfo { block: block as u32, slab_pages: pages as u32, capacity: (pages * ARENA_PAGE / block) as u32 };
        class += 1;
    }
    table
}

/// For each class 2^64 divided by the bytes of a block, rounded up: what tells their multiples by one multiplication
/// (Lemire, Kaser and Kurz, "Faster remainder by direct computation", 2019).
static STEPS: [u64; CLASSES] = build_steps();

const fn build_steps() -> [u64; CLASSES] {
    let mut steps = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        steps[class] = u64::MAX / block_of(class) as u64 + 1;
        class += 1;
    }
    steps
}

impl SizeClass {
    /// The class of a request of at most [`SMALL_MAX`] bytes.
    #[inline(always)]
    pub fn of_small(size: usize) -> Self {
        SizeClass(((size + 15) >> 4) as u8)
    }

    /// The class of a request of at most [`MEDIUM_MAX`] bytes.
    #[inline(always)]
    pub fn of(size: usize) -> Self {
        if size <= SMALL_MAX { Self::of_small(size) } else { Self::of_medium(size) }
    }

    /// The class of a request of more than [`SMALL_MAX`] and at most [`MEDIUM_MAX`] bytes.
    #[inline(always)]
    pub fn of_medium(size: usize) -> Self {
        let last = size - 1;
        let log = last.ilog2() as usize;
        // The leading bit and the three behind it: 8 to 15.
        let eighths = last >> (log - 3);
        SizeClass((log * 8 + eighths + SMALL_CLASSES - 88) as u8)
    }

    /// The smallest class that holds `size` bytes at a multiple of `align`, a power of two;
    /// `None` if that needs a span.
    #[inline]
    pub fn of_aligned(size: usize, align: usize) -> Option<Self> {
        if size > MEDIUM_MAX || align > ARENA_PAGE {
            return None;
        }
        let rounded = (size.max(1) + (align - 1)) & !(align - 1);
        if rounded <= SMALL_MAX {
            // Its class is of exactly that size, or of 16.
            return Some(Self::of_small(rounded));
        }
        if rounded > MEDIUM_MAX {
            return None;
        }
        let mut class = Self::of_medium(rounded);
        while class.block() & (align - 1) != 0 {
            if class.index() + 1 == CLASSES {
                return None;
            }
            class.0 += 1;
        }
        Some(class)
    }

    /// All classes, the smallest first.
    pub fn all() -> impl Iterator<Item = SizeClass> {
        (0..CLASSES).map(|index| SizeClass(index as u8))
    }

    /// Whether freed blocks of this class go to the heap's stack, not to their slab's list.
    #[inline(always)]
    pub fn is_medium(self) -> bool {
        self.index() >= SMALL_CLASSES
    }

    /// Whether a block's memory is worth more than the time of a slow call: 16 KiB and more.
    #[inline]
    pub fn is_long(self) -> bool {
        self.block() >= 16 << 10
    }

    /// Index into tables of [`CLASSES`] rows.
    #[inline(always)]
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The row of the table.
    #[inline(always)]
    pub fn info(self) -> &'static ClassInfo {
        // SAFETY: a SizeClass is only made by the functions above (at most CLASSES - 1) or copied from a slab's
        // descriptor, which was filled from one.
        unsafe { TABLE.get_unchecked(self.index()) }
    }

    /// Bytes of each block.
    #[inline(always)]
    pub fn block(self) -> usize {
        self.info().block as usize
    }

    /// Whether a block begins so many bytes behind the start of a slab, at least if the slab were long enough. A slab
    /// is shorter than 4 GiB.
    #[inline(always)]
    pub fn begins_at(self, offset: u32) -> bool {
        // SAFETY: as in `info`.
        let step = unsafe { *STEPS.get_unchecked(self.index()) };
        u64::from(offset).wrapping_mul(step) < step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_the_smallest_class_that_holds_it() {
        for size in 1..=MEDIUM_MAX {
            let class = SizeClass::of(size);
            assert!(class.block() >= size, "{size}");
            if class.index() > 1 {
                assert!(SizeClass(class.0 - 1).block() < size, "{size}");
            }
        }
    }

    #[test]
    fn blocks_begin_at_multiples_of_their_size() {
        for class in SizeClass::all() {
            let block = class.block() as u32;
            for multiple in (0..=2000).chain([u32::MAX / block]).map(|blocks| blocks.min(u32::MAX / block) * block) {
                assert!(class.begins_at(multiple), "{multiple} of {block}");
                for inside in [1, 8, 15, block / 2, block - 1] {
                    let offset = multiple.saturating_add(inside);
                    assert_eq!(class.begins_at(offset), offset % block == 0, "{offset} of {block}");
                }
            }
        }
    }

    #[test]
    fn at_most_an_eighth_is_wasted_above_128_bytes() {
        for size in 129..=MEDIUM_MAX {
            let block = SizeClass::of(size).block();
            assert!((block - size) * 8 <= block, "{size} in {block}");
        }
    }

    #[test]
    fn a_slab_holds_enough_blocks_and_wastes_little() {
        for info in &TABLE {
            let bytes = info.slab_pages as usize * ARENA_PAGE;
            let (least, rest) =
                if info.block <= 1024 { (ARENA_PAGE / 1024, 16) } else { medium_slab(info.block as usize) };
            assert!(info.capacity as usize >= least);
            // `free` finds the slab of a small block by its page alone.
            assert!(info.block > 1024 || info.slab_pages == 1);
            assert!(info.capacity <= CAPACITY_MAX as u32 && info.capacity as usize * info.block as usize <= bytes);
            assert!(bytes - info.capacity as usize * info.block as usize <= bytes / rest);
        }
    }

    #[test]
    fn aligned_requests_get_aligned_blocks() {
        for shift in 0..=16 {
            let align = 1 << shift;
            for size in (0..MEDIUM_MAX).step_by(37) {
                if let Some(class) = SizeClass::of_aligned(size, align) {
                    assert!(class.block() >= size && class.block() % align == 0);
                }
            }
        }
    }
}
