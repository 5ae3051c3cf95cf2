//! Memory of an interpreter's, read word by word, frames in its code, and the words of a segment that say what was there.

use core::ops::Range;

/// A word of memory.
///
/// # Safety
/// It can be read there.
pub unsafe fn word_at(address: usize) -> usize {
    // SAFETY: the caller's promise. Structures of 3.x have their words where words lie.
    unsafe { (address as *const usize).read_volatile() }
}

/// Half a word.
///
/// # Safety
/// It can be read there.
pub unsafe fn half_at(address: usize) -> u32 {
    // SAFETY: the caller's promise, and as above.
    unsafe { (address as *const u32).read_volatile() }
}

/// A word that is an address, if it is not 0.
///
/// # Safety
/// It can be read there.
pub unsafe fn pointer_at(address: usize) -> Option<usize> {
    // SAFETY: the caller's promise.
    Some(unsafe { word_at(address) }).filter(|pointer| *pointer != 0)
}

/// A byte.
///
/// # Safety
/// It can be read there.
pub unsafe fn byte_at(address: usize) -> u8 {
    // SAFETY: the caller's promise.
    unsafe { (address as *const u8).read_volatile() }
}

/// Bytes in words.
pub struct Bytes<'a> {
    words: &'a mut [u64],
    len: usize,
}

impl<'a> Bytes<'a> {
    /// None yet.
    pub fn new(words: &'a mut [u64]) -> Self {
        Bytes { words, len: 0 }
    }

    /// How many there are, those without room among them.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Adds one, as far as there is room.
    pub fn push(&mut self, byte: u8) {
        if let Some(word) = self.words.get_mut(self.len / 8) {
            let shift = 8 * (self.len % 8);
            // What was there before goes with the word's first byte.
            let kept = if shift == 0 { 0 } else { *word };
            *word = kept | u64::from(byte) << shift;
        }
        self.len += 1;
    }
}

/// Whether a frame is in a range. It is where a call returns to, which may be the first address of what lies behind.
#[inline]
pub fn returns_to(range: &Range<u64>, frame: u64) -> bool {
    frame.wrapping_sub(1 + range.start) < range.end - range.start
}
