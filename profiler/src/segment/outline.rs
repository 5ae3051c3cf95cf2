//! Large segments, part by part: what a segment says but the frames of its stacks, from which parts of it are made.
//!
//! A segment in which every allocation is recorded may have a million stacks, and their frames, with what names them,
//! are most of what a snapshot takes. An outline has everything else, and knows where the frames lie; the
//! [reader](crate::segment::reader) reads those of a part when it is asked for it.

use std::ops::Range;

use poolscope_wire::RegionEntry;

use crate::model::memory::Memory;
use crate::model::snapshot::{LiveBlock, ProcessInfo, Snapshot, Stack};
use crate::segment::read_error::ReadError;
use crate::segment::stack_words::{FramePlace, StackWords};

/// Where the frames of stacks lie.
#[derive(Debug)]
pub(crate) struct FramePlaces {
    /// The region of frames.
    pub(crate) region: RegionEntry,
    pub(crate) of_stacks: Vec<FramePlace>,
}

/// What a segment says but the frames of its stacks, so that a million stacks can be gone through part by part in
/// little memory.
#[derive(Debug)]
pub struct Outline {
    /// Its stacks have no frames; its blocks are in the order of their stacks.
    snapshot: Snapshot,
    places: FramePlaces,
}

impl Outline {
    /// The outline that a snapshot without frames is.
    pub(crate) fn new(mut snapshot: Snapshot, places: FramePlaces) -> Self {
        snapshot.live.sort_unstable_by_key(|block| block.stack);
        decide_peaks(&mut snapshot);
        Self { snapshot, places }
    }

    /// The stacks, without their frames.
    pub fn stacks(&self) -> &[Stack] {
        &self.snapshot.stacks
    }

    /// Whose segment it is.
    pub fn process(&self) -> &ProcessInfo {
        &self.snapshot.process
    }

    /// Some of the stacks, with frames, and their blocks. `read` adds the frames from one on up to the count of their
    /// region.
    pub(crate) fn part(
        &self,
        stacks: Range<usize>,
        read: impl FnMut(RegionEntry, u64, &mut Vec<u64>) -> Result<(), ReadError>,
    ) -> Result<Snapshot, ReadError> {
        let whole = &self.snapshot;
        let mut words = StackWords::new(&self.places.of_stacks, self.places.region, read);
        let mut part = self.head();
        for (number, stack) in (stacks.start as u32..).zip(&whole.stacks[stacks.clone()]) {
            part.stacks.push(Stack { frames: words.of(number)?, ..stack.clone() });
        }
        let first = stacks.start as u32;
        let from = whole.live.partition_point(|block| (block.stack as usize) < stacks.start);
        let to = whole.live.partition_point(|block| (block.stack as usize) < stacks.end);
        part.live.extend(whole.live[from..to].iter().map(|block| LiveBlock { stack: block.stack - first, ..*block }));
        for module in &mut part.modules {
            let Range { start, end } = module.stacks.clone();
            module.stacks = start.saturating_sub(first)..if end == u32::MAX { end } else { end.saturating_sub(first) };
        }
        Ok(part)
    }

    /// Everything but stacks and blocks.
    fn head(&self) -> Snapshot {
        let Snapshot { process, former, modules, devices, threads, classes, device_peaks, .. } = &self.snapshot;
        Snapshot {
            process: process.clone(),
            former: former.clone(),
            modules: modules.clone(),
            devices: devices.clone(),
            threads: threads.clone(),
            classes: classes.clone(),
            device_peaks: device_peaks.clone(),
            tiers: self.snapshot.tiers.clone(),
            history: self.snapshot.history.clone(),
            stacks: Vec::new(),
            functions: self.snapshot.functions.clone(),
            live: Vec::new(),
            ..self.snapshot
        }
    }
}

/// Leaves out the peaks that are lower than what is in use now: a part can't tell.
fn decide_peaks(snapshot: &mut Snapshot) {
    let Snapshot { stacks, live, peak, device_peaks, .. } = snapshot;
    let in_use = |memory: Memory| -> f64 {
        let of_memory =
            live.iter().filter(|block| stacks.get(block.stack as usize).is_some_and(|stack| memory.has(stack.place)));
        of_memory.map(|block| block.amount().bytes).sum()
    };
    *peak = peak.filter(|peak| peak.bytes as f64 > in_use(Memory::Host));
    device_peaks.retain(|peak| peak.moment.bytes as f64 > in_use(peak.place.memory()));
}
