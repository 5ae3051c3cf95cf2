//! What a recording says of one device's memory, operation by operation: what allocators are replayed with.
//!
//! As text it is a line for each operation, `+ ID SIZE STREAM` or `- ID`.
//! Streams are numbered in the order in which they come.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, Write};

use crate::model::memory::Place;
use crate::recording::file::reader::{RecordingError, RecordingReader};
use crate::recording::replay::{Happening, Replay};

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A block is allocated.
    Allocate {
        /// Its number, which another block may have after it.
        id: u32,
        /// Bytes asked for.
        size: u64,
        /// The stream's number.
        stream: u32,
    },
    /// A block is freed.
    Free {
        /// Its number.
        id: u32,
    },
}

/// What of a device is not among its operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Frees of blocks whose allocation is not in the recording.
    pub unknown_frees: u64,
    /// Allocations that the recorder did not follow.
    pub unfollowed: u64,
}

/// The memories of devices that a recording has events of, in the order of their numbers.
pub fn places(reader: &mut RecordingReader) -> Result<Vec<Place>, RecordingError> {
    let replay = Replay::run(reader, u64::MAX, |_, _| true)?;
    let places: BTreeSet<Place> = replay.state.memories.iter().map(|&(place, _)| place).collect();
    Ok(places.into_iter().filter(|place| *place != Place::Host).collect())
}

/// Tells `each` of the operations of one memory, in order.
/// What a part of the recording has in use at its end is freed there.
pub fn for_each(
    reader: &mut RecordingReader,
    place: Place,
    mut each: impl FnMut(Operation),
) -> Result<LeftOut, RecordingError> {
    let mut left_out = LeftOut::default();
    let mut streams: HashMap<u64, u32> = HashMap::new();
    let (mut in_use, mut part) = (BTreeSet::new(), 0);
    Replay::run(reader, u64::MAX, |state, happening| {
        if state.part != part {
            part = state.part;
            std::mem::take(&mut in_use).into_iter().for_each(|id| each(Operation::Free { id }));
        }
        if state.memories[state.memory].0 != place {
            return true;
        }
        match (happening, state.number) {
            (Happening::Alloc(block), Some(id)) => {
                let next = streams.len() as u32;
                let stream = *streams.entry(state.stream.unwrap_or(0)).or_insert(next);
                in_use.insert(id);
                each(Operation::Allocate { id, size: block.size, stream });
            }
            (Happening::Free(..) | Happening::FreeLost(_), Some(id)) => {
                in_use.remove(&id);
                each(Operation::Free { id });
            }
            (Happening::FreeUnknown(_), _) => left_out.unknown_frees += 1,
            (Happening::Unfollowed(_), _) => left_out.unfollowed += 1,
            _ => {}
        }
        true
    })?;
    Ok(left_out)
}

/// Writes the operations of one memory as text.
pub fn write_text(reader: &mut RecordingReader, place: Place, mut out: impl Write) -> Result<LeftOut, TextError> {
    let title = format!("# {}, pid {}, memory {}", command(reader), reader.session().pid, place.memory().describe());
    let mut written = writeln!(out, "{title}\n# + ID BYTES STREAM: allocated; - ID: freed");
    let left_out = for_each(reader, place, |operation| {
        if written.is_ok() {
            written = match operation {
                Operation::Allocate { id, size, stream } => writeln!(out, "+ {id} {size} {stream}"),
                Operation::Free { id } => writeln!(out, "- {id}"),
            };
        }
    })?;
    written?;
    let LeftOut { unknown_frees, unfollowed } = left_out;
    if left_out != LeftOut::default() {
        writeln!(
            out,
            "# left out: {unknown_frees} frees of blocks from before the recording, {unfollowed} allocations not followed"
        )?;
    }
    out.flush()?;
    Ok(left_out)
}

/// Why there is no text.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// The recording can't be read.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The text can't be written.
    #[error(transparent)]
    Write(#[from] io::Error),
}

/// The program as it was called, on one line.
fn command(reader: &RecordingReader) -> String {
    reader.session().command().replace(char::is_control, " ")
}
