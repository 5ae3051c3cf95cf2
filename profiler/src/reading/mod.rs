//! A reading of a process as bytes, for who watches it from elsewhere: what the segment says, the profile with its
//! names, and what the kernel says. `poolscope serve` hands it out, and `poolscope top URL` reads it.
//!
//! Whoever reads it knows neither the segment nor the program's files. Code addresses of stacks are left out: the
//! profile has their names.
//!
//! ```text
//! "poolread"  version of this layout (u32)  version of segments (u32)  gzip of postcard's bytes
//! ```
//!
//! Both versions have to be the reader's own, because the counters are those of the segment's version. The bytes come
//! over a network: [`Reading::read`] checks all that one part says of another, and takes control characters out of
//! text.

pub mod listed;

use std::io::{self, Read, Write};
use std::sync::Arc;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

use crate::model::history::History;
use crate::model::profile::{Location, Profile};
use crate::model::snapshot::Snapshot;
use crate::process::family::Child;
use crate::words::printable::printable_str;

/// What every reading begins with.
const MAGIC: [u8; 8] = *b"poolread";

/// The version of the layout. A change of what is derived here is another one.
pub const VERSION: u32 = 3;

/// Bytes before what is packed.
const HEAD: usize = 16;

/// The most bytes that are unpacked: no more than a large process needs, whoever sends them.
const UNPACKED_MAX: u64 = 1 << 30;

/// What is known of a process at one moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Reading {
    /// What its segment says. Its stacks have no frames.
    pub snapshot: Snapshot,
    /// The profile of that, with the names of threads.
    pub profile: Profile,
    /// For each stack of the snapshot its place among the profile's sites.
    pub site_of_stacks: Vec<Option<usize>>,
    /// The processes that it started and that run.
    pub children: Vec<Child>,
    /// Those of them that run on the pool, as far as somebody has looked.
    pub on_pool: Vec<u32>,
}

/// Why bytes are no reading.
#[derive(Debug, thiserror::Error)]
pub enum ReadingError {
    /// They begin otherwise.
    #[error("it sends no readings of a process")]
    NoReading,
    /// They are of another version.
    #[error(
        "its readings are of version {theirs}, and this poolscope reads version {ours}: take the same build on both"
    )]
    Version {
        /// That of the reading.
        theirs: String,
        /// The one that is known.
        ours: String,
    },
    /// They contradict themselves.
    #[error("its reading is damaged: {0}")]
    Damaged(&'static str),
}

fn version(layout: u32, segment: u32) -> String {
    format!("{layout} (segments of version {segment})")
}

impl Reading {
    /// Writes it.
    pub fn write(&self, mut out: impl Write) -> io::Result<()> {
        out.write_all(&MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        out.write_all(&poolscope_wire::VERSION.to_le_bytes())?;
        let mut packed = GzEncoder::new(out, Compression::fast());
        packed.write_all(&postcard::to_extend(self, Vec::new()).map_err(io::Error::other)?)?;
        packed.finish().map(|_| ())
    }

    /// Reads what somebody sent.
    pub fn read(bytes: &[u8]) -> Result<Reading, ReadingError> {
        if bytes.len() < HEAD || bytes[..MAGIC.len()] != MAGIC {
            return Err(ReadingError::NoReading);
        }
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (theirs, ours) = ((word(8), word(12)), (VERSION, poolscope_wire::VERSION));
        if theirs != ours {
            let (theirs, ours) = (version(theirs.0, theirs.1), version(ours.0, ours.1));
            return Err(ReadingError::Version { theirs, ours });
        }
        let mut unpacked = Vec::new();
        let packed = GzDecoder::new(&bytes[HEAD..]).take(UNPACKED_MAX).read_to_end(&mut unpacked);
        packed.map_err(|_| ReadingError::Damaged("it can't be unpacked"))?;
        let reading = postcard::from_bytes(&unpacked).map_err(|_| ReadingError::Damaged("its fields can't be read"))?;
        checked(reading)
    }
}

/// The reading, if each part of it names only what is there.
fn checked(mut reading: Reading) -> Result<Reading, ReadingError> {
    let Reading { snapshot, profile, site_of_stacks, children, .. } = &mut reading;
    let all = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(ReadingError::Damaged(what)) };
    let (modules, locations, sites) = (profile.modules.len(), profile.locations.len(), profile.sites.len());
    let located =
        |location: &Location| location.module.is_none_or(|module| module < modules) && !location.frames.is_empty();
    all(profile.locations.iter().all(located), "an address of code is in no module, or has no name")?;
    let mut used = profile.sites.iter().flat_map(|site| site.locations.iter());
    all(used.all(|&location| location < locations), "a call site has an address that there is not")?;
    all(site_of_stacks.len() == snapshot.stacks.len(), "its stacks and their call sites differ in number")?;
    all(site_of_stacks.iter().flatten().all(|&site| site < sites), "a stack is of no call site")?;
    let stacks = snapshot.stacks.len();
    all(snapshot.live.iter().all(|block| (block.stack as usize) < stacks), "a block is of no stack")?;

    let history = std::mem::take(&mut snapshot.history);
    let began_late = history.began_late;
    snapshot.history = History { began_late, ..History::new(history.span_ns, history.totals, u64::MAX) };
    let process = &mut snapshot.process;
    let texts = process.args.iter_mut().chain([&mut process.exe, &mut profile.main]);
    let texts = texts.chain(snapshot.devices.iter_mut().map(|device| &mut device.name));
    let texts = texts.chain(snapshot.modules.iter_mut().chain(&mut profile.modules).map(|module| &mut module.path));
    let texts = texts.chain(profile.comments.iter_mut()).chain(profile.thread_names.values_mut());
    texts.chain(children.iter_mut().map(|child| &mut child.name)).for_each(tidy);
    for location in Arc::make_mut(&mut profile.locations) {
        for frame in &mut location.frames {
            tidy(&mut frame.name);
            frame.file.iter_mut().for_each(tidy);
        }
    }
    Ok(reading)
}

fn tidy(text: &mut String) {
    *text = printable_str(std::mem::take(text));
}

#[cfg(test)]
mod tests;
