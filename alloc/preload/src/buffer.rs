//! A C caller's buffer for a text.

use core::ffi::c_char;
use core::fmt::{self, Write};

/// A buffer that takes what fits, and counts what doesn't.
pub struct Buffer {
    bytes: *mut u8,
    size: usize,
    len: usize,
}

impl Buffer {
    /// # Safety
    /// `bytes` has room for `size` bytes as long as the buffer is used; it may be null if `size` is 0.
    pub unsafe fn new(bytes: *mut c_char, size: usize) -> Self {
        Buffer { bytes: bytes.cast(), size, len: 0 }
    }

    /// Ends the text with a zero byte. Returns the bytes that the whole takes, without that one.
    pub fn end(self) -> usize {
        if let Some(last) = self.size.checked_sub(1) {
            // SAFETY: the buffer has `size` bytes.
            unsafe { self.bytes.add(self.len.min(last)).write(0) };
        }
        self.len
    }
}

impl Write for Buffer {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        // One byte stays for the zero.
        let room = self.size.saturating_sub(1).saturating_sub(self.len).min(part.len());
        if room > 0 {
            // SAFETY: `room` bytes from `len` on are the buffer's.
            unsafe { self.bytes.add(self.len).copy_from_nonoverlapping(part.as_ptr(), room) };
        }
        self.len += part.len();
        Ok(())
    }
}
