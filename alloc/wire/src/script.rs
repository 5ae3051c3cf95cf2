//! Functions in stacks that an interpreter runs: Python's and Ruby's.
//!
//! Where CPython called one of its functions, a stack has a word of its own, among the return addresses, behind the ones
//! of the interpreter's that the function called: which function it was, and how far it had come ([`Call`]). The function
//! itself is described once, by words in [`Region::Frames`](crate::Region::Frames) that have the record of a stack
//! ([`kind::FUNCTION`](crate::kind::FUNCTION)): its name, its file, and CPython's table of its lines, as it is
//! ([`Function`]). Readers work the line out. Ruby says the line itself: its methods have no table.

mod lines;

pub use lines::line;

/// Whose functions they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Language {
    /// CPython's.
    Python,
    /// CRuby's.
    Ruby,
}

impl Language {
    /// All that are known.
    pub const ALL: [Language; 2] = [Language::Python, Language::Ruby];

    /// The upper part of a call's word: no code lies at such an address.
    const fn mark(self) -> u64 {
        match self {
            Language::Python => 0x5059,
            Language::Ruby => 0x5242,
        }
    }
}

/// Bits for how far a function had come.
const AT_BITS: u32 = 20;

/// Bits for its number.
const FUNCTION_BITS: u32 = 48 - AT_BITS;

/// A call of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Whose it is.
    pub language: Language,
    /// The number of the record that has its words, among the stacks.
    pub function: u32,
    /// Bytes of its bytecode before the instruction that it was at, or its line, as [`Lines`] says; `None` if that is
    /// not known.
    pub at: Option<u32>,
}

impl Call {
    /// The word; `None` if there are too many functions.
    pub fn word(self) -> Option<u64> {
        let unknown = (1 << AT_BITS) - 1;
        let at = self.at.unwrap_or(unknown).min(unknown);
        let mark = self.language.mark() << 48;
        (self.function < 1 << FUNCTION_BITS).then_some(mark | u64::from(self.function) << AT_BITS | u64::from(at))
    }

    /// What a word says; `None` if it is a return address.
    pub fn of_word(word: u64) -> Option<Call> {
        let unknown = (1 << AT_BITS) - 1;
        let at = word & unknown;
        let language = Language::ALL.into_iter().find(|language| word >> 48 == language.mark())?;
        Some(Call {
            language,
            function: (word >> AT_BITS) as u32 & ((1 << FUNCTION_BITS) - 1),
            at: (at != unknown).then_some(at as u32),
        })
    }
}

/// What tells which line a function was at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Lines {
    /// `co_lnotab`, until 3.9.
    Steps = 1,
    /// `co_linetable` of 3.10.
    Ranges = 2,
    /// `co_linetable` since 3.11.
    Locations = 3,
    /// Nothing: a call has its line.
    Given = 4,
}

/// Bytes of a name that are kept.
pub const NAME_MAX: usize = 255;

/// Bytes of a file's path that are kept.
pub const FILE_MAX: usize = 511;

/// Bytes of a table of lines that are kept: of instructions behind them the line is not known.
pub const TABLE_MAX: usize = 7168;

/// The most words of a function.
pub const FUNCTION_WORDS: usize = 2 + (NAME_MAX + FILE_MAX + TABLE_MAX).div_ceil(8);

/// What a function's first words say. Its bytes lie behind them: name, file, table, and zeroes up to a whole word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The line of its `def`.
    pub first_line: u32,
    /// How its table is to be read.
    pub lines: Lines,
    /// Bytes of its name, of its file's path and of its table.
    pub lens: [u16; 3],
}

impl Head {
    /// Its words.
    pub fn words(self) -> [u64; 2] {
        let [name, file, table] = self.lens.map(u64::from);
        [u64::from(self.first_line) | (self.lines as u64) << 32, name | file << 16 | table << 32]
    }

    /// Bytes behind it.
    pub fn bytes(self) -> usize {
        self.lens.into_iter().map(usize::from).sum()
    }

    fn of_words([first, second]: [u64; 2]) -> Option<Head> {
        let lines = match first >> 32 {
            1 => Lines::Steps,
            2 => Lines::Ranges,
            3 => Lines::Locations,
            4 => Lines::Given,
            _ => return None,
        };
        let lens = [second as u16, (second >> 16) as u16, (second >> 32) as u16];
        Some(Head { first_line: first as u32, lines, lens })
    }
}

/// A function's words, which say all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function<'a> {
    /// What its first words say.
    pub head: Head,
    /// Those behind them.
    rest: &'a [u64],
}

impl<'a> Function<'a> {
    /// What words say, if they are those of a function.
    pub fn of_words(words: &'a [u64]) -> Option<Function<'a>> {
        let (first, rest) = words.split_first_chunk()?;
        let head = Head::of_words(*first)?;
        (rest.len() == head.bytes().div_ceil(8)).then_some(Function { head, rest })
    }

    fn bytes(&self, from: usize, len: u16) -> impl Iterator<Item = u8> + use<'a> {
        self.rest.iter().flat_map(|word| word.to_le_bytes()).skip(from).take(len.into())
    }

    /// The line that it was at, or that of its `def` where that is not known.
    pub fn line(&self, at: Option<u32>) -> u32 {
        let Head { first_line, lines, .. } = self.head;
        at.and_then(|at| line(lines, first_line, self.table(), at)).unwrap_or(first_line)
    }

    /// Its name, in UTF-8.
    pub fn name(&self) -> impl Iterator<Item = u8> + use<'a> {
        self.bytes(0, self.head.lens[0])
    }

    /// The path of its file, in UTF-8.
    pub fn file(&self) -> impl Iterator<Item = u8> + use<'a> {
        let [name, file, _] = self.head.lens;
        self.bytes(name.into(), file)
    }

    /// CPython's table of its lines; nothing where calls have their lines.
    pub fn table(&self) -> impl Iterator<Item = u8> + use<'a> {
        let [name, file, table] = self.head.lens;
        self.bytes(usize::from(name) + usize::from(file), table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_read_as_it_was_written_and_no_address_is_taken_for_one() {
        let call = |function, at| Call { language: Language::Python, function, at };
        for call in [
            call(1, Some(0)),
            call((1 << FUNCTION_BITS) - 1, Some((1 << AT_BITS) - 2)),
            call(77, None),
            Call { language: Language::Ruby, ..call(78, Some(9)) },
        ] {
            assert_eq!(Call::of_word(call.word().expect("has room")), Some(call));
        }
        assert_eq!(call(1 << FUNCTION_BITS, None).word(), None);
        let far = call(1, Some(1 << AT_BITS)).word().expect("has room");
        assert_eq!(Call::of_word(far).expect("is one").at, None);
        for address in [0, 0x7fff_ffff_ffff, 0xffff_8000_0000_0000, u64::MAX] {
            assert_eq!(Call::of_word(address), None);
        }
    }

    #[test]
    fn a_function_is_read_as_it_was_written() {
        let head = Head { first_line: 12, lines: Lines::Locations, lens: [3, 4, 2] };
        let [first, second] = head.words();
        let bytes = *b"run/a.py\x80\x01\0\0\0\0\0\0";
        let (words, _) = bytes.as_chunks();
        let all = [first, second, u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])];
        let function = Function::of_words(&all).expect("is one");
        assert_eq!(function.head, head);
        assert!(function.name().eq(*b"run") && function.file().eq(*b"/a.p") && function.table().eq(*b"y\x80"));
        for damaged in [&all[..3], &all[..1], &[], &[1, 0], &[9 << 32, 0]] {
            assert_eq!(Function::of_words(damaged), None);
        }
    }
}
