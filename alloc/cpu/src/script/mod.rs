//! Functions that an interpreter runs, as it keeps them for itself: CPython's and Ruby's.
//!
//! The stack that is captured has the interpreter's own calls alone. What they run it is the thread itself that reads,
//! as it allocates, so that nobody changes it meanwhile: no lock is needed, and none is taken. Where a thread runs
//! functions of both, Python's are read.
//!
//! The library that is preloaded asks the loader at the start whether there is one. Any other is found when the first
//! frame in its module is seen: one that the program loads later, as a server loads one with a plugin, or that of a
//! process in which a library has the pool for itself. What is loaded later may be unloaded as well: so it is asked only
//! by a thread in whose stack its module is, while that is the one that was found.

pub mod python;
pub mod ruby;
mod words;

pub use words::returns_to;

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering};

use poolscope_capture::Symbol;
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

/// Says what a name is in an interpreter.
pub type Find<'a> = &'a dyn Fn(&CStr) -> Option<Symbol>;

/// Since when an interpreter is there.
#[derive(Clone, Copy)]
pub enum Since {
    /// The program began with it, and it stays.
    Start,
    /// The program has loaded the module of this index, and may unload it.
    Loaded(usize),
}

impl Since {
    /// Whether it stays.
    pub fn is_of_the_start(self) -> bool {
        matches!(self, Since::Start)
    }

    /// Whether it is loaded now.
    fn is_loaded(self) -> bool {
        match self {
            Since::Start => true,
            Since::Loaded(index) => poolscope_capture::is_loaded(index),
        }
    }
}

/// Whether there is, or was, an interpreter whose calls can be read.
static THERE: AtomicBool = AtomicBool::new(false);

/// One of them was loaded later.
static LATER: AtomicBool = AtomicBool::new(false);

/// Whether one may have to be asked that has its words of each thread made when they are first used, which allocates.
pub fn may_allocate() -> bool {
    LATER.load(Ordering::Relaxed)
}

/// Whether the program has an interpreter whose calls can be read, or had one.
#[inline(always)]
pub fn is_there() -> bool {
    THERE.load(Ordering::Relaxed)
}

/// Somebody has said whether the program began with one.
static TOLD: AtomicBool = AtomicBool::new(false);

/// Has interpreters be found in modules.
pub fn start() {
    poolscope_capture::on_module(look_at);
}

/// Looks whether a module in which the calling thread has a frame is an interpreter's.
#[cold]
fn look_at(index: usize) {
    let stays = poolscope_capture::module(index).is_some_and(|module| module.stays);
    if stays && TOLD.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: there is a frame in it.
    let find = |name: &CStr| unsafe { poolscope_capture::symbol(index, name) };
    let since = if stays { Since::Start } else { Since::Loaded(index) };
    // SAFETY: as above.
    unsafe { begin(&find, since) };
}

/// Says whether the program began with an interpreter, and which: the one that `find` finds.
///
/// # Safety
/// As for [`begin`], of what is there from the start.
pub unsafe fn tell(find: Option<Find<'_>>) {
    TOLD.store(true, Ordering::Relaxed);
    if let Some(find) = find {
        // SAFETY: the caller's promise.
        unsafe { begin(find, Since::Start) };
    }
}

/// Says that the program has the interpreters that `find` finds, if there are any. Nothing comes of one that is not known,
/// and of another one of a language.
///
/// # Safety
/// What `find` finds is of at most one CPython and one Ruby, and loaded as long as `since` says.
unsafe fn begin(find: Find<'_>, since: Since) {
    // SAFETY: the caller's promise.
    let is_any = unsafe { python::begin(find, since) | ruby::begin(find, since) };
    if is_any {
        LATER.fetch_or(!since.is_of_the_start(), Ordering::Relaxed);
        THERE.store(true, Ordering::Release);
    }
}

/// Of which interpreters a stack has frames.
#[derive(Clone, Copy)]
pub struct InStack {
    pub python: bool,
    pub ruby: bool,
}

impl InStack {
    /// Looks at the frames.
    pub fn of(frames: &[u64]) -> InStack {
        InStack { python: python::is_in(frames), ruby: ruby::is_in(frames) }
    }
}

/// Calls of a thread, innermost first. Zeroes are none.
pub struct Calls {
    python: python::Running,
    ruby: ruby::Running,
    calls: [Call; CALLS_MAX],
}

impl Calls {
    /// Reads those of the calling thread, in whose stack these interpreters are.
    #[cold]
    pub fn read(&mut self, in_stack: InStack) {
        self.python.read(in_stack.python);
        let runs_python = self.python.hash() != 0;
        self.ruby.read(in_stack.ruby && !runs_python);
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
