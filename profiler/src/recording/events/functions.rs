//! Functions that an interpreter runs in the stacks of a recording: those that its program has described, numbered as they came.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use poolscope_wire::script::{Call, FUNCTION_WORDS, Function};

/// Most functions of a file.
pub const MAX_FUNCTIONS: usize = 1 << 17;
/// Most words that they have together.
pub const MAX_WORDS: usize = 8 << 20;
/// So much is remembered of what a program says, which may be anything: then it is worked out anew.
const REMEMBERED: usize = 1 << 20;

/// The functions of a part.
#[derive(Debug, Default)]
pub struct Functions {
    /// Their words, one function after the other.
    words: Vec<u64>,
    /// Where the words of each end.
    ends: Vec<usize>,
    /// Their numbers here by those that the program gave them; none of those that there is no room for.
    numbers: HashMap<u32, Option<u32>>,
    /// Of each line of each function how far it had come when it was first seen there.
    lines: HashMap<(u32, u32), Option<u32>>,
    /// The calls that were seen, as the file has them; none of a function that there is not.
    calls: HashMap<u64, Option<u64>, BuildHasherDefault<WordHasher>>,
    /// Functions, and their words, of the parts before.
    before: (usize, usize),
    /// The stack that was looked at last, where it names functions.
    stack: Vec<u64>,
}

/// A call is a word that has few in common with others but by chance.
#[derive(Default)]
struct WordHasher(u64);

impl Hasher for WordHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Functions {
    /// None yet, beside so many that are in the file already, with so many words.
    pub fn beside(functions: usize, words: usize) -> Self {
        Self { before: (functions, words), ..Self::default() }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// The words of those that came after the first so many, each with how many it has.
    pub fn after(&self, count: usize) -> (Vec<usize>, &[u64]) {
        let start = self.start(count);
        let ends = self.ends.get(count..).unwrap_or_default();
        let lens = ends.iter().scan(start, |from, &end| Some(end - std::mem::replace(from, end)));
        (lens.collect(), self.words.get(start..).unwrap_or_default())
    }

    /// Where the words of one begin.
    fn start(&self, function: usize) -> usize {
        function.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0)
    }

    /// A stack as the file has it: its calls name functions of the part, which `read` gives the words of, and all that
    /// were at one line of one are the same. Calls of functions that can't be read are left out.
    pub fn in_part<'a>(&'a mut self, frames: &'a [u64], mut read: impl FnMut(u32) -> Option<Vec<u64>>) -> &'a [u64] {
        if frames.iter().all(|&word| Call::of_word(word).is_none()) {
            return frames;
        }
        let mut stack = std::mem::take(&mut self.stack);
        stack.clear();
        for &word in frames {
            match Call::of_word(word) {
                None => stack.push(word),
                Some(call) => stack.extend(match self.calls.get(&word) {
                    Some(known) => *known,
                    None => {
                        let new = self.call(call, &mut read);
                        remembered(&mut self.calls).insert(word, new);
                        new
                    }
                }),
            }
        }
        self.stack = stack;
        &self.stack
    }

    /// A call as the file has it.
    fn call(&mut self, call: Call, read: impl FnOnce(u32) -> Option<Vec<u64>>) -> Option<u64> {
        let function = match self.numbers.get(&call.function) {
            Some(known) => *known,
            None => {
                let number = read(call.function).and_then(|words| self.add(&words));
                // Of those that there are, none is forgotten: they are bounded.
                if self.numbers.len() < REMEMBERED || number.is_some() {
                    self.numbers.insert(call.function, number);
                }
                number
            }
        }?;
        let words = self.words.get(self.start(function as usize)..*self.ends.get(function as usize)?)?;
        let line = Function::of_words(words)?.line(call.at);
        let at = *remembered(&mut self.lines).entry((function, line)).or_insert(call.at);
        Call { function, at, ..call }.word()
    }

    fn add(&mut self, words: &[u64]) -> Option<u32> {
        let (functions, all) = self.before;
        let is_one = words.len() <= FUNCTION_WORDS && Function::of_words(words).is_some();
        let has_room = functions + self.ends.len() < MAX_FUNCTIONS && all + self.words.len() + words.len() <= MAX_WORDS;
        if !is_one || !has_room {
            return None;
        }
        self.words.extend(words);
        self.ends.push(self.words.len());
        Some(self.ends.len() as u32 - 1)
    }
}

/// A map with room for another entry.
fn remembered<K, V, S>(map: &mut HashMap<K, V, S>) -> &mut HashMap<K, V, S> {
    if map.len() >= REMEMBERED {
        map.clear();
    }
    map
}

/// The word of a stack of a part of which the functions have these numbers in the whole recording.
pub fn in_all(word: u64, numbers: &[u32]) -> u64 {
    let in_all = |call: Call| {
        let function = *numbers.get(call.function as usize)?;
        Call { function, ..call }.word()
    };
    Call::of_word(word).and_then(in_all).unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use poolscope_wire::script::{Head, Language, Lines};

    use super::*;

    fn function(name: &[u8; 8]) -> Vec<u64> {
        let head = Head { first_line: 3, lines: Lines::Ranges, lens: [8, 0, 0] };
        [&head.words()[..], &[u64::from_le_bytes(*name)]].concat()
    }

    fn call(function: u32, at: u32) -> u64 {
        Call { language: Language::Python, function, at: Some(at) }.word().expect("has room")
    }

    #[test]
    fn calls_name_the_functions_of_the_part_in_the_order_in_which_they_came() {
        let mut functions = Functions::default();
        let read = |number: u32| match number {
            700 => Some(function(b"allocate")),
            20 => Some(function(b"generate")),
            _ => None,
        };
        assert_eq!(functions.in_part(&[1, 2], |_| panic!("no call")), [1, 2]);
        // Where there is no table of lines, all is one line.
        let stack = [1, call(700, 8), 2, call(20, 4), call(700, 6), call(5, 0)];
        assert_eq!(functions.in_part(&stack, read), [1, call(0, 8), 2, call(1, 4), call(0, 8)]);
        assert_eq!(functions.in_part(&stack[..4], |_| panic!("is known")), [1, call(0, 8), 2, call(1, 4)]);
        let both = [function(b"allocate"), function(b"generate")].concat();
        assert_eq!(functions.after(0), (vec![3, 3], &both[..]));
        assert_eq!(functions.after(1), (vec![3], &both[3..]));
        assert_eq!((functions.after(2), functions.count()), ((Vec::new(), &[][..]), 2));
    }

    #[test]
    fn what_is_no_function_or_finds_no_room_is_left_out() {
        let mut functions = Functions::beside(MAX_FUNCTIONS - 1, 0);
        let stack = [call(1, 0), call(2, 0), call(3, 0)];
        let read = |number: u32| Some(if number == 1 { vec![9 << 32, 0] } else { function(b"generate") });
        assert_eq!(functions.in_part(&stack, read), [call(0, 0)]);
        let mut functions = Functions::beside(0, MAX_WORDS - 5);
        assert_eq!(functions.in_part(&stack, read), [call(0, 0)]);
    }

    #[test]
    fn a_program_that_names_ever_other_functions_makes_the_recorder_no_larger() {
        let mut functions = Functions::default();
        let read = |number: u32| (number == 7).then(|| function(b"generate"));
        for number in 0..REMEMBERED as u32 + 1000 {
            functions.in_part(&[call(number, 4)], read);
        }
        assert!(functions.calls.len() <= REMEMBERED && functions.numbers.len() <= REMEMBERED);
        assert_eq!(functions.in_part(&[call(7, 4)], |_| panic!("is known")), [call(0, 4)]);
    }

    #[test]
    fn calls_of_a_part_are_renumbered_and_addresses_are_not() {
        assert_eq!(in_all(call(1, 8), &[4, 14]), call(14, 8));
        assert_eq!(in_all(0x7fff_1234_5678, &[4, 14]), 0x7fff_1234_5678);
        assert_eq!(in_all(call(2, 8), &[4, 14]), call(2, 8), "there is no such function");
    }
}
