//! A bounded reader over a module's memory, for the formats that unwind tables are written in.

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

    /// Whether nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.at >= self.end
    }

    /// The same range, from `address` on.
    pub(crate) fn starting_at(self, start: usize, address: usize) -> Option<Self> {
        (start <= address && address <= self.end).then_some(Self { at: address, end: self.end })
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

    /// An unsigned LEB128 number; bits past the 64th are dropped.
    pub(crate) fn uleb(&mut self) -> Option<u64> {
        let mut value = 0u64;
        let mut shift = 0u32;
        loop {
            let byte = self.u8()?;
            if shift < 64 {
                value |= u64::from(byte & 0x7f) << shift;
            }
            if byte & 0x80 == 0 {
                return Some(value);
            }
            shift = shift.saturating_add(7);
        }
    }

    /// A signed LEB128 number; bits past the 64th are dropped.
    pub(crate) fn sleb(&mut self) -> Option<i64> {
        let mut value = 0i64;
        let mut shift = 0u32;
        loop {
            let byte = self.u8()?;
            if shift < 64 {
                value |= i64::from(byte & 0x7f) << shift;
            }
            shift = shift.saturating_add(7);
            if byte & 0x80 == 0 {
                if byte & 0x40 != 0 && shift < 64 {
                    value |= -1 << shift;
                }
                return Some(value);
            }
        }
    }

    /// A pointer in one of the encodings of `.eh_frame` (`DW_EH_PE_*`, LSB 10.5.1): absolute, relative to itself, or
    /// relative to `data`.
    pub(crate) fn pointer(&mut self, encoding: u8, data: usize) -> Option<usize> {
        let base = match encoding & 0x70 {
            0x00 => 0,
            0x10 => self.at,
            0x30 => data,
            _ => return None,
        };
        // DW_EH_PE_indirect would read the program's memory; nothing that a rule needs is encoded so.
        let value = if encoding & 0x80 == 0 { self.encoded(encoding)? } else { return None };
        Some(base.wrapping_add(value))
    }

    /// The value of an encoded pointer, without its base.
    pub(crate) fn encoded(&mut self, encoding: u8) -> Option<usize> {
        Some(match encoding & 0x0f {
            0x00 | 0x04 | 0x0c => self.u64()? as usize,
            0x01 => self.uleb()? as usize,
            0x02 => usize::from(self.u16()?),
            0x03 => self.u32()? as usize,
            0x09 => self.sleb()? as usize,
            0x0a => self.u16()? as i16 as usize,
            0x0b => self.i32()? as usize,
            _ => return None,
        })
    }
}
