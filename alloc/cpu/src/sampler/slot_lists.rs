//! For each slab of sampled blocks a list of slots: where in the live table its blocks are recorded.
//!
//! A slab's blocks have no room for it, and its descriptor neither. Lists of a class are of one length, and cut from
//! chunks. Where idle memory goes back, a chunk of which no list is in use has its memory taken away, and stays.

use core::cell::Cell;
use core::ptr::{null, null_mut};

use crate::kernel::os;
use crate::layout::size_class::{CLASSES, SizeClass};
use crate::segment::counters::{self, TierCounter};

/// Bytes of a chunk. The first one of a class has room for one list, and shares its pages with those of other classes:
/// most programs have few samples, each of another class, and some have a limit of data.
const CHUNK: usize = 64 * 1024;
/// Bytes that first chunks are cut from. Those of more than a page have a mapping of their own.
const SHARED: usize = 16 * 1024;
const KERNEL_PAGE: usize = 4096;

/// The start of a chunk.
struct Chunk {
    /// In a list of those with room.
    next: Cell<*const Chunk>,
    prev: Cell<*const Chunk>,
    /// Lists that were used before, linked through their first words.
    unused: Cell<*mut usize>,
    bytes: Cell<usize>,
    /// Lists that were cut, and those of them that are in use.
    cut: Cell<usize>,
    used: Cell<usize>,
}

/// Bytes of a list with the word before it, which says of which chunk it is.
fn bytes_of(class: SizeClass) -> usize {
    size_of::<usize>() + (class.info().capacity as usize * size_of::<u32>()).next_multiple_of(size_of::<usize>())
}

impl Chunk {
    fn map(bytes: usize) -> Option<&'static Chunk> {
        Self::at(os::map(bytes), bytes)
    }

    /// A chunk in zeroed memory that is never unmapped, or null.
    fn at(memory: *mut u8, bytes: usize) -> Option<&'static Chunk> {
        // SAFETY: zeroed memory is a chunk, and the caller says that it stays.
        let chunk = unsafe { memory.cast::<Chunk>().as_ref() }?;
        chunk.bytes.set(bytes);
        Some(chunk)
    }

    /// Lists that it has room for.
    fn room(&self, class: SizeClass) -> usize {
        (self.bytes.get() - size_of::<Chunk>()) / bytes_of(class)
    }

    fn take(&'static self, class: SizeClass) -> *mut u32 {
        self.used.set(self.used.get() + 1);
        let unused = self.unused.get();
        if !unused.is_null() {
            // SAFETY: `give` left the next one there.
            self.unused.set(unsafe { unused.read() } as *mut usize);
            return unused.cast();
        }
        let at = size_of::<Chunk>() + self.cut.get() * bytes_of(class);
        self.cut.set(self.cut.get() + 1);
        // SAFETY: the caller asks chunks with room only; the list and its word lie in this one.
        unsafe {
            let word = (&raw const *self).cast_mut().cast::<u8>().add(at).cast::<*const Chunk>();
            word.write(self);
            word.add(1).cast()
        }
    }

    fn give(&self, list: *mut u32) {
        let list = list.cast::<usize>();
        // SAFETY: a list has room for a pointer at least, see `bytes_of`, and nobody reads this one any more.
        unsafe { list.write(self.unused.get() as usize) };
        self.unused.set(list);
        self.used.set(self.used.get() - 1);
    }

    /// Takes the memory of a chunk of which no list is in use.
    fn release(&self) {
        if self.cut.replace(0) == 0 {
            return;
        }
        self.unused.set(null_mut());
        let start = (&raw const *self).cast_mut().cast::<u8>();
        if self.bytes.get() > KERNEL_PAGE {
            // SAFETY: such a chunk has a mapping of its own, and behind the first page there are lists alone, of which
            // none is in use. Were the kernel to refuse, they would only stay.
            let _ = unsafe { os::decommit(start.add(KERNEL_PAGE), self.bytes.get() - KERNEL_PAGE) };
        }
    }
}

/// The chunks. Guarded by the sampler's lock.
pub struct SlotLists {
    of_classes: [OfClass; CLASSES],
    /// What is left of the pages that first chunks are cut from: where, and how much.
    shared: Cell<(*mut u8, usize)>,
}

/// The chunks of a class that have room.
struct OfClass {
    /// Some of their lists are in use.
    partial: Cell<*const Chunk>,
    /// None is; linked by `next`.
    empty: Cell<*const Chunk>,
    /// It had a chunk.
    began: Cell<bool>,
}

impl OfClass {
    const fn new() -> Self {
        OfClass { partial: Cell::new(null()), empty: Cell::new(null()), began: Cell::new(false) }
    }

    fn link(&self, chunk: &'static Chunk) {
        chunk.next.set(self.partial.replace(chunk));
        chunk.prev.set(null());
        // SAFETY: chunks are never unmapped.
        if let Some(next) = unsafe { chunk.next.get().as_ref() } {
            next.prev.set(chunk);
        }
    }

    fn unlink(&self, chunk: &'static Chunk) {
        // SAFETY: as above.
        let (prev, next) = unsafe { (chunk.prev.get().as_ref(), chunk.next.get().as_ref()) };
        prev.map_or(&self.partial, |prev| &prev.next).set(chunk.next.get());
        if let Some(next) = next {
            next.prev.set(chunk.prev.get());
        }
    }

    /// A chunk with room, in the list of partial ones. The class's first one is `first`'s to make.
    fn chunk(&self, first: impl FnOnce() -> Option<&'static Chunk>) -> Option<&'static Chunk> {
        // SAFETY: as above.
        let (partial, empty) = unsafe { (self.partial.get().as_ref(), self.empty.get().as_ref()) };
        if partial.is_some() {
            return partial;
        }
        let chunk = match empty {
            Some(chunk) => {
                self.empty.set(chunk.next.get());
                chunk
            }
            None if self.began.replace(true) => Chunk::map(CHUNK)?,
            None => first()?,
        };
        self.link(chunk);
        Some(chunk)
    }
}

impl SlotLists {
    /// None yet.
    pub const fn new() -> Self {
        SlotLists { of_classes: [const { OfClass::new() }; CLASSES], shared: Cell::new((null_mut(), 0)) }
    }

    /// The first chunk of a class.
    fn first(&self, class: SizeClass) -> Option<&'static Chunk> {
        let bytes = size_of::<Chunk>() + bytes_of(class);
        if bytes > KERNEL_PAGE {
            return Chunk::map(bytes.next_multiple_of(KERNEL_PAGE));
        }
        let (mut at, mut left) = self.shared.get();
        if left < bytes {
            (at, left) = (os::map(SHARED), SHARED);
            if at.is_null() {
                return None;
            }
        }
        self.shared.set((at.wrapping_add(bytes), left - bytes));
        Chunk::at(at, bytes)
    }

    /// A list for a slab of `class`; `None` without memory.
    pub fn take(&self, class: SizeClass) -> Option<*mut u32> {
        let chunks = &self.of_classes[class.index()];
        let chunk = chunks.chunk(|| self.first(class))?;
        let list = chunk.take(class);
        if chunk.used.get() == chunk.room(class) {
            chunks.unlink(chunk);
        }
        counters::add(TierCounter::MetadataBytes, bytes_of(class) as u64);
        Some(list)
    }

    /// Takes a list back.
    pub fn give(&self, class: SizeClass, list: *mut u32) {
        let chunks = &self.of_classes[class.index()];
        // SAFETY: the word before a list says of which chunk it is, and chunks are never unmapped.
        let chunk = unsafe { &*list.cast::<*const Chunk>().sub(1).read() };
        if chunk.used.get() == chunk.room(class) {
            chunks.link(chunk);
        }
        chunk.give(list);
        if chunk.used.get() == 0 {
            chunks.unlink(chunk);
            chunk.next.set(chunks.empty.replace(chunk));
        }
        counters::sub(TierCounter::MetadataBytes, bytes_of(class) as u64);
    }

    /// Takes the memory of chunks of which no list is in use.
    pub fn release(&self) {
        for chunks in &self.of_classes {
            // SAFETY: chunks are never unmapped.
            let empty = core::iter::successors(unsafe { chunks.empty.get().as_ref() }, |chunk| unsafe {
                chunk.next.get().as_ref()
            });
            empty.for_each(Chunk::release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::budget::random;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    #[test]
    fn lists_are_apart_and_used_again_whatever_comes_and_goes() {
        let lists = SlotLists::new();
        let (mut state, mut taken) = (7, Vec::<(SizeClass, *mut u32, u32)>::new());
        for round in 0..20_000u32 {
            let grows = round / 4000 % 2 == 0;
            if random(&mut state) % 4 < if grows { 3 } else { 1 } {
                let class = SizeClass([1, 2, 9, 64, 100, 128][random(&mut state) as usize % 6]);
                let list = lists.take(class).expect("there is memory");
                for at in 0..class.info().capacity as usize {
                    // SAFETY: the list has an entry for each block.
                    unsafe { list.add(at).write(round) };
                }
                taken.push((class, list, round));
            } else if !taken.is_empty() {
                let (class, list, was) = taken.swap_remove(random(&mut state) as usize % taken.len());
                for at in 0..class.info().capacity as usize {
                    // SAFETY: as above.
                    assert_eq!(unsafe { list.add(at).read() }, was);
                }
                lists.give(class, list);
            }
        }
        assert!(taken.len() > 100);
    }

    #[test]
    fn chunks_that_emptied_are_used_before_new_ones_are_mapped() {
        let lists = SlotLists::new();
        let class = SizeClass(2);
        let all = || (0..50).map(|_| lists.take(class).expect("there is memory")).collect::<Vec<_>>();
        // SAFETY: the word before a list says of which chunk it is.
        let chunk = |list: &*mut u32| unsafe { list.cast::<*const Chunk>().sub(1).read() };
        let chunks = |lists: &[*mut u32]| lists.iter().map(chunk).collect::<BTreeSet<_>>();
        let first = all();
        let before = chunks(&first);
        first.iter().for_each(|list| lists.give(class, *list));
        assert!(chunks(&all()).is_subset(&before));
    }
}
