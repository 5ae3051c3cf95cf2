//! Functions that an interpreter runs, as a segment describes them ([`poolscope_wire::script`]).

use std::collections::HashMap;
use std::sync::Arc;

use poolscope_wire::script::{self, Lines};

use crate::words::printable::printable;

/// A function of Python's or Ruby's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Function {
    /// Its name, with the names of what it is in where CPython knows them (from 3.11 on).
    pub name: String,
    /// The path of its file, or what stands for one, such as `<string>`.
    pub file: String,
    /// The line of its `def`.
    pub first_line: u32,
    /// How its table of lines is to be read.
    pub lines: Lines,
    /// That table, as CPython has it.
    pub table: Box<[u8]>,
}

impl Function {
    /// What the words of one say; `None` if they are not those of a function.
    pub fn of_words(words: &[u64]) -> Option<Function> {
        let function = script::Function::of_words(words)?;
        let text = |bytes: Vec<u8>| printable(&bytes);
        Some(Function {
            name: text(function.name().collect()),
            file: text(function.file().collect()),
            first_line: function.head.first_line,
            lines: function.head.lines,
            table: function.table().collect(),
        })
    }

    /// The line that it was at, or that of its `def` where that is not known.
    pub fn line(&self, at: Option<u32>) -> u32 {
        let line = |at| script::line(self.lines, self.first_line, self.table.iter().copied(), at);
        at.and_then(line).unwrap_or(self.first_line)
    }
}

/// The functions of a process by their numbers, which words of stacks name ([`script::Call`]). Copies share them.
#[derive(Clone, Debug, Default)]
pub struct Functions(Arc<HashMap<u32, Arc<Function>>>);

impl Functions {
    /// The function of a number.
    pub fn get(&self, number: u32) -> Option<&Function> {
        self.0.get(&number).map(|function| &**function)
    }

    /// Adds one.
    pub fn insert(&mut self, number: u32, function: Arc<Function>) {
        Arc::make_mut(&mut self.0).insert(number, function);
    }
}
