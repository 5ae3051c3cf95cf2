//! Finds the unwind table of a function: `.eh_frame_hdr` is its index, `.eh_frame` holds it (LSB core, 10.6).

use crate::reader::Reader;

/// The unwind tables of one module, in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tables {
    /// The readable segment that all of it lies in.
    segment: (usize, usize),
    /// `.eh_frame_hdr`, which the index counts addresses from.
    header: usize,
    /// The index: pairs of signed 32-bit offsets, function and description, sorted.
    index: usize,
    /// Pairs in it.
    count: usize,
}

/// The description of one function, with what it inherits from its common part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Description {
    /// First address of the function.
    pub(crate) start: usize,
    /// Instructions that every function of the common part starts with.
    pub(crate) initial: Reader,
    /// The function's own.
    pub(crate) instructions: Reader,
    /// What a step of addresses counts.
    pub(crate) code_factor: u64,
    /// What an offset of a saved register counts.
    pub(crate) data_factor: i64,
    /// How addresses in the instructions are encoded.
    pub(crate) encoding: u8,
    /// The column of the return address.
    pub(crate) return_column: u64,
    /// The kernel's frame of a signal handler.
    pub(crate) is_signal: bool,
}

const INDEX_ENTRY: usize = 8;
/// `DW_EH_PE_datarel | DW_EH_PE_sdata4`, the only encoding of the index that linkers write.
const INDEX_ENCODING: u8 = 0x3b;
const OMITTED: u8 = 0xff;

impl Tables {
    /// The tables whose header is at `header`.
    ///
    /// # Safety
    ///
    /// `segment` can be read for as long as the tables are used.
    pub(crate) unsafe fn new(header: usize, segment: (usize, usize)) -> Option<Self> {
        // SAFETY: as this function's.
        let mut reader = unsafe { Reader::new(segment.0, segment.1) }.starting_at(segment.0, header)?;
        let (version, frame, count, index) = (reader.u8()?, reader.u8()?, reader.u8()?, reader.u8()?);
        if version != 1 || frame == OMITTED || count == OMITTED || index != INDEX_ENCODING {
            return None;
        }
        reader.pointer(frame, header)?;
        let count = reader.pointer(count, header)?;
        let index = reader.at();
        reader.skip(count.checked_mul(INDEX_ENTRY)?)?;
        Some(Self { segment, header, index, count })
    }

    /// A word that changes when the tables do: their place, their number and the first function.
    pub(crate) fn fingerprint(&self) -> u64 {
        let entry = self.entry(0).unwrap_or_default();
        (self.count as u64) ^ (entry.0 as u64).rotate_left(24) ^ (entry.1 as u64).rotate_left(43)
    }

    fn at(&self, address: usize) -> Option<Reader> {
        // SAFETY: the segment is readable, `new`'s caller said so.
        unsafe { Reader::new(self.segment.0, self.segment.1) }.starting_at(self.segment.0, address)
    }

    /// Function and description number `n`.
    fn entry(&self, n: usize) -> Option<(usize, usize)> {
        let mut reader = self.at(self.index.checked_add(n.checked_mul(INDEX_ENTRY)?)?)?;
        let (function, description) = (reader.i32()? as usize, reader.i32()? as usize);
        Some((self.header.wrapping_add(function), self.header.wrapping_add(description)))
    }

    /// The description of the function that `address` lies in.
    pub(crate) fn find(&self, address: usize) -> Option<Description> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.entry(middle)?.0 <= address {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        self.description(self.entry(low.checked_sub(1)?)?.1, address)
    }

    /// Start and contents of an entry of `.eh_frame`: the word after its length, and what follows it.
    fn entry_at(&self, address: usize) -> Option<(u32, usize, Reader)> {
        let mut reader = self.at(address)?;
        let length = reader.u32()?;
        // All ones announce a 64-bit length, which no linker writes here.
        if length == u32::MAX {
            return None;
        }
        let mut content = reader.take(length as usize)?;
        let at = content.at();
        Some((content.u32()?, at, content))
    }

    /// Parses the description at `place`, if it covers `address`.
    fn description(&self, place: usize, address: usize) -> Option<Description> {
        let (distance, at, mut content) = self.entry_at(place)?;
        if distance == 0 {
            return None;
        }
        let common = self.common(at.checked_sub(distance as usize)?)?;
        let start = content.pointer(common.encoding, self.header)?;
        let length = content.encoded(common.encoding)?;
        if common.has_augmentation {
            let length = content.uleb()?;
            content.skip(usize::try_from(length).ok()?)?;
        }
        (address.wrapping_sub(start) < length).then_some(Description {
            start,
            initial: common.initial,
            instructions: content,
            code_factor: common.code_factor,
            data_factor: common.data_factor,
            encoding: common.encoding,
            return_column: common.return_column,
            is_signal: common.is_signal,
        })
    }

    /// Parses the common part at `place`.
    fn common(&self, place: usize) -> Option<Common> {
        let (zero, _, mut content) = self.entry_at(place)?;
        let version = content.u8()?;
        if zero != 0 || !matches!(version, 1 | 3) {
            return None;
        }
        let mut augmentation = content;
        while content.u8()? != 0 {}
        let mut common = Common {
            initial: content,
            code_factor: content.uleb()?,
            data_factor: content.sleb()?,
            return_column: if version == 1 { u64::from(content.u8()?) } else { content.uleb()? },
            encoding: 0,
            has_augmentation: false,
            is_signal: false,
        };
        let mut letter = augmentation.u8()?;
        if letter == b'z' {
            common.has_augmentation = true;
            let length = content.uleb()?;
            let mut data = content.take(usize::try_from(length).ok()?)?;
            letter = augmentation.u8()?;
            while letter != 0 {
                match letter {
                    b'R' => common.encoding = data.u8()?,
                    b'L' => data.skip(1)?,
                    b'P' => {
                        let encoding = data.u8()?;
                        data.encoded(encoding)?;
                    }
                    b'S' => common.is_signal = true,
                    b'B' => {}
                    _ => return None,
                }
                letter = augmentation.u8()?;
            }
        }
        if letter != 0 {
            return None;
        }
        common.initial = content;
        Some(common)
    }
}

/// A common part of descriptions.
struct Common {
    initial: Reader,
    code_factor: u64,
    data_factor: i64,
    return_column: u64,
    encoding: u8,
    has_augmentation: bool,
    is_signal: bool,
}
