//! Python's functions in stacks: each is described in the segment once ([`poolscope_wire::python`]), and stands in
//! every stack at the interpreter's call that ran it.

use core::ops::Range;

use poolscope_capture::MAX_DEPTH;
use poolscope_wire::python::{self, FUNCTION_WORDS};
use poolscope_wire::stack_flags;

use super::stack_table::{CapturedStack, StackTable, function, hash};
use super::{SAMPLER, Sampler, recent_stacks};
use crate::kernel::os;
use crate::python::objects::Identity;
use crate::python::{CALLS_MAX, Call, Ranges, ranges};
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
}

impl Functions {
    /// Before the first.
    pub const fn new() -> Self {
        Functions { known: core::ptr::null_mut(), places: 0, taken: 0, scratch: core::ptr::null_mut() }
    }

    /// Where the table and what is written beside it lie: addresses of Python's objects that hold nothing.
    pub fn addresses(&self) -> [(usize, usize); 2] {
        let range = |from: usize, len: usize| (from, from + if from == 0 { 0 } else { len });
        [range(self.known.addr(), self.places * size_of::<Known>()), range(self.scratch.addr(), size_of::<Scratch>())]
    }

    /// The index of a stack in which the interpreter ran these calls, added if it is new. Without memory it is that of
    /// the stack alone.
    pub fn intern(
        &mut self,
        segment: &Segment,
        stacks: &mut StackTable,
        stack: &CapturedStack<'_>,
        calls: &[Call],
    ) -> u32 {
        let with_calls = if calls.is_empty() { None } else { self.intern_woven(segment, stacks, stack, calls) };
        with_calls.unwrap_or_else(|| {
            let hash = hash(stack, &[]);
            let known = stacks.find(segment, hash, stack.len());
            known.unwrap_or_else(|| stacks.insert(segment, stack, hash, recent_stacks::shelf))
        })
    }

    /// The same of one with calls: it is known by its words before they are put in order. `None` without memory.
    fn intern_woven(
        &mut self,
        segment: &Segment,
        stacks: &mut StackTable,
        stack: &CapturedStack<'_>,
        calls: &[Call],
    ) -> Option<u32> {
        let Scratch { runs, words, .. } = self.run(segment, stacks, calls)?;
        let runs = runs.get(..calls.len())?;
        let hash = hash(stack, runs);
        let is_deep = stack.frames.len() + runs.len() > MAX_DEPTH;
        let leaves_out = if is_deep { LeavesOut::Between } else { LeavesOut::Nothing };
        if !is_deep && let Some(known) = stacks.find(segment, hash, stack.len() + runs.len()) {
            return Some(known);
        }
        let (frames, flags) = woven(stack.frames, (runs, calls), leaves_out, words)?;
        let stack = CapturedStack { frames, flags: stack.flags | flags, ..*stack };
        Some(match stacks.find(segment, hash, stack.len()).filter(|_| is_deep) {
            Some(known) => known,
            None => stacks.insert(segment, &stack, hash, recent_stacks::shelf),
        })
    }

    /// The words of calls, in a place of their own. `None` without memory.
    fn run(&mut self, segment: &Segment, stacks: &mut StackTable, calls: &[Call]) -> Option<&'static mut Scratch> {
        if self.scratch.is_null() {
            self.scratch = os::map(size_of::<Scratch>()).cast();
        }
        // SAFETY: mapped for good, and zeroes are a value of it; only reached under the sampler's lock.
        let scratch = unsafe { self.scratch.as_mut() }?;
        for (run, call) in scratch.runs.iter_mut().zip(calls) {
            let number = self.number(segment, stacks, call, &mut scratch.function);
            *run = python::Call { function: number?, at: Some(call.at) }.word()?;
        }
        Some(scratch)
    }

    /// The number of the function that a call is of.
    fn number(
        &mut self,
        segment: &Segment,
        stacks: &mut StackTable,
        call: &Call,
        scratch: &mut [u64; FUNCTION_WORDS],
    ) -> Option<u32> {
        let function = call.function()?;
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
        let before = core::mem::replace(self, Functions { known, places, taken: 0, scratch: self.scratch });
        if known.is_null() {
            self.places = 0;
        }
        for at in 0..if places > before.places { before.places } else { 0 } {
            // SAFETY: a place of the table before.
            let Known { identity, number } = unsafe { before.known.add(at).read() };
            if identity.address != 0
                && let Some(place) = self.place(&identity)
            {
                *place = Known { identity, number };
                self.taken += 1;
            }
        }
        if !before.known.is_null() {
            // SAFETY: nobody has it any more.
            unsafe { os::unmap(before.known.cast(), before.places * size_of::<Known>()) };
        }
    }
}

/// Calls `f` with a function of Python's that words of stacks name; false if there is none of this number. `f` must not
/// allocate or free.
pub fn with_function(slow: SlowPath, number: u32, f: impl FnOnce(&python::Function<'_>)) -> bool {
    let sampler = SAMPLER.lock(slow);
    let words = sampler.segment.as_ref().and_then(|segment| function(segment, number));
    words.and_then(python::Function::of_words).map(|function| f(&function)).is_some()
}

/// Puts the calls that the interpreter ran in a stack of `depth` frames in the place of the interpreter's own, for who
/// keeps the stacks of all allocations: which of its functions allocated makes many of one call, as in each that
/// unpacks the code of a module. Returns how many words there are then, and what is to be said of them. `None` without
/// memory: the frames stay as they are.
pub fn weave_into(slow: SlowPath, frames: &mut [u64; MAX_DEPTH], depth: usize, calls: &[Call]) -> Option<(usize, u16)> {
    let mut sampler = SAMPLER.lock(slow);
    let segment = sampler.own_segment()?;
    let Sampler { functions, stacks, .. } = &mut *sampler;
    let Scratch { runs, words, .. } = functions.run(&segment, stacks, calls)?;
    let runs = (runs.get(..calls.len())?, calls);
    let (woven, flags) = woven(frames.get(..depth)?, runs, LeavesOut::Interpreter, words)?;
    frames.get_mut(..woven.len())?.copy_from_slice(woven);
    Some((woven.len(), flags))
}

/// Which of the interpreter's frames a stack does without, where it has calls of what that ran.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LeavesOut {
    Nothing,
    /// Those from the innermost of its calls to the outermost: there is room for more of Python's.
    Between,
    /// All.
    Interpreter,
}

/// A stack with the calls that the interpreter ran in it, as far as there is room, and the flags that say whether there
/// was for all.
fn woven<'a>(
    frames: &[u64],
    (runs, calls): (&[u64], &[Call]),
    leaves_out: LeavesOut,
    words: &'a mut [u64; MAX_DEPTH],
) -> Option<(&'a [u64], u16)> {
    let len = weave(frames, (runs, calls), ranges()?, leaves_out, words);
    let is_whole = len <= MAX_DEPTH && calls.len() < CALLS_MAX;
    Some((words.get(..len.min(MAX_DEPTH))?, if is_whole { 0 } else { stack_flags::TRUNCATED }))
}

/// Writes the frames of a stack with what the interpreter ran in them: behind each of its calls the functions that this
/// one ran. Where none of its calls is known, as in an interpreter whose instructions are functions of their own, all
/// of them stand behind the innermost of its frames. Returns how many words that takes; those that find no room are
/// left out.
fn weave(
    frames: &[u64],
    (runs, calls): (&[u64], &[Call]),
    interpreter: &Ranges,
    leaves_out: LeavesOut,
    words: &mut [u64],
) -> usize {
    // A frame is where a call returns to, which may be the first address of what lies behind it.
    let is_in = |range: &Range<u64>, frame: u64| frame.wrapping_sub(1 + range.start) < range.end - range.start;
    let last = frames.iter().rposition(|frame| is_in(&interpreter.evaluate, *frame));
    let ends_at = || {
        let first = frames.iter().position(|frame| is_in(&interpreter.module, *frame))?;
        let behind = frames.iter().skip(first).position(|frame| !is_in(&interpreter.module, *frame))?;
        Some(first + behind)
    };
    let unknown_at = if last.is_none() { ends_at() } else { None };
    let mut runs = runs.iter().zip(calls);
    let mut len = 0;
    let mut push = |word: u64| {
        if let Some(place) = words.get_mut(len) {
            *place = word;
        }
        len += 1;
    };
    let (mut is_inside, mut was_call) = (false, false);
    for (at, &frame) in frames.iter().enumerate() {
        let is_call = is_in(&interpreter.evaluate, frame);
        is_inside |= is_call;
        let is_between = is_inside && last.is_some_and(|last| at <= last);
        if unknown_at == Some(at) {
            runs.by_ref().for_each(|(run, _)| push(*run));
        }
        // With `-X perf`, what calls the interpreter for a function is generated code, and no module's.
        let is_interpreters = is_in(&interpreter.module, frame) || was_call;
        let is_left_out = match leaves_out {
            LeavesOut::Nothing => false,
            LeavesOut::Between => is_between && is_interpreters,
            LeavesOut::Interpreter => !calls.is_empty() && is_interpreters,
        };
        if !is_left_out {
            push(frame);
        }
        was_call = is_call;
        if is_call {
            // The outermost has all that are left, should a call have been overlooked.
            for (run, call) in runs.by_ref() {
                push(*run);
                if call.is_last && last != Some(at) {
                    break;
                }
            }
        }
    }
    runs.for_each(|(run, _)| push(*run));
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERPRETER: Ranges = Ranges { evaluate: 100..200, module: 50..500 };

    /// Runs of functions and their calls, of which those in capitals are the last of one of the interpreter's.
    fn runs(names: &str) -> (Vec<u64>, Vec<Call>) {
        let run = |name: u8| (u64::from(name.to_ascii_lowercase()), Call::testing(name.is_ascii_uppercase()));
        names.bytes().map(run).unzip()
    }

    fn woven(frames: &[u64], names: &str, leaves_out: LeavesOut) -> Vec<u64> {
        let mut words = [0; 16];
        let (runs, calls) = runs(names);
        let len = weave(frames, (&runs, &calls), &INTERPRETER, leaves_out, &mut words);
        words[..len.min(16)].to_vec()
    }

    #[test]
    fn each_call_of_the_interpreter_is_followed_by_the_functions_that_it_ran() {
        let [a, b, c] = *b"abc";
        let [a, b, c] = [a, b, c].map(u64::from);
        // Return addresses: 200 is in the last instruction's call, 100 is what lies before.
        assert_eq!(woven(&[60, 150, 70, 200, 900], "aBC", LeavesOut::Nothing), [60, 150, a, b, 70, 200, c, 900]);
        assert_eq!(woven(&[60, 100, 150], "AB", LeavesOut::Nothing), [60, 100, 150, a, b]);
        // Without a call that is known, they are behind the interpreter; with one that is overlooked, at the outermost.
        assert_eq!(woven(&[900, 60, 70, 901, 80], "AB", LeavesOut::Nothing), [900, 60, 70, a, b, 901, 80]);
        assert_eq!(woven(&[900, 901], "A", LeavesOut::Nothing), [900, 901, a]);
        assert_eq!(woven(&[150, 900], "ABC", LeavesOut::Nothing), [150, a, b, c, 900]);
        // A call that ran nothing of which anybody knows.
        assert_eq!(woven(&[150, 160, 900], "A", LeavesOut::Nothing), [150, a, 160, 900]);
    }

    #[test]
    fn deep_stacks_do_without_the_interpreter_between_its_calls() {
        let [a, b, c] = *b"abc";
        let [a, b, c] = [a, b, c].map(u64::from);
        // 600 is another library's, 60 allocated, 70 began.
        // 601 is generated code.
        let frames = [60, 150, 80, 600, 80, 150, 601, 80, 150, 70, 900];
        assert_eq!(woven(&frames, "ABC", LeavesOut::Between), [60, a, 600, b, c, 70, 900]);
        let many = [150; 40];
        let (runs, calls) = runs("A");
        assert_eq!(weave(&many, (&runs, &calls), &INTERPRETER, LeavesOut::Nothing, &mut [0; 16]), 41);
    }

    #[test]
    fn recorded_stacks_do_without_the_interpreter_where_it_ran_functions() {
        let [a, b] = *b"ab";
        let [a, b] = [a, b].map(u64::from);
        let frames = [900, 60, 150, 80, 600, 80, 150, 601, 70, 901];
        assert_eq!(woven(&frames, "AB", LeavesOut::Interpreter), [900, a, 600, b, 901]);
        assert_eq!(woven(&frames, "", LeavesOut::Interpreter), frames);
        // Calls that are not known stand where the interpreter was.
        assert_eq!(woven(&[900, 60, 70, 901], "AB", LeavesOut::Interpreter), [900, a, b, 901]);
    }
}
