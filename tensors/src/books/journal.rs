//! The books' records in a file without a name (memfd_create(2)), which lives as long as somebody has its descriptor:
//! the owner, and the keeper beside it. So it ends with the memory that it is about.
//!
//! Each record has its length and a checksum before it. An owner that is killed in the middle of a write leaves a torn
//! end, which is cut off.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, memfd_create};

use super::{Books, Record};

/// A journal below so many bytes is not written anew.
const SMALL: u64 = 1 << 20;
/// A record has at most so many bytes; more would be damage.
const RECORD_LIMIT: usize = 1 << 20;

/// The journal.
#[derive(Debug)]
pub struct Journal {
    file: File,
    bytes: u64,
    /// Its length when it was last written anew.
    base: u64,
}

fn framed(record: &Record) -> Vec<u8> {
    let text = serde_json::to_vec(record).unwrap_or_default();
    let mut bytes = Vec::with_capacity(text.len() + 8);
    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&crc32fast::hash(&text).to_le_bytes());
    bytes.extend_from_slice(&text);
    bytes
}

impl Journal {
    /// One that makes these books.
    pub fn of(books: &Books) -> io::Result<Journal> {
        let file = File::from(memfd_create(c"poolscope-tensors-journal", MemfdFlags::CLOEXEC)?);
        let bytes: Vec<u8> = books.records().iter().flat_map(framed).collect();
        file.write_all_at(&bytes, 0)?;
        let bytes = bytes.len() as u64;
        Ok(Journal { file, bytes, base: bytes })
    }

    /// Reads what another owner left. What is behind the first damage is cut off.
    pub fn open(descriptor: OwnedFd) -> io::Result<(Journal, Books)> {
        let file = File::from(descriptor);
        let mut all = vec![0; file.metadata()?.len() as usize];
        file.read_exact_at(&mut all, 0)?;
        let (mut books, mut at) = (Books::default(), 0);
        while let Some(head) = all.get(at..at + 8) {
            let number = |from: usize| u32::from_le_bytes([head[from], head[from + 1], head[from + 2], head[from + 3]]);
            let length = number(0) as usize;
            let text = all.get(at + 8..at + 8 + length).filter(|_| length <= RECORD_LIMIT);
            let text = text.filter(|text| crc32fast::hash(text) == number(4));
            let Some(record) = text.and_then(|text| serde_json::from_slice(text).ok()) else { break };
            books.apply(&record);
            at += 8 + length;
        }
        file.set_len(at as u64)?;
        Ok((Journal { file, bytes: at as u64, base: at as u64 }, books))
    }

    /// Writes a record behind all others.
    pub fn append(&mut self, record: &Record) -> io::Result<()> {
        let bytes = framed(record);
        self.file.write_all_at(&bytes, self.bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Whether most of it is about what has changed again.
    pub fn is_long(&self) -> bool {
        self.bytes > SMALL.max(4 * self.base)
    }

    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl AsFd for Journal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
