//! Functions that an interpreter runs, as it keeps them for itself: CPython's and Ruby's.
//!
//! The stack that is captured has the interpreter's own calls alone. What they run it is the thread itself that reads,
//! as it allocates, so that nobody changes it meanwhile: no lock is needed, and none is taken. Where a thread runs
//! functions of both, Python's are read.

pub mod python;
pub mod ruby;
mod words;

pub use words::returns_to;

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
    /// It is Ruby's, and else Python's.
    is_ruby: bool,
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
        Call { runs: 0, at: 0, is_ruby: false, is_last }
    }

    /// The function, as long as the thread that runs it is in the pool.
    pub fn function(&self) -> Option<Function> {
        if self.is_ruby {
            ruby::method(self.runs).map(Function::Ruby)
        } else {
            python::code(self.runs).map(Function::Python)
        }
    }

    /// Whose it is.
    pub fn language(&self) -> Language {
        if self.is_ruby { Language::Ruby } else { Language::Python }
    }
}

/// Whether the program has an interpreter whose calls can be read.
#[inline]
pub fn is_there() -> bool {
    python::is_there() || ruby::is_there()
}

/// Calls of a thread, innermost first. Zeroes are none.
pub struct Calls {
    python: python::Running,
    ruby: ruby::Running,
    calls: [Call; CALLS_MAX],
}

impl Calls {
    /// Reads those of the calling thread, which may run methods of Ruby's or not ([`ruby::may_run_in`]).
    #[cold]
    pub fn read(&mut self, may_run_ruby: bool) {
        let mut runs_python = false;
        if python::is_there() {
            self.python.read();
            runs_python = self.python.hash() != 0;
        }
        if ruby::is_there() {
            self.ruby.read(may_run_ruby && !runs_python);
        }
    }

    /// What tells those that were read last from others; 0 if there are none.
    pub fn hash(&self) -> u64 {
        if self.ruby.is_empty() { self.python.hash() } else { self.ruby.hash() }
    }

    /// Those that were read last.
    pub fn get(&mut self) -> &[Call] {
        let Calls { python, ruby, calls } = self;
        let len = if ruby.is_empty() { python.write(calls) } else { ruby.write(calls) };
        calls.get(..len).unwrap_or_default()
    }
}
