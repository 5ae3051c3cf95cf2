//! Outer frames that stacks share.
//!
//! Stacks that a thread has one after another differ in their inner frames, and have the others in common: an
//! interpreter's stacks, of a hundred frames each, in all but five. A stack whose record has
//! [`SHARED`](crate::stack_flags::SHARED) begins, in [`Region::Frames`](crate::Region::Frames), with a word that says
//! where the rest of it is ([`Outer`]); behind it are the frames that it has of its own, the inner ones. The rest goes on
//! in another stack's own frames, from there where that one's rest is, and so on until there are as many as the record
//! says.

/// The most words of a stack, shared or its own: frames, and a label.
pub const WORDS_MAX: usize = 256;

/// The most stacks that a stack's words are spread over.
pub const RUNS_MAX: usize = 16;

/// Where the outer frames of a stack are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outer {
    /// Words that the stack has of its own.
    pub own: u16,
    /// The stack that has the next one: one that was there before.
    pub stack: u32,
    /// Which of the words that that one has of its own.
    pub from: u16,
}

impl Outer {
    /// The word.
    pub const fn word(self) -> u64 {
        self.own as u64 | (self.from as u64) << 16 | (self.stack as u64) << 32
    }

    /// What a word says.
    pub const fn of_word(word: u64) -> Self {
        Outer { own: word as u16, from: (word >> 16) as u16, stack: (word >> 32) as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_says_what_it_was_made_of() {
        for outer in [
            Outer { own: 0, stack: 0, from: 0 },
            Outer { own: 3, stack: 70_000, from: 9 },
            Outer { own: u16::MAX, stack: u32::MAX, from: u16::MAX },
        ] {
            assert_eq!(Outer::of_word(outer.word()), outer);
        }
    }
}
