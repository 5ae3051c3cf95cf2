//! What a program says of the interpreter that it has, and asks of the functions in stacks.

use poolscope_wire::script::{Call, Function};

use crate::entry::{self, Entry};
use crate::kernel::message::decimal;
use crate::sampler;
use crate::script;

pub use poolscope_capture::Symbol;

pub use crate::script::Find;

/// Says whether the program began with an interpreter, where somebody knows that: from now on stacks have the functions
/// that CPython and Ruby run, if `find` finds them and their versions are known. All others are found without.
///
/// # Safety
/// What `find` finds is of at most one CPython and one Ruby, which are loaded and stay.
pub unsafe fn tell(find: Option<Find<'_>>) {
    // SAFETY: the caller's promise.
    unsafe { script::tell(find) };
}

/// Whether the program has a CPython that gets its objects from nobody but itself, and refuses `PYTHONMALLOC=malloc`.
pub fn has_only_its_own_allocator() -> bool {
    script::python::has_only_its_own_allocator()
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
