//! Where a module's unwind tables are: `.eh_frame_hdr` is their index, `.eh_frame` holds them (LSB core, 10.6).
//!
//! Only their place is read here. What they say is for framehop and gimli to find out.

use crate::elf::Headers;
use crate::loader::Object;
use crate::reader::Reader;

/// The unwind tables of one module, in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tables {
    /// The readable segment that all of it lies in.
    segment: (usize, usize),
    /// Which nobody is to write to.
    is_constant: bool,
    /// `.eh_frame_hdr`, which the index counts addresses from.
    header: usize,
    /// `.eh_frame`.
    frames: usize,
    /// The index: pairs of signed 32-bit offsets, function and description, sorted.
    index: usize,
    /// Pairs in it.
    count: usize,
}

const INDEX_ENTRY: usize = 8;
/// `DW_EH_PE_pcrel | DW_EH_PE_sdata4`, `DW_EH_PE_udata4` and `DW_EH_PE_datarel | DW_EH_PE_sdata4`: what linkers write.
const FRAMES_ENCODING: u8 = 0x1b;
const COUNT_ENCODING: u8 = 0x03;
const INDEX_ENCODING: u8 = 0x3b;

impl Tables {
    /// The tables of a module that the loader just confirmed.
    pub(crate) fn of(object: &Object, headers: &Headers) -> Option<Self> {
        let (segment, header) = (headers.tables, object.eh_frame_hdr);
        if header < segment.0 {
            return None;
        }
        // SAFETY: the segment is one that the module's headers call readable; the loader confirmed the module.
        let mut reader = unsafe { Reader::new(header, segment.1) };
        let encodings = (reader.u8()?, reader.u8()?, reader.u8()?, reader.u8()?);
        if encodings != (1, FRAMES_ENCODING, COUNT_ENCODING, INDEX_ENCODING) {
            return None;
        }
        let frames = reader.at().wrapping_add(reader.i32()? as usize);
        let count = reader.u32()? as usize;
        let index = reader.at();
        reader.skip(count.checked_mul(INDEX_ENTRY)?)?;
        let is_constant = headers.tables_are_constant;
        (segment.0 <= frames && frames < segment.1).then_some(Self {
            segment,
            is_constant,
            header,
            frames,
            index,
            count,
        })
    }

    /// Function and description number `n`.
    fn entry(&self, n: usize) -> Option<(usize, usize)> {
        let at = self.index.checked_add(n.checked_mul(INDEX_ENTRY)?)?;
        // SAFETY: the segment is readable, see `of`; `at` is not below it, and the reader ends with it.
        let mut reader = unsafe { Reader::new(at, self.segment.1) };
        let (function, description) = (reader.i32()? as usize, reader.i32()? as usize);
        Some((self.header.wrapping_add(function), self.header.wrapping_add(description)))
    }

    /// A word that changes when the tables do: their place, their number and the first function.
    pub(crate) fn fingerprint(&self) -> u64 {
        let entry = self.entry(0).unwrap_or_default();
        (self.count as u64) ^ (entry.0 as u64).rotate_left(24) ^ (entry.1 as u64).rotate_left(43)
    }

    /// The addresses of all of it, up to the end of their segment, if nobody is to write there.
    pub(crate) fn constant(&self) -> Option<core::ops::Range<usize>> {
        self.is_constant.then(|| self.header.min(self.frames)..self.segment.1)
    }

    /// Address and contents of `.eh_frame_hdr` and `.eh_frame`, each up to the end of their segment.
    ///
    /// # Safety
    ///
    /// The contents may be read only while the module is loaded.
    pub(crate) unsafe fn sections(&self) -> [(usize, &'static [u8]); 2] {
        [self.header, self.frames].map(|start| {
            let length = self.segment.1.saturating_sub(start);
            // SAFETY: both lie in the readable segment; the caller keeps within the module's life.
            (start, unsafe { core::slice::from_raw_parts(start as *const u8, length) })
        })
    }
}
