//! Which of its functions CPython is running, as it keeps it for itself.
//!
//! It lies in a list of frames, which a thread's state begins. The thread reads them between two of the interpreter's
//! instructions. Whose structures they are is known by the version ([`layout`]), and looked at once more before anything
//! is read.

mod layout;
mod objects;
mod walk;

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::ops::Range;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use layout::{At, Ends, First, Glance, Layout, OWNED_BY_INTERPRETER};
pub use objects::Code;
use walk::{Entry, Role, Walk};

use super::words::{byte_at, pointer_at, returns_to, word_at};
use super::{CALLS_MAX, Call, Find, Identity, Since};
use crate::kernel::os;

/// The type of CPython's strings: what a CPython is known by first.
pub const STRING_TYPE: &CStr = c"PyUnicode_Type";

/// Its address; 0 where there is no CPython.
static STRINGS: AtomicUsize = AtomicUsize::new(0);

/// The type of CPython's strings, of whatever version it is. `None` where there is no CPython.
pub fn string_type() -> Option<usize> {
    Some(STRINGS.load(Ordering::Relaxed)).filter(|address| *address != 0)
}

/// A function that says the state of a thread.
type OfThread = unsafe extern "C" fn() -> *const c_void;

/// What else it is known by: symbols of its.
#[derive(Clone, Copy)]
struct Symbols {
    /// `Py_GetVersion`.
    version: unsafe extern "C" fn() -> *const c_char,
    /// `PyGILState_GetThisThreadState`, which says null in a thread of which CPython knows nothing.
    thread_state: OfThread,
    /// `PyThreadState_GetUnchecked`, `_PyThreadState_UncheckedGet` in older ones: the state that is in use, of the
    /// calling thread, and until 3.11 of any. A thread has several in a program with several interpreters.
    state_in_use: OfThread,
    /// `Py_IsFinalizing`, `_Py_IsFinalizing` in older ones.
    is_finalizing: unsafe extern "C" fn() -> c_int,
    /// `PyType_Type`, `PyCode_Type` and `PyFrame_Type`.
    types: [usize; 3],
    /// The code of `_PyEval_EvalFrameDefault`.
    evaluate: (usize, usize),
}

impl Symbols {
    /// `None` if one of them is missing.
    ///
    /// # Safety
    /// What `find` finds is CPython's.
    unsafe fn of(find: Find<'_>) -> Option<Symbols> {
        let address = |name| find(name).map(|symbol| symbol.address);
        let state_in_use =
            address(c"PyThreadState_GetUnchecked").or_else(|| address(c"_PyThreadState_UncheckedGet"))?;
        let is_finalizing = address(c"Py_IsFinalizing").or_else(|| address(c"_Py_IsFinalizing"))?;
        let evaluate = find(c"_PyEval_EvalFrameDefault").filter(|symbol| symbol.size > 0)?;
        // SAFETY: the caller's promise: CPython's functions, of the types that its headers give them.
        unsafe {
            Some(Symbols {
                version: transmute::<usize, unsafe extern "C" fn() -> *const c_char>(address(c"Py_GetVersion")?),
                thread_state: transmute::<usize, OfThread>(address(c"PyGILState_GetThisThreadState")?),
                state_in_use: transmute::<usize, OfThread>(state_in_use),
                is_finalizing: transmute::<usize, unsafe extern "C" fn() -> c_int>(is_finalizing),
                types: [address(c"PyType_Type")?, address(c"PyCode_Type")?, address(c"PyFrame_Type")?],
                evaluate: (evaluate.address, evaluate.address + evaluate.size),
            })
        }
    }
}

/// Where the interpreter's code lies.
pub struct Ranges {
    /// What runs functions.
    pub evaluate: Range<u64>,
    /// The file that it is in.
    pub module: Range<u64>,
}

struct Interpreter {
    symbols: Symbols,
    layout: &'static Layout,
    glance: Glance,
    ranges: Ranges,
    since: Since,
}

/// Null where there is no CPython, or none whose structures are known. Another one takes its place only when its module
/// is no longer loaded; its memory stays.
static INTERPRETER: AtomicPtr<Interpreter> = AtomicPtr::new(core::ptr::null_mut());

/// Says that the program has CPython, if `find` finds one. False if its structures are not known, or if there is another
/// one whose are.
///
/// # Safety
/// What `find` finds is one CPython's, which is loaded as long as `since` says.
pub unsafe fn begin(find: Find<'_>, since: Since) -> bool {
    let is_known = interpreter().is_some_and(|known| known.since.is_loaded());
    let Some(strings) = find(STRING_TYPE).filter(|_| !is_known) else { return false };
    STRINGS.store(strings.address, Ordering::Relaxed);
    // SAFETY: the caller's promise.
    unsafe { begin_calls(find, since) }.is_some()
}

/// The same of its calls. `None` where they can't be read.
///
/// # Safety
/// As for `begin`.
unsafe fn begin_calls(find: Find<'_>, since: Since) -> Option<()> {
    // SAFETY: the caller's promise: CPython's, a function that says a constant text, and types, which are static.
    let (symbols, layout) = unsafe {
        let symbols = Symbols::of(find)?;
        let version = CStr::from_ptr((symbols.version)());
        let layout = layout::of_version(minor(version.to_bytes())?).find(|layout| {
            let [of_types, of_code, of_frames] = symbols.types;
            let is_of = |address: usize, size: usize| {
                objects::type_of(address, layout) == of_types && objects::size_of_objects(address, layout) == size
            };
            is_of(of_code, layout.sizes[0]) && is_of(of_frames, layout.sizes[1])
        })?;
        (symbols, layout)
    };
    let place: *mut Interpreter = os::map(size_of::<Interpreter>()).cast();
    if place.is_null() {
        return None;
    }
    let (start, end) = symbols.evaluate;
    let module = poolscope_capture::module_range(start).map_or(0..0, |range| range.start as u64..range.end as u64);
    let ranges = Ranges { evaluate: start as u64..end as u64, module };
    // SAFETY: just mapped, for as long as the process runs.
    unsafe { place.write(Interpreter { symbols, layout, glance: layout.glance(), ranges, since }) };
    INTERPRETER.store(place, Ordering::Release);
    Some(())
}

/// The number behind the `3.` of a version.
fn minor(version: &[u8]) -> Option<u32> {
    let digits = version.strip_prefix(b"3.")?.iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |number, digit| 10 * number + u32::from(digit - b'0')))
}

/// Whether there is one that has no allocator but its own: it is free-threaded.
pub fn has_only_its_own_allocator() -> bool {
    interpreter().is_some_and(|interpreter| interpreter.layout.is_free_threaded())
}

fn interpreter() -> Option<&'static Interpreter> {
    // SAFETY: null, or what `begin` wrote, which is never changed.
    unsafe { INTERPRETER.load(Ordering::Acquire).as_ref() }
}

/// Whether one of these frames is in CPython's module.
pub fn is_in(frames: &[u64]) -> bool {
    ranges().is_some_and(|ranges| frames.iter().any(|&frame| returns_to(&ranges.module, frame)))
}

/// Where its code lies.
pub fn ranges() -> Option<&'static Ranges> {
    interpreter().map(|interpreter| &interpreter.ranges)
}

/// The function of code that the calling thread runs.
pub fn code(address: usize) -> Option<Code> {
    interpreter().map(|interpreter| Code { address, layout: interpreter.layout })
}

/// What the thread ran at its latest reading. Zeroes are nothing.
pub struct Running(Walk);

impl Running {
    /// Reads what the thread runs, in whose stack CPython's module is or is not.
    pub(super) fn read(&mut self, is_in_stack: bool) {
        self.0.take(Frame::innermost(is_in_stack));
    }

    /// What tells the calls from others; 0 of none.
    pub(super) fn hash(&self) -> u64 {
        self.0.hash()
    }

    /// Writes the calls, and says how many they are.
    pub(super) fn write(&self, calls: &mut [Call; CALLS_MAX]) -> usize {
        let mut len = 0usize;
        for &Entry { code, at, role, .. } in self.0.frames() {
            if role == Role::Between {
                if let Some(last) = len.checked_sub(1).and_then(|last| calls.get_mut(last)) {
                    last.is_last = true;
                }
            } else if code.address != 0
                && let Some(call) = calls.get_mut(len)
            {
                *call = Call { runs: code.address, at, is_ruby: false, is_last: role == Role::Last };
                len += 1;
            }
        }
        len
    }
}

/// The first version in which each thread has a state in use of its own.
const FIRST_OF_ITS_THREAD: u32 = 12;

/// A frame of the calling thread's: who makes one says that it is, and CPython keeps it as long as it runs.
#[derive(Clone, Copy)]
struct Frame {
    address: usize,
    interpreter: &'static Interpreter,
    /// The thread's state is the one in use. Otherwise the thread has let CPython go on without it, as compiled code
    /// does that computes for longer.
    is_attached: bool,
}

impl Frame {
    /// The innermost of the calling thread. CPython makes each frame whole before it puts it there.
    ///
    /// Where the module can't be unloaded, it need not be in the stack: who captured that may have come no farther.
    fn innermost(is_in_stack: bool) -> Option<Frame> {
        let interpreter = interpreter()?;
        if !(interpreter.since.is_of_the_start() || is_in_stack && interpreter.since.is_loaded()) {
            return None;
        }
        let (Symbols { thread_state, state_in_use, is_finalizing, .. }, layout) =
            (interpreter.symbols, interpreter.layout);
        // SAFETY: functions that may be called at any time. All look at a word or two of CPython's, and take no lock.
        let (ends, state, in_use) = unsafe { (is_finalizing() != 0, thread_state() as usize, state_in_use() as usize) };
        // Once CPython ends, it frees the states of other threads, which may still run.
        if ends {
            return None;
        }
        // SAFETY: the thread's own until it ends, but for the one that is in use until 3.11: that may be another thread's,
        // which may be about to free it, and no more of it is read than that it is.
        let of = |state: usize| unsafe { Frame::innermost_of(state, state == in_use, interpreter) };
        if layout.minor >= FIRST_OF_ITS_THREAD {
            return of(in_use).or_else(|| of(state));
        }
        of(state).or_else(|| {
            let may_be_own = is_in_stack && in_use != state && os::is_readable(in_use.wrapping_add(layout.thread));
            if may_be_own { of(in_use) } else { None }
        })
    }

    /// The innermost of a thread's state. `None` if it is 0, or not the calling thread's.
    ///
    /// # Safety
    /// It can be read, and is kept if it is the calling thread's.
    unsafe fn innermost_of(state: usize, is_attached: bool, interpreter: &'static Interpreter) -> Option<Frame> {
        let Layout { thread, first, .. } = interpreter.layout;
        // SAFETY: the caller's promise; the version says the structure. The thread's own number is asked for.
        unsafe {
            if state == 0 || word_at(state + thread) != libc::pthread_self() as usize {
                return None;
            }
            let address = match *first {
                First::Of(at) => pointer_at(state + at)?,
                First::Behind(at, first) => pointer_at(pointer_at(state + at)? + first)?,
            };
            Some(Frame { address, interpreter, is_attached })
        }
    }

    fn word(self, at: usize) -> usize {
        // SAFETY: a frame's, which `innermost` and `caller` have from the thread's list.
        unsafe { word_at(self.address + at) }
    }

    fn role(self) -> Role {
        // SAFETY: as in `word`.
        let byte = |at| unsafe { byte_at(self.address + at) };
        match self.interpreter.layout.ends {
            Ends::Each => Role::Last,
            Ends::Marked(at) if byte(at) != 0 => Role::Last,
            Ends::Before(at) if byte(at) >= OWNED_BY_INTERPRETER => Role::Between,
            Ends::Marked(_) | Ends::Before(_) => Role::Inner,
        }
    }

    /// The code that it runs; `None` if that is no function's.
    fn code(self) -> Option<usize> {
        let (code, [_, of_code, _]) = (self.runs(), self.interpreter.symbols.types);
        // SAFETY: the place of a frame for the object that it runs.
        unsafe { objects::is_a(code, of_code, self.interpreter.layout) }.then_some(code)
    }

    /// The object that it runs.
    #[inline(always)]
    fn runs(self) -> usize {
        let Glance { code, code_mask, .. } = self.interpreter.glance;
        self.word(code) & code_mask
    }

    /// What it has for how far it has come, and for its role.
    #[inline(always)]
    fn raw(self) -> (usize, u8) {
        let Glance { at, at_mask, role, role_mask, .. } = self.interpreter.glance;
        // SAFETY: as in `word`.
        (self.word(at) & at_mask, unsafe { byte_at(self.address + role) } & role_mask)
    }

    /// Bytes of bytecode before the instruction that it is at.
    fn at(self, code: usize) -> u32 {
        let layout = self.interpreter.layout;
        let at = match layout.at {
            At::Units(at, unit) => (self.word(at) as i32).saturating_mul(unit).max(0) as usize,
            At::Pointer(at) => self.word(at).wrapping_sub(self.bytecode(code)),
        };
        u32::try_from(at).unwrap_or(u32::MAX)
    }

    /// Where the bytecode begins that it runs, of its code or a copy of it.
    fn bytecode(self, code: usize) -> usize {
        let layout = self.interpreter.layout;
        let number = layout.copies.map_or(0, |copies| self.word(copies.number) as u32 as usize);
        let Some(copies) = layout.copies.filter(|_| number != 0) else { return code + layout.sizes[0] };
        // SAFETY: the code that it runs, of this version's structure.
        let place = unsafe { word_at(code + copies.all) } + (1 + number) * size_of::<usize>();
        if self.is_attached {
            // SAFETY: another thread may put a longer list in the place of this one, which CPython keeps until every
            // attached thread has come to its next instruction.
            return unsafe { word_at(place) };
        }
        let mut start = [0];
        os::read_own_memory(place, &mut start);
        start[0]
    }
}

impl walk::Frame for Frame {
    fn address(self) -> usize {
        self.address
    }

    fn lies_at(self, address: usize) -> Self {
        Frame { address, ..self }
    }

    #[inline(always)]
    fn caller(self) -> Option<Self> {
        let address = self.word(self.interpreter.glance.previous);
        (address != 0).then_some(Frame { address, ..self })
    }

    fn entry(self) -> Entry {
        let (frame, role, layout) = (self.address, self.role(), self.interpreter.layout);
        let address = if role == Role::Between { None } else { self.code() };
        let code = address.map_or(Identity::NONE, |address| Code { address, layout }.identity());
        Entry { frame, code, at: address.map_or(0, |code| self.at(code)), role, raw: self.raw() }
    }

    #[inline(always)]
    fn is_as(self, before: &Entry) -> bool {
        let Entry { frame, code: Identity { address: code, table, .. }, raw, .. } = *before;
        if frame != self.address || raw != self.raw() {
            return false;
        }
        if code == 0 {
            // What runs no function has nothing else that changes.
            return before.role == Role::Between;
        }
        // No two functions that run have a table of lines in common.
        // SAFETY: the code that the frame runs, as it did before.
        code == self.runs() && unsafe { word_at(code + self.interpreter.glance.table) } == table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_from_its_text() {
        assert_eq!(minor(b"3.11.2 (main, Apr 28 2025, 14:11:48) [GCC 12.2.0]"), Some(11));
        assert_eq!(minor(b"3.8.18 (default)"), Some(8));
        assert_eq!(minor(b"2.7.18 (default)"), None);
        let known = [7, 8, 12, 13, 14, 15, 16].map(|minor| layout::of_version(minor).count());
        assert_eq!(known, [0, 1, 1, 2, 2, 2, 0]);
    }
}
