//! Best fit: the smallest hole that is large enough, whatever was in it before; neighbours that are free are one hole.
//!
//! The C library's allocator places blocks so, about: with a word before each block, all threads in one heap, and large
//! blocks in mappings of their own.

use std::collections::{BTreeMap, BTreeSet};

use super::{PAGE, Policy};

/// Bytes before a block.
const HEADER: usize = 8;
const SMALLEST: usize = 32;
/// From so many bytes on a block has a mapping, at first; the limit follows the mappings that are freed, up to another.
const MAPPED: usize = 128 << 10;
const MAPPED_MOST: usize = 32 << 20;

#[derive(Clone, Copy)]
enum Placed {
    Nowhere,
    Mapped(usize),
    At(usize, usize),
}

/// The heap: addresses from 0 to `top`.
pub(super) struct BestFit {
    blocks: Vec<Placed>,
    by_size: BTreeSet<(usize, usize)>,
    by_address: BTreeMap<usize, usize>,
    top: usize,
    mapped: usize,
    threshold: usize,
}

impl Default for BestFit {
    fn default() -> Self {
        BestFit {
            blocks: Vec::new(),
            by_size: BTreeSet::new(),
            by_address: BTreeMap::new(),
            top: 0,
            mapped: 0,
            threshold: MAPPED,
        }
    }
}

impl BestFit {
    fn add_hole(&mut self, at: usize, bytes: usize) {
        if bytes > 0 {
            self.by_size.insert((bytes, at));
            self.by_address.insert(at, bytes);
        }
    }

    fn take_hole(&mut self, at: usize, bytes: usize) {
        self.by_size.remove(&(bytes, at));
        self.by_address.remove(&at);
    }
}

impl Policy for BestFit {
    fn allocate(&mut self, number: u32, size: usize, _thread: u32) {
        let bytes = (size + HEADER).next_multiple_of(16).max(SMALLEST);
        let placed = if bytes >= self.threshold {
            let pages = bytes.next_multiple_of(PAGE);
            self.mapped += pages;
            Placed::Mapped(pages)
        } else if let Some(&(hole, at)) = self.by_size.range((bytes, 0)..).next() {
            self.take_hole(at, hole);
            // What is too small for a block stays with this one.
            let taken = if hole - bytes < SMALLEST { hole } else { bytes };
            self.add_hole(at + taken, hole - taken);
            Placed::At(at, taken)
        } else {
            self.top += bytes;
            Placed::At(self.top - bytes, bytes)
        };
        let at = number as usize;
        self.blocks.resize(self.blocks.len().max(at + 1), Placed::Nowhere);
        self.blocks[at] = placed;
    }

    fn free(&mut self, number: u32) {
        match std::mem::replace(&mut self.blocks[number as usize], Placed::Nowhere) {
            Placed::Nowhere => {}
            Placed::Mapped(bytes) => {
                self.mapped -= bytes;
                if bytes <= MAPPED_MOST {
                    self.threshold = self.threshold.max(bytes);
                }
            }
            Placed::At(mut at, mut bytes) => {
                if let Some((&before, &hole)) = self.by_address.range(..at).next_back()
                    && before + hole == at
                {
                    self.take_hole(before, hole);
                    (at, bytes) = (before, bytes + hole);
                }
                if let Some(&hole) = self.by_address.get(&(at + bytes)) {
                    self.take_hole(at + bytes, hole);
                    bytes += hole;
                }
                if at + bytes == self.top {
                    self.top = at;
                } else {
                    self.add_hole(at, bytes);
                }
            }
        }
    }

    fn held(&self) -> usize {
        self.top.next_multiple_of(PAGE) + self.mapped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_used_by_any_size_and_grow_together() {
        let mut heap = BestFit::default();
        (0..4).for_each(|number| heap.allocate(number, 1000, 0));
        let top = heap.top;
        heap.free(1);
        heap.free(2);
        assert_eq!(heap.by_address.len(), 1);
        heap.allocate(4, 1900, 0);
        assert_eq!(heap.top, top, "two neighbours make room for one of nearly their size");
        heap.free(3);
        heap.free(4);
        assert!(heap.by_address.is_empty() && heap.top < top / 3);
    }
}
