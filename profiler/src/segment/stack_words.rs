//! Where the words of stacks lie in a segment: how those of all are read, and one stack's without all others'.

use std::collections::HashMap;

use poolscope_wire::outer::Outer;
use poolscope_wire::{RegionEntry, StackRecord, stack_flags};

use crate::model::frames::Frames;
use crate::segment::read_error::ReadError;

/// Where the words of a stack begin, and how many it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FramePlace {
    first: u32,
    depth: u16,
    /// Its outer ones are another stack's: the first word says where.
    pub(crate) shares: bool,
}

impl FramePlace {
    pub(crate) fn of(record: &StackRecord) -> Self {
        let shares = record.flags() & stack_flags::SHARED != 0;
        Self { first: record.first_frame, depth: record.depth, shares }
    }

    /// The first of them in the region.
    pub(crate) fn first(self) -> usize {
        self.first as usize
    }

    /// How many words the stack has.
    pub(crate) fn depth(self) -> usize {
        self.depth.into()
    }
}

/// The frames of a stack, as the readings before have them: they never change. None if they were not read; no frames if
/// what the segment says of them makes no sense. `new` has the words that are new, from one on.
pub(crate) fn of_all<'a>(
    known: &mut Vec<(FramePlace, Frames)>,
    stack: usize,
    place: FramePlace,
    new: impl Fn(usize, usize) -> Option<&'a [u64]>,
) -> Option<Frames> {
    if known.len() <= stack {
        known.resize_with(stack + 1, Default::default);
    }
    // What was read of a place stays; a damaged file may name another place each time.
    if known[stack].0 != place {
        let frames = if place.shares { sharing(&known[..stack], place, new)? } else { own(place, new)? };
        known[stack] = (place, frames);
    }
    Some(known[stack].1.clone())
}

/// Those of a stack that shares none. None if they were not read.
fn own<'a>(place: FramePlace, new: impl Fn(usize, usize) -> Option<&'a [u64]>) -> Option<Frames> {
    if place.depth() == 0 { Some(Frames::default()) } else { new(place.first(), place.depth()).map(Frames::from) }
}

/// Those of a stack that shares its outer ones with one of those before it.
fn sharing<'a>(
    before: &[(FramePlace, Frames)],
    place: FramePlace,
    new: impl Fn(usize, usize) -> Option<&'a [u64]>,
) -> Option<Frames> {
    let outer = Outer::of_word(*new(place.first(), 1)?.first()?);
    let Some((_, other)) = before.get(outer.stack as usize) else { return Some(Frames::default()) };
    // A stack whose own words would lie past the end is none.
    let inner = usize::from(outer.inner);
    let own = new(place.first() + 1, inner + usize::from(outer.tail));
    let frames = own.and_then(|own| Frames::shared(own, inner, other, outer.from.into(), place.depth()));
    Some(frames.unwrap_or_default())
}

/// What the words of the stacks of a segment are read from, one stack at a time.
pub(crate) struct StackWords<'a, R> {
    places: &'a [FramePlace],
    region: RegionEntry,
    /// Adds the words from one on up to the count of their region.
    read: R,
    /// The stacks that were read.
    known: HashMap<u32, Frames>,
}

/// So many words of a stack that shares others are read at once: few have more of their own.
const AT_ONCE: u32 = 16;

impl<'a, R: FnMut(RegionEntry, u64, &mut Vec<u64>) -> Result<(), ReadError>> StackWords<'a, R> {
    pub(crate) fn new(places: &'a [FramePlace], region: RegionEntry, read: R) -> Self {
        Self { places, region, read, known: HashMap::new() }
    }

    /// The words of a stack; none if what the segment says of them makes no sense.
    pub(crate) fn of(&mut self, stack: u32) -> Result<Frames, ReadError> {
        // Those that it shares words with, and they with others, until one is known.
        let mut sharing = Vec::new();
        let mut next = stack;
        let mut frames = loop {
            if let Some(known) = self.known.get(&next) {
                break known.clone();
            }
            let Some(place) = self.places.get(next as usize).copied() else { break Frames::default() };
            if !place.shares {
                let frames = Frames::from(self.words(place.first, place.depth.into())?);
                self.known.insert(next, frames.clone());
                break frames;
            }
            let Some((outer, own)) = self.own(place)? else { break Frames::default() };
            sharing.push((next, place, outer, own));
            // Each is of a stack that was there before.
            if outer.stack >= next {
                break Frames::default();
            }
            next = outer.stack;
        };
        for (stack, place, outer, own) in sharing.into_iter().rev() {
            let shared = Frames::shared(&own, outer.inner.into(), &frames, outer.from.into(), place.depth());
            frames = shared.unwrap_or_default();
            self.known.insert(stack, frames.clone());
        }
        Ok(frames)
    }

    /// Where a stack goes on that shares words, and those that it has of its own; none if they lie past the end.
    fn own(&mut self, place: FramePlace) -> Result<Option<(Outer, Vec<u64>)>, ReadError> {
        let mut words = self.words(place.first, AT_ONCE)?;
        let Some(outer) = words.first().map(|word| Outer::of_word(*word)) else { return Ok(None) };
        let len = 1 + usize::from(outer.inner) + usize::from(outer.tail);
        if len > words.len() {
            words = self.words(place.first, len as u32)?;
        }
        Ok(words.get(1..len).map(|own| (outer, own.to_vec())))
    }

    /// So many words from one on, as far as the region goes.
    fn words(&mut self, first: u32, count: u32) -> Result<Vec<u64>, ReadError> {
        let end = (u64::from(first) + u64::from(count)).min(self.region.count);
        let mut words = Vec::with_capacity(count as usize);
        if u64::from(first) < end {
            (self.read)(RegionEntry { count: end, ..self.region }, first.into(), &mut words)?;
        }
        Ok(words)
    }
}
