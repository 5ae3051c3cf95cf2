//! CPython's objects: code, strings and bytes, read where they lie.

use poolscope_wire::script::{FILE_MAX, Head, NAME_MAX, TABLE_MAX};

use super::layout::Layout;
use crate::script::Identity;
use crate::script::words::{Bytes, byte_at, half_at, word_at};

/// Bytes of an object before what is its own: the count of references, and its type behind it.
const TYPE: usize = 8;
/// Of one with a length.
const LENGTH: usize = 16;
/// The size of its objects, in a type (`tp_basicsize`).
const BASIC_SIZE: usize = 32;
/// The bytes of a bytes object.
const BYTES: usize = 32;
/// What a string is made of: bits of a word.
const STRING_STATE: usize = 32;

/// The type of an object.
///
/// # Safety
/// It is one.
pub unsafe fn type_of(object: usize) -> usize {
    // SAFETY: the caller's promise.
    unsafe { word_at(object + TYPE) }
}

/// What a type states as the size of its objects.
///
/// # Safety
/// It is a type.
pub unsafe fn size_of_objects(of_type: usize) -> usize {
    // SAFETY: the caller's promise.
    unsafe { word_at(of_type + BASIC_SIZE) }
}

/// Whether an address is that of an object of a type.
///
/// # Safety
/// It is an object's, or none at all.
pub unsafe fn is_a(object: usize, of_type: usize) -> bool {
    // SAFETY: the caller's promise.
    object != 0 && object.is_multiple_of(align_of::<usize>()) && unsafe { type_of(object) } == of_type
}

/// A function's code object, which is there as long as somebody runs it.
#[derive(Clone, Copy)]
pub struct Code {
    pub(super) address: usize,
    pub(super) layout: &'static Layout,
}

impl Code {
    /// What it is known by.
    pub fn identity(&self) -> Identity {
        let Layout { name, table, first_line, .. } = *self.layout;
        // SAFETY: a code object that runs, of the layout's version.
        unsafe {
            Identity {
                address: self.address,
                name: word_at(self.address + name),
                table: word_at(self.address + table),
                first_line: half_at(self.address + first_line),
            }
        }
    }

    /// Writes its words ([`poolscope_wire::script`]), and says how many they are.
    pub fn describe(&self, into: &mut [u64]) -> usize {
        let Identity { name, table, first_line, .. } = self.identity();
        let Some((head, rest)) = into.split_first_chunk_mut::<2>() else { return 0 };
        let mut bytes = Bytes::new(rest);
        // SAFETY: objects of a code object that runs: two strings, and bytes.
        let lens = unsafe {
            let name = bytes.push_string(name, NAME_MAX, self.layout);
            let file = bytes.push_string(word_at(self.address + self.layout.file), FILE_MAX, self.layout);
            let len = word_at(table + LENGTH).min(TABLE_MAX);
            (0..len).for_each(|at| bytes.push(byte_at(table + BYTES + at)));
            [name as u16, file as u16, len as u16]
        };
        let words = Head { first_line, lines: self.layout.lines, lens };
        *head = words.words();
        head.len() + words.bytes().div_ceil(8)
    }
}

impl Bytes<'_> {
    /// A string of CPython's in UTF-8, cut to so many bytes. Returns how many they are.
    ///
    /// # Safety
    /// It is a string of this version's.
    unsafe fn push_string(&mut self, string: usize, most: usize, layout: &Layout) -> usize {
        let before = self.len();
        // SAFETY: the caller's promise. The state has the bytes of a character in its third bit and the two behind
        // it, then whether the characters follow, and whether all are ASCII.
        let (len, state) = unsafe { (word_at(string + LENGTH), word_at(string + STRING_STATE)) };
        let (width, is_compact, is_ascii) = (state >> 2 & 7, state >> 5 & 1 != 0, state >> 6 & 1 != 0);
        if !is_compact {
            return 0;
        }
        let characters = string + layout.characters[usize::from(!is_ascii)];
        for at in 0..len {
            // SAFETY: as above.
            let byte = |byte: usize| unsafe { byte_at(characters + at * width + byte) };
            let unit = (0..width).rev().fold(0, |unit, at| unit << 8 | u32::from(byte(at)));
            let mut utf8 = [0; 4];
            let utf8 = char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER).encode_utf8(&mut utf8);
            if self.len() - before + utf8.len() > most {
                break;
            }
            utf8.bytes().for_each(|byte| self.push(byte));
        }
        self.len() - before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::python::layout::of_version;
    use poolscope_wire::script::Function;

    /// An object of CPython 3.12's: references, type, and words behind them.
    fn object(words: &[u64]) -> Vec<u64> {
        [&[1, 0], words].concat()
    }

    fn packed(bytes: &[u8]) -> Vec<u64> {
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        bytes.chunks(8).map(word).collect()
    }

    fn string(len: u64, width: u64, is_ascii: bool, characters: &[u8]) -> Vec<u64> {
        let state = width << 2 | 1 << 5 | u64::from(is_ascii) << 6;
        let before = if is_ascii { vec![] } else { vec![0, 0] };
        object(&[&[len, 0, state], &before[..], &packed(characters)].concat())
    }

    #[test]
    fn a_code_object_is_described_in_words_whatever_characters_its_names_have() {
        let ascii = string(3, 1, true, b"run");
        let latin = string(4, 1, false, b"caf\xe9");
        let wide = string(2, 2, false, &[0x2b, 0x8a, 0x9e, 0x8a]);
        let widest = string(2, 4, false, &[0x0d, 0xf4, 1, 0, b'!', 0, 0, 0]);
        let table = object(&[&[9, 0], &packed(b"\x80\x01linetab")[..]].concat());
        for (name, said) in [(&ascii, "run"), (&latin, "café"), (&wide, "訫語"), (&widest, "🐍!")] {
            let mut code = object(&[0; 24]);
            code[112 / 8] = ascii.as_ptr() as u64;
            code[128 / 8] = name.as_ptr() as u64;
            code[136 / 8] = table.as_ptr() as u64;
            code[64 / 8] = 41 << 32;
            let code = Code { address: code.as_ptr() as usize, layout: of_version(12).expect("is known") };
            let mut words = [u64::MAX; 64];
            let len = code.describe(&mut words);
            let function = Function::of_words(&words[..len]).expect("is one");
            assert_eq!(String::from_utf8(function.name().collect()).as_deref(), Ok(said));
            assert!(function.file().eq(*b"run") && function.table().eq(*b"\x80\x01linetab"));
            assert_eq!(function.head.first_line, 41);
        }
    }
}
