//! The lanes of the page heap: one, or one for each NUMA node. Those behind the first have memory of their own, which
//! is only mapped where there are such: 4 KiB each, which would count as the program's on every machine.

use core::ops::{Index, IndexMut};
use core::ptr::null_mut;

use super::free_spans::FreeSpans;
use crate::kernel::os;
use crate::pages::frontier::Frontier;

/// What memory of one node is made of, or all of it.
pub struct Lane {
    pub free: FreeSpans,
    pub frontier: Frontier,
}

impl Lane {
    const fn new() -> Self {
        Lane { free: FreeSpans::new(), frontier: Frontier::new() }
    }
}

/// The lanes. There is always a first one.
pub struct Lanes {
    first: Lane,
    others: *mut Lane,
    other_count: usize,
}

impl Lanes {
    /// One.
    pub const fn new() -> Self {
        Lanes { first: Lane::new(), others: null_mut(), other_count: 0 }
    }

    /// Makes it so many, once. False without memory: then it is one.
    pub fn make(&mut self, lanes: usize) -> bool {
        let others = lanes - 1;
        if others == 0 {
            return true;
        }
        let memory: *mut Lane = os::map(others * size_of::<Lane>()).cast();
        if memory.is_null() {
            return false;
        }
        for at in 0..others {
            // SAFETY: the mapping has room for so many, is aligned to a page, and nobody else's. It stays for good.
            unsafe { memory.add(at).write(Lane::new()) };
        }
        (self.others, self.other_count) = (memory, others);
        true
    }

    fn others(&self) -> &[Lane] {
        // SAFETY: `make` wrote so many.
        if self.other_count == 0 { &[] } else { unsafe { core::slice::from_raw_parts(self.others, self.other_count) } }
    }

    fn others_mut(&mut self) -> &mut [Lane] {
        if self.other_count == 0 {
            return &mut [];
        }
        // SAFETY: as above.
        unsafe { core::slice::from_raw_parts_mut(self.others, self.other_count) }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Lane> {
        core::iter::once(&self.first).chain(self.others())
    }

    /// All of them, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Lane> {
        let first: *mut Lane = &raw mut self.first;
        // SAFETY: the first one is apart from the others, and both are borrowed as long as `self`.
        core::iter::once(unsafe { &mut *first }).chain(self.others_mut())
    }
}

/// What has a number that no lane has is the first one's.
impl Index<usize> for Lanes {
    type Output = Lane;

    fn index(&self, at: usize) -> &Lane {
        at.checked_sub(1).and_then(|at| self.others().get(at)).unwrap_or(&self.first)
    }
}

impl IndexMut<usize> for Lanes {
    fn index_mut(&mut self, at: usize) -> &mut Lane {
        match at.checked_sub(1).filter(|at| *at < self.other_count) {
            // SAFETY: `make` wrote so many.
            Some(at) => unsafe { &mut *self.others.add(at) },
            None => &mut self.first,
        }
    }
}
