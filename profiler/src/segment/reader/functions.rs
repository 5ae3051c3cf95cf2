//! Python's functions: each is written once, and does not change.

use std::sync::Arc;

use poolscope_wire::{Region, RegionEntry};
#[cfg(feature = "recording")]
use poolscope_wire::{StackRecord, kind};

use super::{SegmentReader, words};
use crate::model::functions::Function;
use crate::model::snapshot::Dropped;
use crate::segment::file::SegmentFile;
use crate::segment::read_error::ReadError;
use crate::segment::stack_words::FramePlace;

impl SegmentReader {
    /// Python's functions among the stacks, as far as they are new: each is written once, and does not change.
    pub(super) fn read_functions(
        &mut self,
        entry: RegionEntry,
        functions: &[(u32, FramePlace)],
        dropped: &mut Dropped,
    ) -> Result<(), ReadError> {
        let Self { file, copies: [buffer, _], functions: known, .. } = self;
        for &(number, place) in functions {
            if known.get(number).is_some() {
                continue;
            }
            match Function::of_words(&of_place(file, entry, place, buffer)?) {
                Some(function) => known.insert(number, Arc::new(function)),
                None => dropped.invalid += 1,
            }
        }
        Ok(())
    }

    /// The words of a function of Python's by its number; `None` if they can't be read.
    #[cfg(feature = "recording")]
    pub(crate) fn function_words(&mut self, number: u32) -> Option<Vec<u64>> {
        let header = self.read_same_header().ok()?;
        let Self { file, copies: [buffer, _], .. } = self;
        let stacks = header.region(Region::Stacks);
        let mut place = None;
        let only = RegionEntry { count: stacks.count.min(u64::from(number) + 1), ..stacks };
        let read = file.for_each_chunk(only, Region::Stacks, number.into(), buffer, |_, chunk| {
            let record = StackRecord::from_bytes(chunk).filter(|record| record.kind() == kind::FUNCTION);
            place = record.as_ref().map(FramePlace::of);
            Ok(())
        });
        read.ok()?;
        let (place, frames) = (place?, header.region(Region::Frames));
        let end = (place.first() + place.depth()) as u64;
        if end > frames.count {
            return None;
        }
        of_place(file, frames, place, buffer).ok()
    }
}

/// The words of a place that lies in a region.
fn of_place(
    file: &SegmentFile,
    region: RegionEntry,
    place: FramePlace,
    buffer: &mut Vec<u8>,
) -> Result<Vec<u64>, ReadError> {
    let part = RegionEntry { count: (place.first() + place.depth()) as u64, ..region };
    let mut found = Vec::with_capacity(place.depth());
    file.for_each_chunk(part, Region::Frames, place.first() as u64, buffer, |_, chunk| {
        found.extend(words(chunk));
        Ok(())
    })?;
    Ok(found)
}
