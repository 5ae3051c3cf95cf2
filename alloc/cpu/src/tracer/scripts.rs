//! Of which interpreters the stacks that have slots have frames.

use poolscope_wire::trace::STACK_SLOTS;

use crate::script::{self, InStack};

/// A bit for each slot.
type Bits = [u64; STACK_SLOTS / 64];

/// What is known of the slots of frames. Zeroed memory is that of a thread of which no stack has a slot.
pub struct Scripts {
    /// Slots are noted: the program has an interpreter.
    is_on: bool,
    /// Those of stacks without frames of Python's, and of those without Ruby's.
    without: [Bits; 2],
}

impl Scripts {
    /// Whether interpreters are to be asked what they run. What had a slot before there was any is of a stack without
    /// their frames.
    #[inline(always)]
    pub fn are_there(&mut self) -> bool {
        let are_there = script::is_there();
        if are_there && !self.is_on {
            self.begin();
        }
        are_there
    }

    #[cold]
    #[inline(never)]
    fn begin(&mut self) {
        self.is_on = true;
        self.without.iter_mut().for_each(|bits| bits.fill(u64::MAX));
    }

    /// Of which the stack of a slot has frames.
    pub fn of(&self, slot: u32) -> InStack {
        let has_frames = |bits: &Bits| bits[slot as usize / 64] & 1 << (slot % 64) == 0;
        let [python, ruby] = &self.without;
        InStack { python: has_frames(python), ruby: has_frames(ruby) }
    }

    /// Notes that of a slot.
    pub fn note(&mut self, slot: u32, InStack { python, ruby }: InStack) {
        for (bits, has_frames) in self.without.iter_mut().zip([python, ruby]) {
            let (word, bit) = (&mut bits[slot as usize / 64], 1 << (slot % 64));
            *word = *word & !bit | if has_frames { 0 } else { bit };
        }
    }
}
