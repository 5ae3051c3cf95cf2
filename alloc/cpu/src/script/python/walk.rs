//! The frames of a thread's latest reading. Where the next one meets frames that are as they were, out to the last,
//! what was worked out of them still holds: a program allocates again and again in functions that the same others have
//! called.
//!
//! Each frame says where the one before it lies, and a reading would wait for each of these words. Where a frame lay
//! before it mostly lies again: the reading goes on from there, and the processor foresees that the two are equal.

use core::hint::black_box;

use crate::script::{CALLS_MAX, Identity};

/// Frames that are kept, at most. A thread that has more is read anew each time.
pub const FRAMES_MAX: usize = 2 * CALLS_MAX;

/// How far a reading looks into the one before for the frame that it begins with: functions that have returned since.
const RETURNED_MAX: usize = 16;

/// Which of the frames that a call of the interpreter's runs one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Role {
    /// It called the one before it.
    Inner = 0,
    /// It is the outermost.
    Last = 1,
    /// It is no function's, and stands behind the outermost.
    Between = 2,
}

/// What a frame says. Zeroes are a value of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Entry {
    /// Where it lies.
    pub frame: usize,
    /// Its function's code; at 0 where it is no function's.
    pub code: Identity,
    /// Bytes of bytecode before the instruction that it is at.
    pub at: u32,
    pub role: Role,
    /// What CPython has for these two.
    pub raw: (usize, u8),
}

impl Entry {
    fn hash(&self, outer: u64) -> u64 {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let Identity { address, name, table, first_line } = self.code;
        let code = address ^ name.rotate_left(16) ^ table.rotate_left(32);
        let place = u64::from(self.at) << 32 ^ u64::from(first_line) << 2 ^ self.role as u64;
        ((outer ^ code as u64).wrapping_mul(FACTOR).rotate_left(29) ^ place).wrapping_mul(FACTOR)
    }
}

/// A frame that a reading comes to.
pub trait Frame: Copy {
    /// Where it lies.
    fn address(self) -> usize;

    /// The same, which is known to lie there.
    fn lies_at(self, address: usize) -> Self;

    /// The one that called it.
    fn caller(self) -> Option<Self>;

    /// What it says.
    fn entry(self) -> Entry;

    /// Whether it says what one said that lay there, as far as that may have changed: what runs in it, and where.
    fn is_as(self, before: &Entry) -> bool;
}

/// The latest reading. Zeroes are one of no frames.
pub struct Walk {
    /// From the end backwards, so that the outermost frame of every reading is the last.
    known: [Entry; FRAMES_MAX],
    /// Of each of those and all outer ones.
    hashes: [u64; FRAMES_MAX],
    /// How many they are.
    len: usize,
    /// There were more.
    is_cut: bool,
    /// Of the reading that is going on: the frames that are not known, innermost first.
    new: [Entry; FRAMES_MAX],
    new_len: usize,
}

impl Walk {
    /// Takes the frames of a reading, from the innermost on.
    pub fn take<F: Frame>(&mut self, innermost: Option<F>) {
        self.new_len = 0;
        let is_cut = core::mem::replace(&mut self.is_cut, false);
        // Frames that are as they were, one behind the other: where the first of them lies, and the next.
        let mut run: Option<(usize, usize)> = None;
        let mut outer = innermost;
        while let Some(frame) = outer {
            if run.is_none() && !is_cut {
                run = self.find(frame.address());
            }
            if let Some((from, next)) = run {
                let known = self.known.get(next).filter(|known| known.frame == frame.address());
                if let Some(known) = known {
                    // Hidden from the compiler, which would take the address that it has instead.
                    let foreseen = frame.lies_at(black_box(known.frame));
                    if foreseen.is_as(known) {
                        run = Some((from, next + 1));
                        outer = foreseen.caller();
                        continue;
                    }
                }
                let is_same_call = known.is_some();
                self.renew(from, next);
                run = is_same_call.then_some((next + 1, next + 1));
            }
            if !self.push(frame.entry()) {
                break;
            }
            outer = frame.caller();
        }
        let mut known_from = FRAMES_MAX;
        if let Some((from, next)) = run {
            // They end where the earlier ones did, and there is room for those before them.
            if next == FRAMES_MAX && self.new_len <= from {
                known_from = from;
            } else {
                self.renew(from, next);
            }
        }
        self.put_before(known_from);
    }

    fn find(&self, frame: usize) -> Option<(usize, usize)> {
        let first = FRAMES_MAX - self.len;
        let after = self.known.get(first..)?.iter().take(RETURNED_MAX).position(|known| known.frame == frame)?;
        Some((first + after, first + after))
    }

    /// Adds one. False if there is no room.
    fn push(&mut self, entry: Entry) -> bool {
        let place = self.new.get_mut(self.new_len);
        self.is_cut |= place.is_none();
        place.map(|place| *place = entry).map(|()| self.new_len += 1).is_some()
    }

    /// Takes known ones for new.
    fn renew(&mut self, from: usize, to: usize) {
        for at in from..to {
            if let Some(&entry) = self.known.get(at) {
                self.push(entry);
            }
        }
    }

    /// Puts the new ones before the known ones from a place on.
    fn put_before(&mut self, known_from: usize) {
        let new = self.new.get(..self.new_len).unwrap_or_default();
        let mut at = known_from;
        let mut hash = self.hashes.get(at).copied().unwrap_or(0);
        for entry in new.iter().rev() {
            at = at.wrapping_sub(1);
            hash = entry.hash(hash);
            if let (Some(known), Some(of_known)) = (self.known.get_mut(at), self.hashes.get_mut(at)) {
                (*known, *of_known) = (*entry, hash);
            }
        }
        self.len = FRAMES_MAX - at;
    }

    /// The frames, innermost first.
    pub fn frames(&self) -> &[Entry] {
        self.known.get(FRAMES_MAX - self.len..).unwrap_or_default()
    }

    /// What tells them from others, but for chance; 0 of none.
    pub fn hash(&self) -> u64 {
        self.hashes.get(FRAMES_MAX - self.len).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A frame, and those that called it.
    #[derive(Clone, Copy)]
    struct Called<'a>(&'a [Entry]);

    impl Frame for Called<'_> {
        fn address(self) -> usize {
            self.entry().frame
        }

        fn lies_at(self, address: usize) -> Self {
            assert_eq!(address, self.address());
            self
        }

        fn caller(self) -> Option<Self> {
            innermost(&self.0[1..])
        }

        fn entry(self) -> Entry {
            self.0[0]
        }

        fn is_as(self, before: &Entry) -> bool {
            self.entry() == *before
        }
    }

    fn innermost(frames: &[Entry]) -> Option<Called<'_>> {
        (!frames.is_empty()).then_some(Called(frames))
    }

    fn entry(frame: usize, code: usize, at: u32) -> Entry {
        let code = Identity { address: code, name: code + 1, table: code + 2, first_line: 7 };
        Entry { frame, code, at, role: Role::Inner, raw: (0, 0) }
    }

    fn empty() -> Box<Walk> {
        // SAFETY: zeroes are a value.
        unsafe { Box::<Walk>::new_zeroed().assume_init() }
    }

    fn anew(frames: &[Entry]) -> (Vec<Entry>, u64) {
        let mut walk = empty();
        walk.take(innermost(frames));
        (walk.frames().to_vec(), walk.hash())
    }

    /// What a program does between two readings.
    #[derive(Clone, Debug)]
    enum Step {
        Call(usize),
        Return,
        GoOn(usize, u32),
        Exchange(usize, usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Vec<Step>>> {
        let step = prop_oneof![
            3 => (0usize..3).prop_map(Step::Call),
            2 => Just(Step::Return),
            3 => (0usize..4, 0u32..3).prop_map(|(depth, at)| Step::GoOn(depth, at)),
            1 => (0usize..300, 0usize..3).prop_map(|(depth, code)| Step::Exchange(depth, code)),
        ];
        prop::collection::vec(prop::collection::vec(step, 0..6), 1..60)
    }

    proptest! {
        #[test]
        fn a_reading_is_as_if_there_had_been_none_before(
            deep in prop_oneof![4 => 0usize..30, 1 => 250usize..262],
            readings in steps(),
        ) {
            // The outermost first, as they lie in memory.
            let mut stack: Vec<Entry> = (0..deep).map(|at| entry(1000 + 8 * at, 100, 0)).collect();
            let mut walk = empty();
            for steps in readings {
                for step in steps {
                    let from_inner = |depth: usize| stack.len().checked_sub(depth + 1);
                    match step {
                        Step::Call(code) => stack.push(entry(1000 + 8 * stack.len(), 100 + 10 * code, 0)),
                        Step::Return => drop(stack.pop()),
                        Step::GoOn(depth, at) => if let Some(inner) = from_inner(depth) { stack[inner].at = at },
                        Step::Exchange(depth, code) => if let Some(inner) = from_inner(depth) {
                            stack[inner].code.address = 100 + 10 * code;
                        },
                    }
                }
                let frames: Vec<Entry> = stack.iter().rev().copied().collect();
                walk.take(innermost(&frames));
                let kept = &frames[..frames.len().min(FRAMES_MAX)];
                prop_assert_eq!(walk.frames(), kept);
                prop_assert_eq!(walk.is_cut, stack.len() > FRAMES_MAX);
                prop_assert_eq!((walk.frames().to_vec(), walk.hash()), anew(kept));
            }
        }
    }

    #[test]
    fn what_differs_has_another_number() {
        let of = |frames: &[Entry]| anew(frames).1;
        let one = entry(1, 100, 4);
        let of_code = |code: Identity| Entry { code, ..one };
        let others = [
            of_code(Identity { address: 108, ..one.code }),
            of_code(Identity { name: 108, ..one.code }),
            of_code(Identity { table: 108, ..one.code }),
            of_code(Identity { first_line: 8, ..one.code }),
            Entry { at: 6, ..one },
            Entry { role: Role::Last, ..one },
        ];
        assert!(others.iter().all(|other| of(&[*other]) != of(&[one])), "{others:?}");
        assert_ne!(of(&[one, one]), of(&[one]));
        // Where it lies says nothing of what runs.
        assert_eq!(of(&[Entry { frame: 2, ..one }]), of(&[one]));
        assert_eq!(of(&[]), 0);
    }
}
