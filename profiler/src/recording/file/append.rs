//! Where a recording can be gone on with: behind its last whole block, in the place of its index.
//!
//! What a recorder that was killed has left of a block is cut off. A file that is damaged before its end is refused:
//! what lies behind the damage may be whole, and would be lost.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use crate::recording::events::call_paths::StackCounts;
use crate::recording::file::format::{
    BLOCK_HEADER_LEN, BlockHeader, FILE_HEADER_LEN, FOOTER_LEN, Kind, MAX_PARTS, VERSION, VERSION_AT,
};
use crate::recording::file::reader::{RecordingError, RecordingReader};

/// The end of a recording, as one finds it who wants to go on.
#[derive(Clone, Debug)]
pub struct Continuation {
    /// Bytes up to the end of the last whole block, without the index.
    pub offset: u64,
    /// Where its blocks lie.
    pub index: Vec<(u64, BlockHeader)>,
    /// Time of its last event, microseconds since the start of its first part.
    pub time_us: u64,
    /// What the stacks of all parts have.
    pub stacks: StackCounts,
    /// Bytes behind `offset` that are no whole block: its recorder was killed.
    pub torn: u64,
}

impl Default for Continuation {
    /// That of a file that has nothing but its header.
    fn default() -> Self {
        Self { offset: FILE_HEADER_LEN as u64, index: Vec::new(), time_us: 0, stacks: StackCounts::default(), torn: 0 }
    }
}

/// What the bytes at some place of a file are.
enum Found {
    Block(BlockHeader),
    /// The file ends here, in the middle of a block or not.
    End,
    Damage(&'static str),
}

impl Continuation {
    /// Finds the end of a recording. Reads every block's header, and of the blocks those that are needed.
    pub fn find(path: &Path) -> Result<Continuation, RecordingError> {
        let failed = |source| RecordingError::File { path: path.to_owned(), source };
        // Says what is no recording, or of another version.
        let mut reader = RecordingReader::open(path)?;
        let mut file = File::open(path).map_err(failed)?;
        let mut end = Continuation::default();
        let mut parts = 0;
        loop {
            let header = match look(&mut file, end.offset, reader.len()).map_err(failed)? {
                Found::Block(header) => header,
                Found::End => break,
                Found::Damage(why) => return Err(refused(path, end.offset, why)),
            };
            if header.kind == Kind::Index {
                break;
            }
            parts += usize::from(header.kind == Kind::Session);
            end.index.push((end.offset, header));
            end.offset += BLOCK_HEADER_LEN as u64 + u64::from(header.stored);
            end.time_us = end.time_us.max(header.last_us);
        }
        if parts >= MAX_PARTS {
            return Err(refused(path, end.offset, "it has as many parts as a file can have"));
        }
        let rest = reader.len() - end.offset;
        end.torn = if is_whole(&mut file, end.offset, rest).map_err(failed)? { 0 } else { rest };
        end.stacks = reader.count_stacks(&end.index)?;
        Ok(end)
    }
}

/// Has a file say that it is of this version, which what is appended to it is of: it may be of an older one.
pub fn write_version(mut file: &File) -> io::Result<()> {
    file.seek(SeekFrom::Start(VERSION_AT))?;
    file.write_all(&VERSION.to_le_bytes())
}

fn refused(path: &Path, offset: u64, why: &str) -> RecordingError {
    let why = format!("{why}; nothing is appended to it, record to another file");
    RecordingError::Damaged { path: path.to_owned(), offset, why }
}

/// What there is at `offset` of a file of `len` bytes.
fn look(file: &mut File, offset: u64, len: u64) -> io::Result<Found> {
    let left = len.saturating_sub(offset);
    if left < BLOCK_HEADER_LEN as u64 {
        return Ok(Found::End);
    }
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = [0; BLOCK_HEADER_LEN];
    file.read_exact(&mut bytes)?;
    let header = match BlockHeader::from_bytes(&bytes) {
        Ok(header) => header,
        // Room that was never written to: the machine went down.
        Err(_) if bytes == [0; BLOCK_HEADER_LEN] && is_zero(file)? => return Ok(Found::End),
        Err(why) => return Ok(Found::Damage(why)),
    };
    let end = BLOCK_HEADER_LEN as u64 + u64::from(header.stored);
    if left < end {
        return Ok(Found::End);
    }
    if left == end {
        let mut payload = vec![0; header.stored as usize];
        file.read_exact(&mut payload)?;
        if crc32fast::hash(&payload) != header.checksum {
            return Ok(Found::End);
        }
    }
    Ok(Found::Block(header))
}

fn is_zero(file: &mut File) -> io::Result<bool> {
    let mut bytes = vec![0; 1 << 16];
    loop {
        match file.read(&mut bytes)? {
            0 => return Ok(true),
            read if bytes[..read].iter().any(|&byte| byte != 0) => return Ok(false),
            _ => {}
        }
    }
}

/// Whether the `rest` of the bytes are none, or an index and a footer.
fn is_whole(file: &mut File, offset: u64, rest: u64) -> io::Result<bool> {
    if rest == 0 {
        return Ok(true);
    }
    let Found::Block(header) = look(file, offset, offset + rest)? else { return Ok(false) };
    Ok(header.kind == Kind::Index && rest == (BLOCK_HEADER_LEN + header.stored as usize + FOOTER_LEN) as u64)
}
