//! A list in memory of its own, straight from the kernel: what a search notes while every other thread is stopped.

use crate::kernel::os;

/// A list of at most as many entries as it was made for. Memory is taken as it is filled.
pub struct Table<T: Copy> {
    first: *mut T,
    len: usize,
    capacity: usize,
}

impl<T: Copy> Table<T> {
    /// Room for `capacity` entries. `None` without address space.
    pub fn new(capacity: usize) -> Option<Self> {
        let first = os::map(Self::bytes(capacity)).cast::<T>();
        (!first.is_null()).then_some(Table { first, len: 0, capacity })
    }

    /// A list of `len` entries that are all zero bytes, in memory that a forked child shares.
    ///
    /// # Safety
    /// Zero bytes are a `T`.
    pub unsafe fn shared(len: usize) -> Option<Self> {
        let first = os::map_shared(Self::bytes(len)).cast::<T>();
        (!first.is_null()).then_some(Table { first, len, capacity: len })
    }

    /// A list of `len` entries that are all zero bytes.
    ///
    /// # Safety
    /// Zero bytes are a `T`.
    pub unsafe fn zeroed(len: usize) -> Option<Self> {
        let mut table = Self::new(len)?;
        table.len = len;
        Some(table)
    }

    /// A list that was taken apart.
    ///
    /// # Safety
    /// `first` is that of a list which was made for `capacity` entries, of which `len` are written. Nobody has it.
    pub unsafe fn from_parts(first: *mut T, len: usize, capacity: usize) -> Self {
        Table { first, len, capacity }
    }

    fn bytes(capacity: usize) -> usize {
        (capacity * size_of::<T>()).max(1).next_multiple_of(4096)
    }

    /// Adds an entry. False if there is no room.
    pub fn push(&mut self, entry: T) -> bool {
        if self.len == self.capacity {
            return false;
        }
        // SAFETY: the place lies in the mapping, which is this list's alone.
        unsafe { self.first.add(self.len).write(entry) };
        self.len += 1;
        true
    }

    /// Takes the entry that was added last.
    pub fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: the entry was written.
        Some(unsafe { self.first.add(self.len).read() })
    }

    /// Takes all entries out.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// All entries.
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: so many were written.
        unsafe { core::slice::from_raw_parts(self.first, self.len) }
    }

    /// All entries, to be changed.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as above, and the list is borrowed.
        unsafe { core::slice::from_raw_parts_mut(self.first, self.len) }
    }

    /// Where it lies: the first address and the one behind the last.
    pub fn addresses(&self) -> (usize, usize) {
        (self.first as usize, self.first as usize + Self::bytes(self.capacity))
    }
}

impl<T: Copy> Drop for Table<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is this list's alone.
        unsafe { os::unmap(self.first.cast(), Self::bytes(self.capacity)) };
    }
}
