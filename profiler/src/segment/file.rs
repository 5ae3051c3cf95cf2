//! The file behind a segment, read by `pread` into buffers of our own.
//!
//! It is not mapped: the writer goes on while we parse, so what was checked could change before it is used, and a
//! file that is cut short would be a SIGBUS here instead of an error. A copy costs a few hundred microseconds for a
//! megabyte.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use poolscope_wire::{HEADER_LEN, Region, RegionEntry};

use crate::segment::patience::Patience;
use crate::segment::read_error::ReadError;

/// `O_NONBLOCK`: opening a FIFO that somebody put there must not wait for its writer.
const O_NONBLOCK: i32 = 0o4000;

/// Bytes read at a time from a region; a multiple of 64, the length of the records that are read in bulk.
pub(crate) const CHUNK: usize = 256 * 1024;

/// An open segment.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    file: File,
    path: PathBuf,
}

impl SegmentFile {
    /// Opens a regular file for reading.
    pub(crate) fn open(path: &Path) -> Result<Self, ReadError> {
        let open = |source| ReadError::Open { path: path.to_owned(), source };
        let file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path).map_err(open)?;
        if !file.metadata().map_err(open)?.is_file() {
            return Err(ReadError::NotAFile { path: path.to_owned() });
        }
        Ok(Self { file, path: path.to_owned() })
    }

    /// Where it lies.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its length now.
    pub(crate) fn len(&self) -> Result<u64, ReadError> {
        Ok(self.metadata()?.len())
    }

    /// The memory or disk that it takes: regions are committed in parts, so this is less than its length.
    pub(crate) fn allocated_bytes(&self) -> Result<u64, ReadError> {
        // stat(2): st_blocks counts units of 512 bytes.
        Ok(self.metadata()?.blocks().saturating_mul(512))
    }

    /// When it was last written to, nanoseconds of `CLOCK_REALTIME`. For a mapped file that is when a page of it was
    /// first written to (`file_update_time` in the kernel's `do_shared_fault`).
    pub(crate) fn modified_ns(&self) -> Result<u64, ReadError> {
        let metadata = self.metadata()?;
        let (seconds, nanoseconds) = (metadata.mtime().max(0) as u64, metadata.mtime_nsec().max(0) as u64);
        Ok(seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds))
    }

    /// The user whose file it is.
    pub(crate) fn uid(&self) -> Result<u32, ReadError> {
        Ok(self.metadata()?.uid())
    }

    fn metadata(&self) -> Result<Metadata, ReadError> {
        self.file.metadata().map_err(|source| ReadError::Read { path: self.path.clone(), offset: 0, len: 0, source })
    }

    /// The bytes of the header, fewer if the file is shorter.
    pub(crate) fn read_header(&self) -> Result<Vec<u8>, ReadError> {
        let mut bytes = vec![0; HEADER_LEN];
        let mut have = 0;
        while have < bytes.len() {
            match self.file.read_at(&mut bytes[have..], have as u64) {
                Ok(0) => break,
                Ok(n) => have += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(ReadError::Read {
                        path: self.path.clone(),
                        offset: have as u64,
                        len: HEADER_LEN,
                        source,
                    });
                }
            }
        }
        bytes.truncate(have);
        Ok(bytes)
    }

    /// Fills `buffer` from `offset`; a file that ends before is an error.
    pub(crate) fn read_exact(&self, buffer: &mut [u8], offset: u64) -> Result<(), ReadError> {
        self.file.read_exact_at(buffer, offset).map_err(|source| ReadError::Read {
            path: self.path.clone(),
            offset,
            len: buffer.len(),
            source,
        })
    }

    /// Calls `each` with the records `from..count` of a region, a chunk at a time: the index of the chunk's first
    /// record and its bytes, which are whole records.
    pub(crate) fn for_each_chunk(
        &self,
        entry: RegionEntry,
        region: Region,
        from: u64,
        buffer: &mut Vec<u8>,
        mut each: impl FnMut(u64, &[u8]) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        let record_len = region.record_len();
        let per_chunk = (CHUNK / record_len).max(1) as u64;
        let mut first = from;
        while first < entry.count {
            let records = per_chunk.min(entry.count - first);
            buffer.resize(records as usize * record_len, 0);
            self.read_exact(buffer, entry.offset + first * record_len as u64)?;
            each(first, buffer)?;
            first += records;
        }
        Ok(())
    }

    /// Calls `each` with the records of a region of records with a sequence number: with those that are whole, and with
    /// `None` for one that the writer is in for too long. Every chunk is copied twice.
    pub(crate) fn for_each_whole(
        &self,
        entry: RegionEntry,
        region: Region,
        [first, second]: &mut [Vec<u8>; 2],
        patience: &mut Patience,
        mut each: impl FnMut(u64, Option<&[u8]>),
    ) -> Result<(), ReadError> {
        let record_len = region.record_len();
        self.for_each_chunk(entry, region, 0, first, |start, chunk| {
            let offset = entry.offset + start * record_len as u64;
            second.resize(chunk.len(), 0);
            self.read_exact(second, offset)?;
            for (i, (one, two)) in chunk.chunks_exact(record_len).zip(second.chunks_exact(record_len)).enumerate() {
                let index = start + i as u64;
                if is_whole(one, two) {
                    each(index, Some(one));
                    continue;
                }
                let offset = entry.offset + index * record_len as u64;
                each(index, patience.look(|| self.reread(record_len, offset))?.as_deref());
            }
            Ok(())
        })
    }

    /// Copies one record twice; `None` if the writer is in it.
    fn reread(&self, record_len: usize, offset: u64) -> Result<Option<Vec<u8>>, ReadError> {
        let (mut one, mut two) = (vec![0; record_len], vec![0; record_len]);
        self.read_exact(&mut one, offset)?;
        self.read_exact(&mut two, offset)?;
        Ok(is_whole(&one, &two).then_some(one))
    }
}

/// Both copies are the same and none was taken while the writer was in the record.
fn is_whole(one: &[u8], two: &[u8]) -> bool {
    one[0] & 1 == 0 && one == two
}
