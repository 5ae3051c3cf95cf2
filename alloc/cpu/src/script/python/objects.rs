//! CPython's objects: code, strings and bytes, read where they lie.

use poolscope_wire::script::{FILE_MAX, Head, NAME_MAX, TABLE_MAX};

use super::layout::Layout;
use crate::script::Identity;
use crate::script::words::{Bytes, byte_at, half_at, word_at};

/// Behind the head of an object with a length: the size of its objects in a type (`tp_basicsize`), the bytes of a bytes
/// object, and what a string is made of, bits of a word.
const BASIC_SIZE: usize = 16;
const BYTES: usize = 16;
const STRING_STATE: usize = 16;

/// The type of an object.
///
/// # Safety
/// It is one, or a type of whatever version.
pub unsafe fn type_of(object: usize, layout: &Layout) -> usize {
    // SAFETY: the caller's promise. Types are longer than every version's head.
    unsafe { word_at(object + layout.head - size_of::<usize>()) }
}

/// What a type states as the size of its objects.
///
/// # Safety
/// It is a type, of whatever version.
pub unsafe fn size_of_objects(of_type: usize, layout: &Layout) -> usize {
    // SAFETY: the caller's promise.
    unsafe { word_at(of_type + layout.head + BASIC_SIZE) }
}

/// Whether an address is that of an object of a type.
///
/// # Safety
/// It is an object's, or none at all.
pub unsafe fn is_a(object: usize, of_type: usize, layout: &Layout) -> bool {
    // SAFETY: the caller's promise.
    object != 0 && object.is_multiple_of(align_of::<usize>()) && unsafe { type_of(object, layout) } == of_type
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
            let table = table + self.layout.head;
            let len = word_at(table).min(TABLE_MAX);
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
        // SAFETY: the caller's promise. The state has the bytes of a character in three bits, then whether the characters
        // follow, and whether all are ASCII.
        let (len, state) = unsafe { (word_at(string + layout.head), word_at(string + layout.head + STRING_STATE)) };
        let state = state >> layout.width;
        let (width, is_compact, is_ascii) = (state & 7, state >> 3 & 1 != 0, state >> 4 & 1 != 0);
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

    /// An object of a version's: its head, and words behind it.
    fn object(layout: &Layout, words: &[u64]) -> Vec<u64> {
        [&vec![1; layout.head / 8], words].concat()
    }

    fn packed(bytes: &[u8]) -> Vec<u64> {
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        bytes.chunks(8).map(word).collect()
    }

    fn string(layout: &Layout, len: u64, width: u64, is_ascii: bool, characters: &[u8]) -> Vec<u64> {
        let state = (width | 1 << 3 | u64::from(is_ascii) << 4) << layout.width;
        let before = if is_ascii { vec![] } else { vec![0, 0] };
        object(layout, &[&[len, 0, state], &before[..], &packed(characters)].concat())
    }

    #[test]
    fn a_code_object_is_described_in_words_whatever_characters_its_names_have() {
        let free_threaded = of_version(14).last().expect("is known");
        for layout in of_version(12).chain([free_threaded]) {
            is_described_in_words(layout);
        }
    }

    fn is_described_in_words(layout: &'static Layout) {
        let string = |len, width, is_ascii, characters: &[u8]| string(layout, len, width, is_ascii, characters);
        let ascii = string(3, 1, true, b"run");
        let latin = string(4, 1, false, b"caf\xe9");
        let wide = string(2, 2, false, &[0x2b, 0x8a, 0x9e, 0x8a]);
        let widest = string(2, 4, false, &[0x0d, 0xf4, 1, 0, b'!', 0, 0, 0]);
        let table = object(layout, &[&[9, 0], &packed(b"\x80\x01linetab")[..]].concat());
        for (name, said) in [(&ascii, "run"), (&latin, "café"), (&wide, "訫語"), (&widest, "🐍!")] {
            let mut code = object(layout, &[0; 24]);
            let own = layout.head / 8;
            code[own + 12] = ascii.as_ptr() as u64;
            code[own + 14] = name.as_ptr() as u64;
            code[own + 15] = table.as_ptr() as u64;
            code[own + 6] = 41 << 32;
            let code = Code { address: code.as_ptr() as usize, layout };
            let mut words = [u64::MAX; 64];
            let len = code.describe(&mut words);
            let function = Function::of_words(&words[..len]).expect("is one");
            assert_eq!(String::from_utf8(function.name().collect()).as_deref(), Ok(said));
            assert!(function.file().eq(*b"run") && function.table().eq(*b"\x80\x01linetab"));
            assert_eq!(function.head.first_line, 41);
        }
    }
}
