//! A list of slabs, linked through the slabs themselves.

use core::cell::Cell;

use crate::layout::slab::Slab;

/// A doubly linked list of slabs; the caller owns them all.
pub struct SlabList {
    first: Cell<Option<&'static Slab>>,
    last: Cell<Option<&'static Slab>>,
}

impl SlabList {
    /// An empty list.
    pub const fn new() -> Self {
        SlabList { first: Cell::new(None), last: Cell::new(None) }
    }

    /// The slab that has waited longest.
    pub fn first(&self) -> Option<&'static Slab> {
        self.first.get()
    }

    /// Adds a slab at the end.
    pub fn push_back(&self, slab: &'static Slab) {
        slab.next.set(None);
        slab.prev.set(self.last.get());
        match self.last.get() {
            Some(last) => last.next.set(Some(slab)),
            None => self.first.set(Some(slab)),
        }
        self.last.set(Some(slab));
    }

    /// Adds a slab at the start.
    pub fn push_front(&self, slab: &'static Slab) {
        slab.prev.set(None);
        slab.next.set(self.first.get());
        match self.first.get() {
            Some(first) => first.prev.set(Some(slab)),
            None => self.last.set(Some(slab)),
        }
        self.first.set(Some(slab));
    }

    /// Takes a slab out of the list.
    pub fn remove(&self, slab: &'static Slab) {
        match slab.prev.get() {
            Some(prev) => prev.next.set(slab.next.get()),
            None => self.first.set(slab.next.get()),
        }
        match slab.next.get() {
            Some(next) => next.prev.set(slab.prev.get()),
            None => self.last.set(slab.prev.get()),
        }
        slab.next.set(None);
        slab.prev.set(None);
    }

    /// The slabs, the one that has waited longest first.
    pub fn iter(&self) -> impl Iterator<Item = &'static Slab> {
        core::iter::successors(self.first.get(), |slab| slab.next.get())
    }

    /// Takes the first slab out.
    pub fn pop_front(&self) -> Option<&'static Slab> {
        let slab = self.first.get()?;
        self.remove(slab);
        Some(slab)
    }
}
