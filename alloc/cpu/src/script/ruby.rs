//! Which of its methods Ruby is running.
//!
//! Ruby tells profilers (`rb_profile_frames` and the like, `include/ruby/debug.h`): functions that take no lock and
//! allocate nothing, by what they do in the versions that are known here. They are asked by a thread that has Ruby's
//! lock, while it collects no garbage, and in whose stack Ruby's own code is: what they look at then stays as it is, and
//! a Ruby that has ended is not asked.

use core::ffi::{CStr, c_char, c_int};
use core::mem::transmute;
use core::ops::Range;
use core::sync::atomic::{AtomicPtr, Ordering};

use poolscope_wire::script::{FILE_MAX, Head, Lines, NAME_MAX};

use super::words::{Bytes, byte_at, returns_to, word_at};
use super::{CALLS_MAX, Call, Find, Identity, Since};
use crate::kernel::{os, this_thread};

/// An object of Ruby's, or a small value that is no object.
type Value = usize;

/// A function that takes no value and returns a number, and one that says a value of another one.
type Asks = unsafe extern "C" fn() -> c_int;
type OfValue = unsafe extern "C" fn(Value) -> Value;
type Frames = unsafe extern "C" fn(c_int, c_int, *mut Value, *mut c_int) -> c_int;
type Text = unsafe extern "C" fn(*mut Value) -> *const c_char;

/// The function that says what runs: what a Ruby is known by first.
pub const FRAMES: &CStr = c"rb_profile_frames";

/// What else it is known by: symbols of its.
#[derive(Clone, Copy)]
struct Symbols {
    /// The numbers of its version (`ruby_api_version`).
    version: [c_int; 3],
    /// `ruby_thread_has_gvl_p`: whether the calling thread is Ruby's, and has its lock.
    has_lock: Asks,
    /// `rb_during_gc`.
    is_collecting: Asks,
    /// `rb_profile_frames`: writes the frames of the calling thread from one on, innermost first, at most so many, and
    /// their lines. Returns how many.
    frames: Frames,
    /// `rb_profile_frame_label`, `_path`, `_first_lineno` and `_method_name`.
    label: OfValue,
    /// The path of its file.
    path: OfValue,
    /// The line that it begins in.
    first_line: OfValue,
    /// The name of one that is written in C.
    method_name: OfValue,
    /// `rb_profile_frame_singleton_method_p`.
    is_singleton: OfValue,
    /// `rb_class_attached_object`, since 3.2: what a singleton class is the class of.
    attached: Option<OfValue>,
    /// `rb_mod_name`: the name of a class, if it has one.
    class_name: OfValue,
    /// `rb_string_value_ptr`: the bytes of a string, with a zero behind them.
    text: Text,
    /// Where the calling thread has the word for what it executes (`ruby_current_ec`), until 3.1.
    context: Option<usize>,
}

impl Symbols {
    /// `None` if one of them is missing.
    ///
    /// # Safety
    /// What `find` finds is Ruby's.
    unsafe fn of(find: Find<'_>) -> Option<Symbols> {
        let address = |name| find(name).map(|symbol| symbol.address);
        // SAFETY: the caller's promise: Ruby's functions and constants, of the types that its headers give them.
        unsafe {
            let of_value = |name| Some(transmute::<usize, OfValue>(address(name)?));
            Some(Symbols {
                version: (address(c"ruby_api_version")? as *const [c_int; 3]).read(),
                has_lock: transmute::<usize, Asks>(address(c"ruby_thread_has_gvl_p")?),
                is_collecting: transmute::<usize, Asks>(address(c"rb_during_gc")?),
                frames: transmute::<usize, Frames>(address(FRAMES)?),
                label: of_value(c"rb_profile_frame_label")?,
                path: of_value(c"rb_profile_frame_path")?,
                first_line: of_value(c"rb_profile_frame_first_lineno")?,
                method_name: of_value(c"rb_profile_frame_method_name")?,
                is_singleton: of_value(c"rb_profile_frame_singleton_method_p")?,
                attached: of_value(c"rb_class_attached_object"),
                class_name: of_value(c"rb_mod_name")?,
                text: transmute::<usize, Text>(address(c"rb_string_value_ptr")?),
                context: address(c"ruby_current_ec"),
            })
        }
    }
}

struct Ruby {
    symbols: Symbols,
    /// Where each thread has the word for what it executes, from its thread pointer on.
    context: Option<usize>,
    module: Range<u64>,
    since: Since,
}

/// Null where there is no Ruby, or none that is known. Another one takes its place only when its module is no longer
/// loaded; its memory stays.
static RUBY: AtomicPtr<Ruby> = AtomicPtr::new(core::ptr::null_mut());

/// Says that the program has Ruby, if `find` finds one. False if its version is not known, or if there is another one
/// whose is.
///
/// # Safety
/// What `find` finds is one Ruby's, which is loaded as long as `since` says.
pub unsafe fn begin(find: Find<'_>, since: Since) -> bool {
    if find(FRAMES).is_none() || ruby().is_some_and(|known| known.since.is_loaded()) {
        return false;
    }
    // SAFETY: the caller's promise.
    let Some(symbols) = (unsafe { Symbols::of(find) }) else { return false };
    let context = symbols.context.map(|word| word.wrapping_sub(this_thread::address()));
    // From 3.3 on a thread that is not set up yet has no frames; in 3.1 one has to look.
    let is_known = match symbols.version {
        [3, 1, _] => context.is_some(),
        [3, 3 | 4, _] => true,
        _ => false,
    };
    let Some(module) = poolscope_capture::module_range(symbols.frames as usize).filter(|_| is_known) else {
        return false;
    };
    let place: *mut Ruby = os::map(size_of::<Ruby>()).cast();
    if place.is_null() {
        return false;
    }
    let module = module.start as u64..module.end as u64;
    // SAFETY: just mapped, for as long as the process runs.
    unsafe { place.write(Ruby { symbols, context, module, since }) };
    RUBY.store(place, Ordering::Release);
    true
}

fn ruby() -> Option<&'static Ruby> {
    // SAFETY: null, or what `begin` wrote, which is never changed.
    unsafe { RUBY.load(Ordering::Acquire).as_ref() }
}

/// Where its code lies.
pub fn module() -> Option<&'static Range<u64>> {
    ruby().map(|ruby| &ruby.module)
}

/// Whether one of these frames is in Ruby's module.
pub fn is_in(frames: &[u64]) -> bool {
    module().is_some_and(|module| frames.iter().any(|&frame| returns_to(module, frame)))
}

/// The method of a frame that the calling thread runs.
pub fn method(frame: usize) -> Option<Method> {
    ruby().map(|ruby| Method { frame, ruby })
}

impl Ruby {
    /// Whether the calling thread's methods can be asked for now.
    fn may_ask(&self) -> bool {
        // SAFETY: functions that may be called at any time by a thread in whose stack Ruby's code is: both look at words
        // of Ruby's own.
        unsafe { (self.symbols.has_lock)() != 0 && self.is_set_up() && (self.symbols.is_collecting)() == 0 }
    }

    /// Whether the calling thread has a stack for its frames, and the innermost lies there.
    ///
    /// # Safety
    /// The calling thread is Ruby's.
    unsafe fn is_set_up(&self) -> bool {
        let Some(context) = self.context else { return true };
        // SAFETY: a word of each thread's, as the loader laid it out before the program began. What it points to begins
        // with the frames' memory, the number of its words, and the innermost frame (`rb_execution_context_struct`).
        unsafe {
            let context = word_at(this_thread::address().wrapping_add(context));
            if context == 0 {
                return false;
            }
            let (memory, words, innermost) = (word_at(context), word_at(context + 8), word_at(context + 16));
            memory != 0 && innermost.wrapping_sub(memory) < words.wrapping_mul(8)
        }
    }
}

/// What the thread ran at its latest reading. Zeroes are nothing.
pub struct Running {
    frames: [Value; CALLS_MAX],
    lines: [c_int; CALLS_MAX],
    len: usize,
}

impl Running {
    /// Reads what the thread runs, if it may run anything.
    pub(super) fn read(&mut self, may_run: bool) {
        self.len = 0;
        let Some(ruby) = ruby().filter(|ruby| may_run && ruby.since.is_loaded() && ruby.may_ask()) else { return };
        let (frames, lines) = (self.frames.as_mut_ptr(), self.lines.as_mut_ptr());
        // SAFETY: both have room for so many.
        let count = unsafe { (ruby.symbols.frames)(0, CALLS_MAX as c_int, frames, lines) };
        self.len = usize::try_from(count).unwrap_or(0).min(CALLS_MAX);
        // Until 3.2 the outermost is one that Ruby has made for itself: it is no method's, and has come nowhere.
        if let Some(last) = self.len.checked_sub(1)
            && self.lines.get(last) == Some(&0)
            && self.frames.get(last).is_some_and(|&frame| Method { frame, ruby }.entry().is_none())
        {
            self.len = last;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn each(&self) -> impl Iterator<Item = (Value, u32)> {
        let line = |line: c_int| u32::try_from(line).ok().filter(|line| *line > 0).unwrap_or(u32::MAX);
        self.frames.iter().zip(&self.lines).take(self.len).map(move |(&frame, &at)| (frame, line(at)))
    }

    /// What tells the calls from others, but for chance; 0 of none.
    pub(super) fn hash(&self) -> u64 {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        self.each().fold(0, |hash, (frame, line)| {
            // Where one lies says little once objects were collected.
            // SAFETY: frames that the thread runs are objects of so many words.
            let of = unsafe { word_at(frame + DEFINITION) }.rotate_left(20);
            ((hash ^ (frame ^ of) as u64).wrapping_mul(FACTOR).rotate_left(29) ^ u64::from(line)).wrapping_mul(FACTOR)
        })
    }

    /// Writes the calls, and says how many they are.
    pub(super) fn write(&self, calls: &mut [Call; CALLS_MAX]) -> usize {
        for (call, (runs, at)) in calls.iter_mut().zip(self.each()) {
            *call = Call { runs, at, is_ruby: true, is_last: false };
        }
        self.len
    }
}

/// Kinds of objects: the low bits of their first word.
mod kind {
    pub const MASK: usize = 0x1f;
    pub const CLASS: usize = 0x02;
    pub const MODULE: usize = 0x03;
    pub const STRING: usize = 0x05;
    pub const INTERNAL: usize = 0x1a;
    /// Of an internal object, bits that say what it is, and those of a method's entry.
    pub const INTERNAL_MASK: usize = 0xf << 12;
    pub const ENTRY: usize = 6 << 12;
}

/// In a method's entry: the class that has it, its definition (where other frames have their code), and what it was
/// defined in.
const CLASS: usize = 8;
const DEFINITION: usize = 16;
const OWNER: usize = 32;
/// In a definition: what kind it is, the bits of that, one that is written in C, and its function.
const DEFINITION_KIND: usize = 0xf;
const IN_C: usize = 1;
const FUNCTION: usize = 8;
/// The value of `true`.
const TRUE: Value = 0x14;

/// Whether a value is an object of one of these kinds.
///
/// # Safety
/// It is a value of Ruby's.
unsafe fn is_a(value: Value, kinds: &[usize]) -> bool {
    // Values that are no objects have one of the low bits, or are small.
    // SAFETY: the caller's promise: an object begins with its kind.
    value > 0xff && value & 7 == 0 && kinds.contains(&(unsafe { word_at(value) } & kind::MASK))
}

/// A method, or what else of Ruby's has a frame, which the calling thread runs.
#[derive(Clone, Copy)]
pub struct Method {
    frame: Value,
    ruby: &'static Ruby,
}

impl Method {
    /// The entry of a method, which frames of methods are; others are their code.
    fn entry(self) -> Option<usize> {
        // SAFETY: a frame that Ruby has said is an object.
        let is_entry =
            unsafe { is_a(self.frame, &[kind::INTERNAL]) && word_at(self.frame) & kind::INTERNAL_MASK == kind::ENTRY };
        is_entry.then_some(self.frame)
    }

    /// The function of a method that is written in C.
    pub fn native(self) -> Option<u64> {
        // SAFETY: an entry has a definition as long as it runs.
        unsafe {
            let definition = word_at(self.entry()? + DEFINITION);
            let is_native = definition != 0 && word_at(definition) & DEFINITION_KIND == IN_C;
            is_native.then(|| word_at(definition + FUNCTION) as u64)
        }
    }

    /// What it is known by.
    pub fn identity(self) -> Identity {
        let Symbols { label, path, first_line, .. } = self.ruby.symbols;
        // SAFETY: functions for frames that the thread runs; they read.
        let (name, table, line) = unsafe { (label(self.frame), path(self.frame), first_line(self.frame)) };
        // A number is written as the one that is one larger than its double.
        Identity { address: self.frame, name, table, first_line: (line >> 1) as u32 }
    }

    /// Writes its words ([`poolscope_wire::script`]), and says how many they are.
    pub fn describe(self, into: &mut [u64]) -> usize {
        let Identity { name, table: path, first_line, .. } = self.identity();
        let Some((head, rest)) = into.split_first_chunk_mut::<2>() else { return 0 };
        let mut bytes = Bytes::new(rest);
        if let Some((class, mark)) = self.class() {
            self.push_text(&mut bytes, class, NAME_MAX / 2);
            bytes.push(mark);
        }
        let is_named = name > 0xff;
        // SAFETY: as in `identity`; methods in C have no other name.
        let name = if is_named { name } else { unsafe { (self.ruby.symbols.method_name)(self.frame) } };
        self.push_text(&mut bytes, name, NAME_MAX);
        let named = bytes.len();
        self.push_text(&mut bytes, path, named + FILE_MAX);
        let lens = [named as u16, (bytes.len() - named) as u16, 0];
        let first_line = if is_named { first_line } else { 0 };
        let words = Head { first_line, lines: Lines::Given, lens };
        *head = words.words();
        head.len() + words.bytes().div_ceil(8)
    }

    /// The name of the class that a method is of, and what stands between the two; `None` if it has none, and until 3.1,
    /// where it lies in a table that may just be changing.
    fn class(self) -> Option<(Value, u8)> {
        let Symbols { attached, class_name, is_singleton, .. } = self.ruby.symbols;
        let attached = attached?;
        // SAFETY: an entry has both classes as long as its method runs. What a class is attached to may be asked of one
        // that is a singleton class: it is the one that `is_singleton` looks at.
        unsafe {
            let (entry, of) = (self.entry()?, word_at(self.entry()? + CLASS));
            let (class, mark) = match is_singleton(self.frame) {
                TRUE if is_a(of, &[kind::CLASS]) => (attached(of), b'.'),
                _ => (word_at(entry + OWNER), b'#'),
            };
            if !is_a(class, &[kind::CLASS, kind::MODULE]) {
                return None;
            }
            let name = class_name(class);
            is_a(name, &[kind::STRING]).then_some((name, mark))
        }
    }

    /// Adds the bytes of a string, as long as there are no more than `most` in all.
    fn push_text(self, bytes: &mut Bytes<'_>, mut string: Value, most: usize) {
        // SAFETY: a value of Ruby's; a string has a zero behind its bytes.
        unsafe {
            if !is_a(string, &[kind::STRING]) {
                return;
            }
            let text = (self.ruby.symbols.text)(&raw mut string) as usize;
            let mut at = 0;
            while bytes.len() < most && byte_at(text + at) != 0 {
                bytes.push(byte_at(text + at));
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use poolscope_wire::script::Function;

    use super::*;

    const NIL: Value = 4;

    /// An object of words, which stays.
    fn object(words: &[usize]) -> Value {
        words.to_vec().leak().as_ptr() as Value
    }

    fn string(text: &'static core::ffi::CStr) -> Value {
        object(&[kind::STRING, text.as_ptr() as usize])
    }

    fn word(value: Value, at: usize) -> usize {
        // SAFETY: the objects that are made here have so many words.
        unsafe { word_at(value + 8 * at) }
    }

    /// A Ruby whose frames have behind their entry what is asked of them, and whose classes have their names and what
    /// they are attached to.
    fn ruby() -> &'static Ruby {
        extern "C" fn no() -> c_int {
            0
        }
        extern "C" fn no_frames(_: c_int, _: c_int, _: *mut Value, _: *mut c_int) -> c_int {
            0
        }
        extern "C" fn label(frame: Value) -> Value {
            word(frame, 5)
        }
        extern "C" fn path(frame: Value) -> Value {
            word(frame, 6)
        }
        extern "C" fn first_line(frame: Value) -> Value {
            word(frame, 7)
        }
        extern "C" fn method_name(frame: Value) -> Value {
            word(frame, 8)
        }
        extern "C" fn is_singleton(frame: Value) -> Value {
            if word(frame, 9) == 1 { TRUE } else { 0 }
        }
        extern "C" fn class_name(class: Value) -> Value {
            word(class, 1)
        }
        extern "C" fn attached(class: Value) -> Value {
            word(class, 2)
        }
        extern "C" fn text(string: *mut Value) -> *const c_char {
            // SAFETY: the place of a string's value.
            word(unsafe { *string }, 1) as *const c_char
        }
        let symbols = Symbols {
            version: [3, 3, 0],
            has_lock: no,
            is_collecting: no,
            frames: no_frames,
            label,
            path,
            first_line,
            method_name,
            is_singleton,
            attached: Some(attached),
            class_name,
            text,
            context: None,
        };
        Box::leak(Box::new(Ruby { symbols, context: None, module: 0..0, since: Since::Start }))
    }

    /// What its words say: its name, its file, and the line that it begins in.
    fn described(frame: Value) -> (String, String, u32) {
        let mut words = [u64::MAX; 128];
        let len = Method { frame, ruby: ruby() }.describe(&mut words);
        let function = Function::of_words(&words[..len]).expect("is one");
        assert_eq!(function.line(Some(77)), 77, "calls have their lines");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("is text");
        (text(function.name().collect()), text(function.file().collect()), function.line(None))
    }

    #[test]
    fn methods_have_the_names_of_their_classes_and_what_is_no_method_has_its_own() {
        let entry = kind::INTERNAL | kind::ENTRY;
        let (in_ruby, in_c) = (object(&[0, 0]), object(&[IN_C, 0x5000]));
        let cache = object(&[kind::CLASS, string(c"App::Cache"), 0]);
        let tools = object(&[kind::MODULE, string(c"Tools"), 0]);
        let unnamed = object(&[kind::CLASS, NIL, 0]);
        let of_cache = object(&[kind::CLASS, NIL, cache]);
        let of_object = object(&[kind::CLASS, NIL, object(&[0x01, 0, 0])]);
        let (label, path, seven) = (string(c"fill"), string(c"app.rb"), 7 << 1 | 1);
        let method = |class, owner, is_singleton: usize| {
            object(&[entry, class, in_ruby, 0, owner, label, path, seven, NIL, is_singleton])
        };
        for (frame, name) in [
            (method(cache, cache, 0), "App::Cache#fill"),
            (method(cache, tools, 0), "Tools#fill"),
            (method(of_cache, of_cache, 1), "App::Cache.fill"),
            // Of a class without a name, and of an object that is none.
            (method(unnamed, unnamed, 0), "fill"),
            (method(of_object, of_object, 1), "fill"),
        ] {
            assert_eq!(described(frame), (name.to_owned(), "app.rb".to_owned(), 7));
            assert_eq!(Method { frame, ruby: ruby() }.native(), None);
        }
        let native = object(&[entry, cache, in_c, 0, cache, NIL, NIL, NIL, string(c"store"), 0]);
        assert_eq!(described(native), ("App::Cache#store".to_owned(), String::new(), 0));
        assert_eq!(Method { frame: native, ruby: ruby() }.native(), Some(0x5000));
        let code = object(&[kind::INTERNAL | 7 << 12, 0, 0, 0, 0, string(c"<main>"), path, 3, NIL, 0]);
        assert_eq!(described(code), ("<main>".to_owned(), "app.rb".to_owned(), 1));
    }

    #[test]
    fn long_names_are_cut() {
        let long: &'static core::ffi::CStr = Box::leak(std::ffi::CString::new("x".repeat(3000)).unwrap().into());
        let code = object(&[kind::INTERNAL | 7 << 12, 0, 0, 0, 0, string(long), string(long), 3, NIL, 0]);
        let (name, file, _) = described(code);
        assert_eq!((name.len(), file.len()), (NAME_MAX, FILE_MAX));
    }
}
