//! Profiles that other tools wrote, as profiles of the model: each file is one format.
//!
//! A format is known by its first bytes, and not by a file's name.

pub mod dhat;
pub mod heaptrack;
pub mod memray;
mod pickle;
mod sites;
pub mod torch;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::faces::pprof::reader::{PprofError, read_pprof};
use crate::model::profile::Profile;

/// The most bytes that are read of a file that is read as a whole.
const LARGEST: u64 = 1 << 30;

/// Why a file is no profile that can be read.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The kernel's words.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// It is packed as pprof files are, and is none.
    #[error(transparent)]
    Pprof(#[from] PprofError),
    /// It is of a format that is known, and something is wrong with it.
    #[error("it is no {format} that can be read: {why}")]
    Damaged {
        /// The format.
        format: &'static str,
        /// What is wrong, and where.
        why: String,
    },
    /// There is nothing in it.
    #[error("it is empty")]
    Empty,
    /// It is JSON, and not DHAT's.
    #[error("it is JSON, and not DHAT's: no other JSON is read here{}", .0)]
    OtherJson(&'static str),
    /// It begins as no format that is known.
    #[error(
        "it is of no format that is read here: pprof, heaptrack's files, DHAT's JSON, memray's tables as CSV, snapshots of \
         PyTorch"
    )]
    Unknown,
    /// It is of a format that is known and of which nothing is documented; what to do instead.
    #[error("{0}")]
    NotDocumented(&'static str),
    /// It is too large.
    #[error("it is larger than {} MiB", LARGEST >> 20)]
    TooLarge,
}

/// A profile and what it does not have of the model.
#[derive(Debug)]
pub struct Imported {
    /// The profile.
    pub profile: Profile,
    /// The format's name.
    pub format: &'static str,
    /// What the format does not have, for a message.
    pub lacks: Option<&'static str>,
}

/// The first bytes of a file in gzip's format, in that of zstd, of a pickle since its second protocol, and of
/// dictionaries in the two before it.
const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const PICKLE: u8 = 0x80;
const OLD_PICKLES: [&[u8]; 2] = [b"(dp", b"}q\0"];

/// Reads a profile of any format that is known.
pub fn read(path: &Path) -> Result<Imported, ImportError> {
    let mut begin = [0; 4];
    let have = File::open(path)?.read(&mut begin)?;
    let begin = &begin[..have];
    if begin.is_empty() {
        return Err(ImportError::Empty);
    }
    if begin.starts_with(&ZSTD) || begin.starts_with(b"v ") || is_packed_heaptrack(path, begin)? {
        return heaptrack::read(path);
    }
    let bytes = whole(path)?;
    if begin.first() == Some(&PICKLE) || OLD_PICKLES.iter().any(|pickle| begin.starts_with(pickle)) {
        return torch::read(&bytes);
    }
    if begin.first() == Some(&b'{') {
        return dhat::read(&bytes);
    }
    if bytes.starts_with(memray::HEAD) {
        return memray::read(&bytes);
    }
    if memray::is_own_file(&bytes) {
        return Err(ImportError::NotDocumented(memray::ADVICE));
    }
    match read_pprof(&bytes) {
        Ok(profile) => Ok(Imported { profile, format: "pprof file", lacks: None }),
        // What is not packed may be anything.
        Err(_) if !begin.starts_with(&GZIP) => Err(ImportError::Unknown),
        Err(error) => Err(error.into()),
    }
}

/// Both heaptrack's files and pprof's are packed by gzip.
fn is_packed_heaptrack(path: &Path, begin: &[u8]) -> Result<bool, ImportError> {
    if !begin.starts_with(&GZIP) {
        return Ok(false);
    }
    let mut first = [0; 2];
    let unpacked = flate2::read::MultiGzDecoder::new(File::open(path)?).read_exact(&mut first);
    Ok(unpacked.is_ok() && first == *b"v ")
}

fn whole(path: &Path) -> Result<Vec<u8>, ImportError> {
    let (mut bytes, file) = (Vec::new(), File::open(path)?);
    if file.metadata()?.len() > LARGEST {
        return Err(ImportError::TooLarge);
    }
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST { Err(ImportError::TooLarge) } else { Ok(bytes) }
}
