//! Outer frames that stacks share.
//!
//! Stacks that a thread has one after another differ in their inner frames, and have the others in common: an
//! interpreter's stacks, of a hundred frames each, in all but five. A stack whose record has
//! [`SHARED`](crate::stack_flags::SHARED) begins, in [`Region::Frames`](crate::Region::Frames), with a word that says
//! where the others are ([`Outer`]); behind it are the frames that it has of its own. The first of these are its inner
//! ones. Then it goes on in another stack's inner ones, from there where that one does, and so on. A stack that was cut at
//! the depth limit may have outermost ones of its own, too: those that the other one was too deep for. They end it, and no
//! other stack goes on in them.

/// The most words of a stack, shared or its own: frames, and a label.
pub const WORDS_MAX: usize = 256;

/// The most stacks that a stack's words are spread over.
pub const RUNS_MAX: usize = 16;

/// Where the outer frames of a stack are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outer {
    /// Inner words that the stack has of its own.
    pub inner: u16,
    /// Outermost words that it has of its own, behind these.
    pub tail: u8,
    /// The stack that has the one after the inner ones: one that was there before.
    pub stack: u32,
    /// Which of that one's inner words.
    pub from: u8,
}

impl Outer {
    /// The word.
    pub const fn word(self) -> u64 {
        self.inner as u64 | (self.from as u64) << 16 | (self.tail as u64) << 24 | (self.stack as u64) << 32
    }

    /// What a word says.
    pub const fn of_word(word: u64) -> Self {
        Outer { inner: word as u16, from: (word >> 16) as u8, tail: (word >> 24) as u8, stack: (word >> 32) as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_says_what_it_was_made_of() {
        for outer in [
            Outer { inner: 0, tail: 0, stack: 0, from: 0 },
            Outer { inner: 3, tail: 5, stack: 70_000, from: 9 },
            Outer { inner: u16::MAX, tail: u8::MAX, stack: u32::MAX, from: u8::MAX },
        ] {
            assert_eq!(Outer::of_word(outer.word()), outer);
        }
    }
}
