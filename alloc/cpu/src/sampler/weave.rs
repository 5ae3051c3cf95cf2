//! Stacks with the calls of what an interpreter ran in them.

use core::ops::Range;

use poolscope_capture::MAX_DEPTH;
use poolscope_wire::stack_flags;

use crate::script::python::{self, Ranges};
use crate::script::{CALLS_MAX, Call, Function, returns_to, ruby};

/// Which of the interpreter's frames a stack does without, where it has calls of what that ran.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LeavesOut {
    /// None, of CPython's.
    Nothing,
    /// Those from the innermost of its calls to the outermost: there is room for more of Python's.
    Between,
    /// All.
    Interpreter,
}

/// A stack of these flags with the calls that the interpreter ran in it, as far as there is room, and its flags then.
pub fn woven<'a>(
    (frames, flags): (&[u64], u16),
    (runs, calls): (&[u64], &[Call]),
    leaves_out: LeavesOut,
    words: &'a mut [u64; MAX_DEPTH],
) -> Option<(&'a [u64], u16)> {
    let (len, flags) = match calls.first()?.function()? {
        Function::Python(_) => (weave(frames, (runs, calls), python::ranges()?, leaves_out, words), flags),
        // Of frames that are missing Ruby's calls tell.
        Function::Ruby(method) => (put_between(frames, runs, (ruby::module()?, method.native()), leaves_out, words), 0),
    };
    let is_whole = len <= MAX_DEPTH && calls.len() < CALLS_MAX;
    Some((words.get(..len.min(MAX_DEPTH))?, flags | if is_whole { 0 } else { stack_flags::TRUNCATED }))
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
    let is_in = returns_to;
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

/// The most frames of Ruby's own code that stand before its calls: what it allocates by, and no more of what runs it.
const OWN_MAX: usize = 4;

/// The most frames that a program or a thread begins with: its main function, and who calls that.
const BEGINNING_MAX: usize = 4;

/// So far behind its start a function may still be the one that a frame is of.
const FUNCTION_MAX: u64 = 1 << 16;

/// Writes the innermost frames of a stack, up to the function of the innermost call if that is a native one, then all
/// calls, then the frames of who began Ruby in a program that is more than that. Between these are Ruby's own and those
/// of native functions, of which the calls tell. Returns how many words that takes; those that find no room are left out.
fn put_between(
    frames: &[u64],
    runs: &[u64],
    (module, native): (&Range<u64>, Option<u64>),
    leaves_out: LeavesOut,
    words: &mut [u64],
) -> usize {
    let is_own = |frame: &u64| returns_to(module, *frame);
    let inner = frames.get(..before_calls(frames, module, native)).unwrap_or(frames);
    let begins = frames.iter().rposition(is_own).map_or(frames.len(), |last| last + 1).max(inner.len());
    let outer = frames.get(begins..).filter(|outer| outer.len() > BEGINNING_MAX).unwrap_or_default();
    let leaves_own_out = leaves_out == LeavesOut::Interpreter;
    let inner = inner.iter().filter(|frame| !(leaves_own_out && is_own(frame)));
    let mut len = 0;
    for &word in inner.chain(runs).chain(outer) {
        if let Some(place) = words.get_mut(len) {
            *place = word;
        }
        len += 1;
    }
    len
}

/// How many of the innermost frames of a stack Ruby's innermost call has made.
fn before_calls(frames: &[u64], module: &Range<u64>, native: Option<u64>) -> usize {
    if let Some(function) = native {
        let behind = |frame: u64| frame.wrapping_sub(function + 1);
        let near = frames.iter().enumerate().filter(|(_, frame)| behind(**frame) < FUNCTION_MAX);
        // Its frames are nearer to its start than those of any other function.
        if let Some((at, _)) = near.min_by_key(|(_, frame)| behind(**frame)) {
            return at + 1;
        }
    }
    let Some(first) = frames.iter().position(|frame| returns_to(module, *frame)) else { return 0 };
    let own = frames.iter().skip(first).take(OWN_MAX).take_while(|frame| returns_to(module, **frame)).count();
    first + own
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

    #[test]
    fn rubys_calls_stand_behind_the_function_that_the_innermost_of_them_is() {
        let between = |frames: &[u64], native, leaves_out| {
            let mut words = [0; 16];
            let len = put_between(frames, &[1, 2], (&(500..600), native), leaves_out, &mut words);
            words[..len].to_vec()
        };
        // 900 is the C library's, 700 a library's for Ruby, 800 and more a program began with.
        let frames = [900, 510, 705, 707, 520, 530, 700, 540, 550, 800, 801];
        assert_eq!(between(&frames, Some(706), LeavesOut::Nothing), [900, 510, 705, 707, 1, 2]);
        assert_eq!(between(&frames, Some(706), LeavesOut::Interpreter), [900, 705, 707, 1, 2]);
        // One that called itself, or is known by no frame.
        assert_eq!(between(&[510, 705, 520, 705, 530, 800], Some(703), LeavesOut::Nothing), [510, 705, 1, 2]);
        assert_eq!(between(&frames, Some(100_000), LeavesOut::Nothing), [900, 510, 1, 2]);
        // Ruby's own code asked.
        let own = [900, 510, 520, 530, 540, 550, 560, 800];
        assert_eq!(between(&own, None, LeavesOut::Nothing), [900, 510, 520, 530, 540, 1, 2]);
        assert_eq!(between(&own, None, LeavesOut::Interpreter), [900, 1, 2]);
        // An editor calls Ruby.
        let editor = [510, 520, 801, 802, 803, 804, 805];
        assert_eq!(between(&editor, None, LeavesOut::Interpreter), [1, 2, 801, 802, 803, 804, 805]);
        // A thread of Ruby's, which nobody else began.
        assert_eq!(between(&[510, 520], None, LeavesOut::Nothing), [510, 520, 1, 2]);
        assert_eq!(between(&[900], None, LeavesOut::Nothing), [1, 2]);
    }
}
