//! Functions that an interpreter runs, in stacks: each is described in the segment once ([`poolscope_wire::script`]),
//! and stands in every stack where it was called ([`weave`](super::weave)).

use poolscope_capture::MAX_DEPTH;
use poolscope_wire::script::{self, FUNCTION_WORDS};

use super::known_stacks::KnownStacks;
use super::stack_table::{CapturedStack, StackTable, UNKNOWN, function, hash};
use super::weave::{LeavesOut, woven};
use super::{SAMPLER, Sampler, recent_stacks};
use crate::kernel::os;
use crate::script::{CALLS_MAX, Call, Calls, Function, Identity};
use crate::segment::Segment;
use crate::sync::spin_lock::SlowPath;

/// Places for functions at first, a power of two: two pages.
const FIRST: usize = 1 << 7;

/// The most that there are. If it takes more functions than half of them, all are forgotten.
const MOST: usize = 1 << 16;

/// A function that is known.
struct Known {
    /// Its address is 0 if the place is free.
    identity: Identity,
    number: u32,
}

/// What is written before it is looked up. It has no place on a program's stack.
struct Scratch {
    /// The words of the calls that the interpreter runs.
    runs: [u64; CALLS_MAX],
    /// Those of the stack.
    words: [u64; MAX_DEPTH],
    function: [u64; FUNCTION_WORDS],
}

/// The functions that stacks have. The table of those that are known is private, by open addressing.
pub struct Functions {
    known: *mut Known,
    places: usize,
    taken: usize,
    scratch: *mut Scratch,
    stacks: KnownStacks,
}

impl Functions {
    /// Before the first.
    pub const fn new() -> Self {
        let (known, scratch) = (core::ptr::null_mut(), core::ptr::null_mut());
        Functions { known, places: 0, taken: 0, scratch, stacks: KnownStacks::new() }
    }

    /// Where the table and what is written beside it lie: addresses of an interpreter's objects that hold nothing.
    pub fn addresses(&self) -> [(usize, usize); 2] {
        let range = |from: usize, len: usize| (from, from + if from == 0 { 0 } else { len });
        [range(self.known.addr(), self.places * size_of::<Known>()), range(self.scratch.addr(), size_of::<Scratch>())]
    }

    /// The index of a stack in which the interpreter ran these calls, added if it is new. `of_frames` is what tells its
    /// frames from others. Without memory it is that of the stack alone.
    pub fn intern(
        &mut self,
        segment: &Segment,
        stacks: &mut StackTable,
        (stack, of_frames): (&CapturedStack<'_>, u64),
        calls: &mut Calls,
    ) -> u32 {
        let of_calls = calls.hash();
        if of_calls == 0 {
            return self.intern_bare(segment, stacks, stack);
        }
        let key = hash(&CapturedStack { frames: &[of_frames, of_calls, stack.flags.into()], ..*stack });
        self.stacks.find(key).unwrap_or_else(|| {
            let woven = self.intern_woven(segment, stacks, stack, calls.get());
            let Some(woven) = woven else { return self.intern_bare(segment, stacks, stack) };
            if woven != UNKNOWN {
                self.stacks.keep(key, woven);
            }
            woven
        })
    }

    /// The same of a stack in which none ran anything.
    pub fn intern_bare(&mut self, segment: &Segment, stacks: &mut StackTable, stack: &CapturedStack<'_>) -> u32 {
        // Not by `StackTable::intern`, which is part of its one caller: that is the sample of a program without calls.
        let hash = hash(stack);
        let known = stacks.find(segment, hash, stack.len());
        known.unwrap_or_else(|| stacks.insert(segment, stack, hash, recent_stacks::shelf))
    }

    /// The same of one with calls. `None` without memory.
    fn intern_woven(
        &mut self,
        segment: &Segment,
        stacks: &mut StackTable,
        stack: &CapturedStack<'_>,
        calls: &[Call],
    ) -> Option<u32> {
        let Scratch { runs, words, .. } = self.run(segment, stacks, calls)?;
        let runs = runs.get(..calls.len())?;
        let is_deep = stack.frames.len() + runs.len() > MAX_DEPTH;
        let leaves_out = if is_deep { LeavesOut::Between } else { LeavesOut::Nothing };
        let (frames, flags) = woven((stack.frames, stack.flags), (runs, calls), leaves_out, words)?;
        Some(self.intern_bare(segment, stacks, &CapturedStack { frames, flags, ..*stack }))
    }

    /// The words of calls, in a place of their own. `None` without memory.
    fn run(&mut self, segment: &Segment, stacks: &mut StackTable, calls: &[Call]) -> Option<&'static mut Scratch> {
        if self.scratch.is_null() {
            self.scratch = os::map(size_of::<Scratch>()).cast();
        }
        // SAFETY: mapped for good, and zeroes are a value of it; only reached under the sampler's lock.
        let scratch = unsafe { self.scratch.as_mut() }?;
        for (run, call) in scratch.runs.iter_mut().zip(calls) {
            let function = self.number(segment, stacks, &call.function()?, &mut scratch.function)?;
            *run = script::Call { language: call.language(), function, at: Some(call.at) }.word()?;
        }
        Some(scratch)
    }

    /// The number of a function.
    fn number(
        &mut self,
        segment: &Segment,
        stacks: &mut StackTable,
        function: &Function,
        scratch: &mut [u64; FUNCTION_WORDS],
    ) -> Option<u32> {
        let identity = function.identity();
        if let Some(known) = self.place(&identity).filter(|known| known.identity == identity) {
            return Some(known.number);
        }
        let len = function.describe(scratch);
        let number = stacks.intern_function(segment, scratch.get(..len)?)?;
        if 2 * (self.taken + 1) > self.places {
            self.make_room();
        }
        if let Some(place) = self.place(&identity) {
            let is_new = place.identity.address == 0;
            *place = Known { identity, number };
            self.taken += usize::from(is_new);
        }
        Some(number)
    }

    /// The place of a function, or of one that lay where it lies: a free one if there is none. `None` without memory.
    fn place(&mut self, identity: &Identity) -> Option<&mut Known> {
        let mask = self.places.checked_sub(1)?;
        let mut at = (identity.address >> 4).wrapping_mul(0x9e37_79b9) & mask;
        loop {
            // SAFETY: below the number of places, of which half are free; under the sampler's lock.
            let place = unsafe { &mut *self.known.add(at) };
            if place.identity.address == identity.address || place.identity.address == 0 {
                return Some(place);
            }
            at = (at + 1) & mask;
        }
    }

    /// A table of twice as many places, or an empty one.
    #[cold]
    fn make_room(&mut self) {
        let places = if self.places >= MOST { FIRST } else { (2 * self.places).max(FIRST) };
        let known: *mut Known = os::map(places * size_of::<Known>()).cast();
        let (before, places_before) = (self.known, self.places);
        (self.known, self.places, self.taken) = (known, if known.is_null() { 0 } else { places }, 0);
        for at in 0..if places > places_before { places_before } else { 0 } {
            // SAFETY: a place of the table before.
            let Known { identity, number } = unsafe { before.add(at).read() };
            if identity.address != 0
                && let Some(place) = self.place(&identity)
            {
                *place = Known { identity, number };
                self.taken += 1;
            }
        }
        if !before.is_null() {
            // SAFETY: nobody has it any more.
            unsafe { os::unmap(before.cast(), places_before * size_of::<Known>()) };
        }
    }
}

/// Calls `f` with a function that words of stacks name; false if there is none of this number. `f` must not
/// allocate or free.
pub fn with_function(slow: SlowPath, number: u32, f: impl FnOnce(&script::Function<'_>)) -> bool {
    let sampler = SAMPLER.lock(slow);
    let words = sampler.segment.as_ref().and_then(|segment| function(segment, number));
    words.and_then(script::Function::of_words).map(|function| f(&function)).is_some()
}

/// Puts the calls that the interpreter ran in a stack of so many frames, and of these flags, in the place of the
/// interpreter's own, for who keeps the stacks of all allocations: which of its functions allocated makes many of one
/// call, as in each that unpacks the code of a module. Returns how many words there are then, and their flags. `None`
/// without memory: the frames stay as they are.
pub fn weave_into(
    slow: SlowPath,
    frames: &mut [u64; MAX_DEPTH],
    (depth, flags): (usize, u16),
    calls: &[Call],
) -> Option<(usize, u16)> {
    let mut sampler = SAMPLER.lock(slow);
    let segment = sampler.own_segment()?;
    let Sampler { functions, stacks, .. } = &mut *sampler;
    let Scratch { runs, words, .. } = functions.run(&segment, stacks, calls)?;
    let runs = (runs.get(..calls.len())?, calls);
    let (woven, flags) = woven((frames.get(..depth)?, flags), runs, LeavesOut::Interpreter, words)?;
    frames.get_mut(..woven.len())?.copy_from_slice(woven);
    Some((woven.len(), flags))
}
