//! The file of a recording, block by block.
//!
//! ```text
//! MAGIC, version | block | block | ... | index block, footer
//! ```
//!
//! A file has one part or more: each begins with a block that says whose recording it is, and has its own numbers of
//! stacks, threads and blocks, its own modules and its own summary. Times go on from part to part. Appending puts a
//! part in the place of the index, and a new index behind it.
//!
//! A block is a header of 48 bytes with checksums and what follows it, so that a file which ends in the middle (its
//! recorder was killed, the disk was full) is read up to there. Blocks are only ever appended. The index at the end
//! says where the blocks of all parts lie; without it they are found one after the other.
//!
//! Numbers of events lie in columns: each is cut into planes of bytes, the lowest bytes first, and each plane is
//! compressed by itself (zstd). Bytes that are always zero take nothing then.

use std::io::{self, Read, Write};

use poolscope_wire::script::FUNCTION_WORDS;
use poolscope_wire::trace::check_word;
use zstd::zstd_safe::CParameter;

/// The first eight bytes of a recording.
pub const MAGIC: [u8; 8] = *b"POOLRECO";
/// Version of the format. Columns that it has and an older one has not come last in their blocks, so that a file that
/// was begun by an older one can be gone on with.
pub const VERSION: u32 = 4;
/// The oldest version that can be read.
pub const OLDEST_VERSION: u32 = 2;
/// Where the version stands in the file.
pub const VERSION_AT: u64 = 8;
/// Bytes before the first block.
pub const FILE_HEADER_LEN: usize = 16;
/// Bytes of a block's header.
pub const BLOCK_HEADER_LEN: usize = 48;
/// The last eight bytes of a recording that was finished.
pub const FOOTER_MAGIC: [u8; 8] = *b"RECOINDX";
/// Bytes of the footer: where the index block lies, a checksum, [`FOOTER_MAGIC`].
pub const FOOTER_LEN: usize = 24;
/// No block is larger, packed or not.
pub const MAX_BLOCK: u32 = 64 << 20;
/// Most parts of a file.
pub const MAX_PARTS: usize = 4096;
/// Most events of a block.
pub const BLOCK_EVENTS: usize = 1 << 17;
/// Most functions of a block, which is not too large with the longest of them.
pub const BLOCK_FUNCTIONS: usize = 1 << 12;

const _: () = assert!(BLOCK_FUNCTIONS * FUNCTION_WORDS * 8 < MAX_BLOCK as usize);

const BLOCK_MAGIC: u32 = 0x4b4c_4250;

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// A part begins; whose recording it is: JSON.
    Session = 1,
    /// Executables and libraries: JSON, all that are known.
    Modules = 2,
    /// New nodes and stacks of the call tree.
    Stacks = 3,
    /// Events.
    Events = 4,
    /// Where the blocks lie that are in use.
    Addresses = 5,
    /// What was lost, by thread, so far: JSON.
    Summary = 6,
    /// Where the blocks of the file lie.
    Index = 7,
    /// New functions of Python's, which stacks name; since version 4.
    Functions = 8,
}

impl Kind {
    fn of(word: u32) -> Option<Kind> {
        use Kind::*;
        let all = [Session, Modules, Stacks, Events, Addresses, Summary, Index, Functions];
        all.into_iter().find(|&kind| kind as u32 == word)
    }
}

/// A block's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// What it holds.
    pub kind: Kind,
    /// Bytes that follow the header.
    pub stored: u32,
    /// Events in it.
    pub events: u32,
    /// Time of the first event, microseconds since the start of the first part.
    pub first_us: u64,
    /// Time of the last one.
    pub last_us: u64,
    /// CRC-32 of what follows.
    pub checksum: u32,
}

impl BlockHeader {
    /// The header as it is written.
    pub fn to_bytes(self) -> [u8; BLOCK_HEADER_LEN] {
        let mut bytes = [0; BLOCK_HEADER_LEN];
        bytes[0..4].copy_from_slice(&BLOCK_MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&(self.kind as u32).to_le_bytes());
        bytes[8..12].copy_from_slice(&self.stored.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.events.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.first_us.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.last_us.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.checksum.to_le_bytes());
        let check = crc32fast::hash(&bytes[..44]);
        bytes[44..48].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Reads it; why not, if it is none.
    pub fn from_bytes(bytes: &[u8; BLOCK_HEADER_LEN]) -> Result<Self, &'static str> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if word(0) != BLOCK_MAGIC {
            return Err("there is no block");
        }
        if word(44) != crc32fast::hash(&bytes[..44]) {
            return Err("a block's header is damaged");
        }
        let kind = Kind::of(word(4)).ok_or("a block is of an unknown kind")?;
        if word(8) > MAX_BLOCK {
            return Err("a block is larger than any");
        }
        Ok(Self { kind, stored: word(8), events: word(12), first_us: long(16), last_us: long(24), checksum: word(32) })
    }
}

/// The footer of a file whose index block lies at `offset`.
pub fn footer(offset: u64) -> [u8; FOOTER_LEN] {
    let mut bytes = [0; FOOTER_LEN];
    bytes[..8].copy_from_slice(&offset.to_le_bytes());
    bytes[8..16].copy_from_slice(&check_word(offset).to_le_bytes());
    bytes[16..].copy_from_slice(&FOOTER_MAGIC);
    bytes
}

/// Where the index block lies, if these are a footer.
pub fn parse_footer(bytes: &[u8; FOOTER_LEN]) -> Option<u64> {
    let long = |at: usize| bytes[at..at + 8].iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte));
    (bytes[16..] == FOOTER_MAGIC && long(8) == check_word(long(0))).then(|| long(0))
}

/// What an event is, in the column of operations.
pub mod op {
    /// A block is allocated: it gets the number given back last, or the next. Size and stack are in their columns.
    pub const ALLOC: u8 = 0;
    /// A block is freed; its number is in the column.
    pub const FREE: u8 = 1;
    /// A block is freed whose allocation is not in the recording.
    pub const FREE_UNKNOWN: u8 = 2;
    /// A block that can't be followed is allocated: it gets no number.
    pub const ALLOC_UNFOLLOWED: u8 = 3;
    /// A block is found to have been freed, by an event that was lost; its number is in the column.
    pub const FREE_LOST: u8 = 4;
    /// Time goes on; microseconds are in the column.
    pub const TIME: u8 = 5;
    /// The events that follow are another thread's; its index is in the column.
    pub const THREAD: u8 = 6;
    /// The event that follows is of a device's memory; which and on what stream is in the columns.
    pub const DEVICE: u8 = 7;
}

/// Events of a block, by columns.
#[derive(Debug, Default)]
pub struct EventColumns {
    /// One of [`op`] for each event.
    pub ops: Vec<u8>,
    /// Bytes asked for, of allocations.
    pub sizes: Vec<u64>,
    /// Stacks of allocations.
    pub stacks: Vec<u32>,
    /// Numbers of freed blocks.
    pub numbers: Vec<u32>,
    /// Stacks of frees of all kinds but lost ones; as many as there are, or none at all.
    pub free_stacks: Vec<u32>,
    /// Microseconds since the time before.
    pub times: Vec<u64>,
    /// Threads, as indices into the summary's list.
    pub threads: Vec<u32>,
    /// Numbers of the memories of devices.
    pub places: Vec<u64>,
    /// Handles of streams.
    pub streams: Vec<u64>,
}

impl EventColumns {
    /// Forgets everything.
    pub fn clear(&mut self) {
        self.ops.clear();
        self.sizes.clear();
        self.stacks.clear();
        self.numbers.clear();
        self.free_stacks.clear();
        self.times.clear();
        self.threads.clear();
        self.places.clear();
        self.streams.clear();
    }
}

/// Packs numbers, plane by plane.
pub struct Packer {
    zstd: zstd::bulk::Compressor<'static>,
    plane: Vec<u8>,
    packed: Vec<u8>,
    /// What was packed.
    pub out: Vec<u8>,
}

impl std::fmt::Debug for Packer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packer").field("out", &self.out.len()).finish_non_exhaustive()
    }
}

/// How much time is spent on packing: what is left after the planes are cut has few repetitions. Short ones are there
/// by chance, and take more time and room than they are worth.
const LEVEL: i32 = 1;
const SHORTEST_REPETITION: u32 = 7;
/// Repetitions are found by a table of as many places as a power of two: a small one stays in the nearest caches.
const PLACES_LOG2: u32 = 12;

impl Packer {
    /// An empty one.
    pub fn new() -> io::Result<Self> {
        let mut zstd = zstd::bulk::Compressor::new(LEVEL)?;
        zstd.set_parameter(CParameter::MinMatch(SHORTEST_REPETITION))?;
        zstd.set_parameter(CParameter::HashLog(PLACES_LOG2))?;
        Ok(Self { zstd, plane: Vec::new(), packed: Vec::new(), out: Vec::new() })
    }

    fn put_plane(&mut self) -> io::Result<()> {
        let bound = zstd::zstd_safe::compress_bound(self.plane.len());
        self.packed.clear();
        self.packed.reserve(bound);
        self.zstd.compress_to_buffer(&self.plane, &mut self.packed)?;
        self.out.extend_from_slice(&(self.packed.len() as u32).to_le_bytes());
        self.out.extend_from_slice(&self.packed);
        Ok(())
    }

    /// Adds a column of bytes.
    pub fn bytes(&mut self, column: &[u8]) -> io::Result<()> {
        self.out.extend_from_slice(&(column.len() as u32).to_le_bytes());
        self.out.push(1);
        self.plane.clear();
        self.plane.extend_from_slice(column);
        self.put_plane()
    }

    /// Adds a column of numbers.
    pub fn numbers(&mut self, column: impl Iterator<Item = u64> + Clone) -> io::Result<()> {
        let (mut len, mut all) = (0u32, 0u64);
        for number in column.clone() {
            len += 1;
            all |= number;
        }
        let planes = (64 - all.leading_zeros()).div_ceil(8);
        self.out.extend_from_slice(&len.to_le_bytes());
        self.out.push(planes as u8);
        for plane in 0..planes {
            self.plane.clear();
            self.plane.extend(column.clone().map(|number| (number >> (8 * plane)) as u8));
            self.put_plane()?;
        }
        Ok(())
    }
}

/// Takes packed columns apart again. Every length is checked: the file may be damaged, or made to hurt.
#[derive(Debug)]
pub struct Unpacker<'a>(pub &'a [u8]);

/// Packed columns that are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Damaged(pub &'static str);

impl Unpacker<'_> {
    fn take(&mut self, len: usize) -> Result<&[u8], Damaged> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Damaged("a column ends early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn word(&mut self) -> Result<u32, Damaged> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn head(&mut self, most: usize) -> Result<(usize, u32), Damaged> {
        let len = self.word()? as usize;
        if len > most {
            return Err(Damaged("a column has more numbers than its block has events"));
        }
        let planes = u32::from(self.take(1)?[0]);
        if planes > 8 {
            return Err(Damaged("a column has numbers of more than 64 bits"));
        }
        Ok((len, planes))
    }

    fn plane(&mut self, len: usize) -> Result<Vec<u8>, Damaged> {
        let stored = self.word()? as usize;
        let packed = self.take(stored)?;
        let plane = zstd::bulk::decompress(packed, len).map_err(|_| Damaged("a column can't be unpacked"))?;
        if plane.len() == len { Ok(plane) } else { Err(Damaged("a column is shorter than it says")) }
    }

    /// The next column, of at most `most` bytes.
    pub fn bytes(&mut self, most: usize) -> Result<Vec<u8>, Damaged> {
        let (len, planes) = self.head(most)?;
        if planes != 1 {
            return Err(Damaged("a column of bytes has numbers"));
        }
        self.plane(len)
    }

    /// The next column, of at most `most` numbers.
    pub fn numbers(&mut self, most: usize) -> Result<Vec<u64>, Damaged> {
        let (len, planes) = self.head(most)?;
        let mut numbers = vec![0; len];
        for at in 0..planes {
            let plane = self.plane(len)?;
            for (number, byte) in numbers.iter_mut().zip(plane) {
                *number |= u64::from(byte) << (8 * at);
            }
        }
        Ok(numbers)
    }

    /// The same; nothing if there is no other column, as in a file of an older version.
    pub fn numbers_if_any(&mut self, most: usize) -> Result<Vec<u64>, Damaged> {
        if self.0.is_empty() { Ok(Vec::new()) } else { self.numbers(most) }
    }

    /// The same, of 32 bits.
    pub fn numbers32(&mut self, most: usize) -> Result<Vec<u32>, Damaged> {
        let narrow = |number| u32::try_from(number).map_err(|_| Damaged("a number is too large"));
        self.numbers(most)?.into_iter().map(narrow).collect()
    }
}

/// Writes the file's first bytes.
pub fn write_file_header(out: &mut impl Write) -> io::Result<()> {
    out.write_all(&MAGIC)?;
    out.write_all(&VERSION.to_le_bytes())?;
    out.write_all(&0u32.to_le_bytes())
}

/// Reads the file's first bytes: the version that it states. `None` if it is no recording.
pub fn read_file_header(from: &mut impl Read) -> io::Result<Option<u32>> {
    let mut bytes = [0; FILE_HEADER_LEN];
    match from.read_exact(&mut bytes) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let version = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
    Ok((bytes[..8] == MAGIC).then_some(version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_come_out_as_they_went_in() {
        let mut packer = Packer::new().unwrap();
        let numbers = [0, 1, 255, 256, 1 << 40, u64::MAX];
        packer.numbers(numbers.iter().copied()).unwrap();
        packer.numbers(std::iter::empty()).unwrap();
        packer.bytes(b"abc").unwrap();
        let mut unpacker = Unpacker(&packer.out);
        assert_eq!(unpacker.numbers(6).unwrap(), numbers);
        assert!(unpacker.numbers32(0).unwrap().is_empty());
        assert_eq!(unpacker.bytes(3).unwrap(), b"abc");
        assert!(unpacker.0.is_empty());
        assert!(Unpacker(&packer.out).numbers(5).is_err());
        assert!(Unpacker(&packer.out).numbers32(6).is_err());
    }

    #[test]
    fn a_block_header_is_read_as_written_and_a_flipped_bit_is_seen() {
        let header =
            BlockHeader { kind: Kind::Events, stored: 5, events: 6, first_us: 7, last_us: 1 << 50, checksum: 9 };
        let bytes = header.to_bytes();
        assert_eq!(BlockHeader::from_bytes(&bytes), Ok(header));
        for at in 0..BLOCK_HEADER_LEN * 8 {
            let mut damaged = bytes;
            damaged[at / 8] ^= 1 << (at % 8);
            assert!(BlockHeader::from_bytes(&damaged).is_err(), "bit {at}");
        }
        assert_eq!(parse_footer(&footer(77)), Some(77));
    }
}
