//! A bounded reader over a module's memory: its headers, its notes, the index of its unwind tables, its code.

/// A range of readable memory and a place in it. Every method is `None` past the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader {
    at: usize,
    end: usize,
}

impl Reader {
    /// A reader of `start..end`.
    ///
    /// # Safety
    ///
    /// The range can be read for as long as the reader and its copies are used.
    pub(crate) unsafe fn new(start: usize, end: usize) -> Self {
        Self { at: start, end }
    }

    /// The address of the next byte.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Moves over `length` bytes.
    pub(crate) fn skip(&mut self, length: usize) -> Option<()> {
        let next = self.at.checked_add(length).filter(|next| *next <= self.end)?;
        self.at = next;
        Some(())
    }

    /// The next `length` bytes, as a reader of their own.
    pub(crate) fn take(&mut self, length: usize) -> Option<Reader> {
        let at = self.at;
        self.skip(length)?;
        Some(Reader { at, end: self.at })
    }

    fn scalar<T: Copy>(&mut self) -> Option<T> {
        let at = self.at;
        self.skip(size_of::<T>())?;
        // SAFETY: `skip` kept within the range, which `new`'s caller vouched for; only integers are read.
        Some(unsafe { (at as *const T).read_unaligned() })
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.scalar()
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.scalar()
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.scalar()
    }

    pub(crate) fn i32(&mut self) -> Option<i32> {
        self.scalar()
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.scalar()
    }
}
