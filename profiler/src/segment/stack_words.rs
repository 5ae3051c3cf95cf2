//! Where the words of stacks lie in a segment: how those of all are read, and one stack's without all others'.

use std::collections::HashMap;
use std::sync::Arc;

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
    /// The words that stacks have of their own, and where they go on.
    known: HashMap<u32, (Arc<[u64]>, Option<Outer>)>,
}

/// So many words of a stack that shares others are read at once: few have more of their own.
const AT_ONCE: u32 = 16;

impl<'a, R: FnMut(RegionEntry, u64, &mut Vec<u64>) -> Result<(), ReadError>> StackWords<'a, R> {
    pub(crate) fn new(places: &'a [FramePlace], region: RegionEntry, read: R) -> Self {
        Self { places, region, read, known: HashMap::new() }
    }

    /// The words of a stack; none if what the segment says of them makes no sense.
    pub(crate) fn of(&mut self, stack: u32) -> Result<Frames, ReadError> {
        let Some(place) = self.places.get(stack as usize).copied() else { return Ok(Frames::default()) };
        if !place.shares {
            return Ok(self.words(place.first, place.depth.into())?.into());
        }
        let (own, outer) = self.own(stack)?;
        let Some(outer) = outer else { return Ok(Frames::default()) };
        let Some((inner, tail)) = own.split_at_checked(outer.inner.into()) else { return Ok(Frames::default()) };
        let mut words = Vec::with_capacity(place.depth());
        words.extend(inner);
        let Some(end) = place.depth().checked_sub(tail.len()) else { return Ok(Frames::default()) };
        let (mut before, mut next) = (stack, Some(outer));
        while words.len() < end {
            // Each is of a stack that was there before.
            let Some(outer) = next.filter(|outer| outer.stack < before) else { return Ok(Frames::default()) };
            let (own, beyond) = self.own(outer.stack)?;
            let inner = beyond.map_or(own.len(), |beyond| own.len().min(beyond.inner.into()));
            let Some(run) = own.get(outer.from.into()..inner).filter(|run| !run.is_empty()) else {
                return Ok(Frames::default());
            };
            words.extend(run.iter().take(end - words.len()));
            (before, next) = (outer.stack, beyond);
        }
        words.extend(tail);
        Ok(if words.len() == place.depth() { words.into() } else { Frames::default() })
    }

    /// The words that a stack has of its own, inner ones first, and where it goes on.
    fn own(&mut self, stack: u32) -> Result<(Arc<[u64]>, Option<Outer>), ReadError> {
        if let Some(known) = self.known.get(&stack) {
            return Ok(known.clone());
        }
        let place = self.places.get(stack as usize).copied().unwrap_or_default();
        let found = if place.shares {
            let mut words = self.words(place.first, AT_ONCE)?;
            let outer = words.first().map(|word| Outer::of_word(*word));
            let len = outer.map_or(0, |outer| 1 + u32::from(outer.inner) + u32::from(outer.tail));
            if len > AT_ONCE {
                words = self.words(place.first, len)?;
            }
            (words.get(1..len as usize).unwrap_or_default().into(), outer)
        } else {
            (self.words(place.first, place.depth.into())?.into(), None)
        };
        self.known.insert(stack, found.clone());
        Ok(found)
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
