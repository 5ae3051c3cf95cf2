//! Functions that an interpreter runs, as it keeps them for itself: CPython's and Ruby's.
//!
//! The stack that is captured has the interpreter's own calls alone. What they run it is the thread itself that reads,
//! as it allocates, so that nobody changes it meanwhile: no lock is needed, and none is taken. A program is taken to
//! have one interpreter.

pub mod python;
pub mod ruby;
mod words;

use core::ops::Range;

use poolscope_wire::script::Language;

/// The most calls that are read of a thread.
pub const CALLS_MAX: usize = 128;

/// A call that the interpreter runs. Zeroes are a value of it.
#[derive(Clone, Copy)]
pub struct Call {
    /// The address of what runs: code of CPython's, a frame of Ruby's.
    runs: usize,
    /// How far it has come ([`poolscope_wire::script::Call::at`]); `u32::MAX` if that is not known.
    pub at: u32,
    /// It is the first that its call of the interpreter's ran, where that is known.
    pub is_last: bool,
}

/// What tells a function from others that lay at its address before, or will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Where it lies.
    pub address: usize,
    /// The objects that are its name, and its table of lines or its file.
    name: usize,
    table: usize,
    first_line: u32,
}

impl Identity {
    /// That of no function.
    pub const NONE: Identity = Identity { address: 0, name: 0, table: 0, first_line: 0 };
}

/// A function that the calling thread runs.
pub enum Function {
    /// One of Python's.
    Python(python::Code),
    /// One of Ruby's.
    Ruby(ruby::Method),
}

impl Function {
    /// Whose it is.
    pub fn language(&self) -> Language {
        match self {
            Function::Python(_) => Language::Python,
            Function::Ruby(_) => Language::Ruby,
        }
    }

    /// What it is known by.
    pub fn identity(&self) -> Identity {
        match self {
            Function::Python(code) => code.identity(),
            Function::Ruby(method) => method.identity(),
        }
    }

    /// Writes its words ([`poolscope_wire::script`]), and says how many they are.
    pub fn describe(&self, into: &mut [u64]) -> usize {
        match self {
            Function::Python(code) => code.describe(into),
            Function::Ruby(method) => method.describe(into),
        }
    }
}

impl Call {
    #[cfg(test)]
    pub(crate) fn testing(is_last: bool) -> Call {
        Call { runs: 0, at: 0, is_last }
    }

    /// The function, as long as the thread that runs it is in the pool.
    pub fn function(&self) -> Option<Function> {
        python::code(self.runs).map(Function::Python).or_else(|| ruby::method(self.runs).map(Function::Ruby))
    }
}

/// Where the program's interpreter lies.
pub enum Interpreter<'a> {
    /// CPython.
    Python(&'a python::Ranges),
    /// Ruby: the file that it is in.
    Ruby(&'a Range<u64>),
}

/// The program's interpreter, if it has one whose calls can be read.
pub fn interpreter() -> Option<Interpreter<'static>> {
    python::ranges().map(Interpreter::Python).or_else(|| ruby::module().map(Interpreter::Ruby))
}

/// Whether there is one.
#[inline]
pub fn is_there() -> bool {
    python::is_there() || ruby::is_there()
}

/// Whether the interpreter may be running functions in a stack of these frames.
pub fn may_run_in(frames: &[u64]) -> bool {
    ruby::module().is_none_or(|module| frames.iter().any(|&frame| returns_to(module, frame)))
}

/// Whether a frame is in a range. It is where a call returns to, which may be the first address of what lies behind.
#[inline]
pub fn returns_to(range: &Range<u64>, frame: u64) -> bool {
    frame.wrapping_sub(1 + range.start) < range.end - range.start
}

/// Calls of a thread, innermost first. Zeroes are none.
pub struct Calls {
    python: python::Running,
    ruby: ruby::Running,
    calls: [Call; CALLS_MAX],
}

impl Calls {
    /// Reads those of the calling thread.
    #[cold]
    pub fn read(&mut self) {
        if ruby::is_there() {
            self.ruby.read();
        } else {
            self.python.read();
        }
    }

    /// Takes the thread to run none.
    #[cold]
    pub fn clear(&mut self) {
        self.ruby.clear();
    }

    /// What tells those that were read last from others; 0 if there are none.
    pub fn hash(&self) -> u64 {
        if ruby::is_there() { self.ruby.hash() } else { self.python.hash() }
    }

    /// Those that were read last.
    pub fn get(&mut self) -> &[Call] {
        let Calls { python, ruby, calls } = self;
        let len = if ruby::is_there() { ruby.write(calls) } else { python.write(calls) };
        calls.get(..len).unwrap_or_default()
    }
}
