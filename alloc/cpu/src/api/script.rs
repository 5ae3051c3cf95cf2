//! What a program says of the interpreter that it has, and asks of the functions in stacks.

use poolscope_wire::script::{Call, Function};

use crate::entry::{self, Entry};
use crate::kernel::message::decimal;
use crate::sampler;
use crate::script::{self, python, ruby};

pub use crate::script::{python::Symbols as Python, ruby::Symbols as Ruby};

/// Says that the program has CPython: from now on stacks have the functions that it runs, if its structures are known.
///
/// # Safety
/// The symbols are those of one CPython, which is loaded and stays. Only the calling thread has allocated so far.
pub unsafe fn begin_python(symbols: Python) {
    // SAFETY: the caller's promise.
    unsafe { python::begin(symbols) };
    mark();
}

/// The same of Ruby, if its version is known.
///
/// # Safety
/// The symbols are those of one Ruby, which is loaded since the program began and stays. Only the calling thread has
/// allocated so far.
pub unsafe fn begin_ruby(symbols: Ruby) {
    // SAFETY: the caller's promise.
    unsafe { ruby::begin(symbols) };
    mark();
}

/// Has the calling thread's stacks have what the interpreter runs, as those of threads that begin will.
fn mark() {
    if let Entry::Heap(entered) = entry::enter() {
        entered.heap.sampling.marks.begin(script::is_there());
    }
}

/// Calls `f` with the function that a word of a stack is a call of, and with the line that it was at; false if it is an
/// address. `f` must not allocate or free.
pub fn with_call(word: u64, f: impl FnOnce(&Function<'_>, u32)) -> bool {
    let Some(call) = Call::of_word(word) else { return false };
    let Entry::Heap(entered) = entry::enter() else { return false };
    sampler::with_function(entered.slow, call.function, |function| f(function, function.line(call.at)))
}

/// Writes which function a word of a stack is a call of, `fill (cache.py:12)`, as far as there is room; of one without
/// a file, its name. Returns the bytes; 0 if it is an address.
pub fn say_call(word: u64, into: &mut [u8]) -> usize {
    let mut said = 0;
    with_call(word, |function, line| {
        let path = function.file().filter(|byte| *byte == b'/').count();
        let file = function.file().scan(path, |slashes, byte| {
            let is_path = *slashes > 0;
            *slashes -= usize::from(byte == b'/');
            Some((!is_path).then_some(byte))
        });
        let mut digits = [0; 20];
        let line = decimal(line.into(), &mut digits).iter().copied();
        let place = b" (".iter().copied().chain(file.flatten()).chain(*b":").chain(line).chain(*b")");
        let text = function.name().chain(place.take(if function.head.lens[1] == 0 { 0 } else { usize::MAX }));
        said = into.iter_mut().zip(text).map(|(to, byte)| *to = byte).count();
    });
    said
}
