//! How PyTorch is told that there is no block: by an exception of its own.
//!
//! Where memory is missing that is `c10::OutOfMemoryError`, Python's `torch.cuda.OutOfMemoryError`, and its words begin as
//! PyTorch's do: programs that go on with a smaller batch look at either. What else is refused is a `RuntimeError`, and so
//! is missing memory for a PyTorch that lacks what such an exception is made of.
//!
//! The exception is made here. It is thrown by a jump from `poolscope_torch_alloc`, when no frame of this library is left.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::OnceLock;

use crate::refusal::Refusal;

/// What throws, and what it is given.
#[repr(C)]
pub struct Throw {
    function: usize,
    arguments: [usize; 4],
}

struct Refused {
    words: CString,
    is_out_of_memory: bool,
    /// What `throw` returned last.
    throw: Throw,
}

thread_local! {
    static REFUSED: RefCell<Option<Refused>> = const { RefCell::new(None) };
}

/// Keeps what this thread's [`throw`] is to say of a device.
pub fn keep(ordinal: i32, refusal: &Refusal) {
    let is_out_of_memory = refusal.is_out_of_memory();
    let begin = if is_out_of_memory { "CUDA out of memory. " } else { "" };
    let words = CString::new(format!("{begin}poolscope: device {ordinal}: {refusal}").replace('\0', " "));
    let throw = Throw { function: 0, arguments: [0; 4] };
    let refused = words.ok().map(|words| Refused { words, is_out_of_memory, throw });
    let _ = REFUSED.try_with(|kept| *kept.borrow_mut() = refused);
}

/// How to throw what was kept, once. Null where PyTorch is not there: the words are printed.
pub extern "C" fn throw() -> *const Throw {
    let find = |refused: &RefCell<Option<Refused>>| {
        let mut refused = refused.borrow_mut();
        let Some(refused) = &mut *refused else { return ptr::null() };
        let Some(pytorch) = PyTorch::get() else {
            eprintln!("{}", refused.words.to_string_lossy());
            return ptr::null();
        };
        refused.throw = match &pytorch.out_of_memory {
            Some(out_of_memory) if refused.is_out_of_memory => out_of_memory.made(&refused.words),
            _ => pytorch.check_fails(&refused.words),
        };
        &raw const refused.throw
    };
    REFUSED.try_with(find).unwrap_or(ptr::null())
}

const FUNCTION: &CStr = c"poolscope_torch_alloc";
const FILE: &CStr = c"libpoolscope_gpu.so";

/// What PyTorch throws with.
struct PyTorch {
    /// `void c10::detail::torchCheckFail(const char *function, const char *file, uint32_t line, const char *words)`.
    check_fail: usize,
    out_of_memory: Option<OutOfMemory>,
}

impl PyTorch {
    /// That of this process, if it has one.
    fn get() -> Option<&'static PyTorch> {
        static FOUND: OnceLock<Option<PyTorch>> = OnceLock::new();
        FOUND.get_or_init(PyTorch::find).as_ref()
    }

    fn find() -> Option<PyTorch> {
        let c10 = Library::loaded(c"libc10.so")?;
        let check_fail = c10.symbol(c"_ZN3c106detail14torchCheckFailEPKcS2_jS2_")?;
        Some(PyTorch { check_fail, out_of_memory: OutOfMemory::find(&c10) })
    }

    /// By PyTorch's own function.
    fn check_fails(&self, words: &CStr) -> Throw {
        let [function, file, words] = [FUNCTION, FILE, words].map(|text| text.as_ptr() as usize);
        Throw { function: self.check_fail, arguments: [function, file, 0, words] }
    }
}

/// `c10::SourceLocation`.
#[repr(C)]
struct SourceLocation {
    function: *const c_char,
    file: *const c_char,
    line: u32,
}

/// `std::string` of libstdc++.
#[repr(C)]
struct Text {
    start: *mut c_char,
    len: usize,
    /// Room for so many bytes, or short texts themselves.
    room: [usize; 2],
}

/// What makes and throws `c10::OutOfMemoryError`: a `c10::Error` of another type, which has nothing of its own.
struct OutOfMemory {
    /// `c10::Error::Error(c10::SourceLocation, std::string)`.
    error: unsafe extern "C" fn(*mut c_void, SourceLocation, *mut Text),
    /// Its functions, the destructor first, and its type.
    functions: *const usize,
    type_info: usize,
    /// Those of C++'s ABI, `operator new` and `operator delete`.
    allocate: unsafe extern "C" fn(usize) -> *mut c_void,
    throw: usize,
    new: unsafe extern "C" fn(usize) -> *mut c_void,
    delete: unsafe extern "C" fn(*mut c_void),
}

// SAFETY: addresses of code and of constants.
unsafe impl Send for OutOfMemory {}
// SAFETY: as above.
unsafe impl Sync for OutOfMemory {}

impl OutOfMemory {
    /// More than an exception takes: 128 bytes in PyTorch 2.15.
    const ROOM: usize = 1024;
    /// Words of a table of functions before the first: the distance to the whole object, and its type.
    const BEFORE_FUNCTIONS: usize = 2;

    /// `None` if PyTorch lacks one of these.
    fn find(c10: &Library) -> Option<OutOfMemory> {
        let string = c"_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
        // Each library that throws one has these two, and libc10.so itself in later versions.
        let of_cuda = Library::loaded(c"libc10_cuda.so");
        let of_type = |name| c10.symbol(name).or_else(|| of_cuda.as_ref().and_then(|cuda| cuda.symbol(name)));
        let functions = of_type(c"_ZTVN3c1016OutOfMemoryErrorE")? as *const usize;
        // SAFETY: functions of these types, by their names.
        unsafe {
            Some(OutOfMemory {
                error: transmute::<usize, unsafe extern "C" fn(*mut c_void, SourceLocation, *mut Text)>(
                    c10.symbol(string)?,
                ),
                functions: functions.wrapping_add(OutOfMemory::BEFORE_FUNCTIONS),
                type_info: of_type(c"_ZTIN3c1016OutOfMemoryErrorE")?,
                allocate: transmute::<usize, unsafe extern "C" fn(usize) -> *mut c_void>(
                    c10.symbol(c"__cxa_allocate_exception")?,
                ),
                throw: c10.symbol(c"__cxa_throw")?,
                new: transmute::<usize, unsafe extern "C" fn(usize) -> *mut c_void>(c10.operator(c"_Znwm")?),
                delete: transmute::<usize, unsafe extern "C" fn(*mut c_void)>(c10.operator(c"_ZdlPv")?),
            })
        }
    }

    /// An exception with these words, ready to be thrown.
    fn made(&self, words: &CStr) -> Throw {
        let len = words.to_bytes().len();
        // SAFETY: C++'s own functions, called as its compilers call them: a text is passed by its address and is the
        // caller's to destroy, a structure of three words by value. The exception has room, and becomes the other type
        // by that type's table of functions. Only where memory is missing do they throw, which ends the process.
        unsafe {
            let start: *mut c_char = (self.new)(len + 1).cast();
            ptr::copy_nonoverlapping(words.as_ptr(), start, len + 1);
            let mut text = Text { start, len, room: [len, 0] };
            let exception = (self.allocate)(OutOfMemory::ROOM);
            let here = SourceLocation { function: FUNCTION.as_ptr(), file: FILE.as_ptr(), line: 0 };
            (self.error)(exception, here, &raw mut text);
            if !ptr::addr_eq(text.start, &raw const text.room) {
                (self.delete)(text.start.cast());
            }
            exception.cast::<*const usize>().write(self.functions);
            let destructor = self.functions.read();
            Throw { function: self.throw, arguments: [exception as usize, self.type_info, destructor, 0] }
        }
    }
}

/// A library of PyTorch's.
struct Library(*mut c_void);

impl Library {
    /// The one of this name, if the process has it already.
    fn loaded(name: &CStr) -> Option<Library> {
        // SAFETY: the name ends with a zero byte; a library that is there already is not loaded.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        (!library.is_null()).then_some(Library(library))
    }

    /// The address of an operator as the library itself calls it: the program's, if it has one.
    fn operator(&self, name: &CStr) -> Option<usize> {
        Library(libc::RTLD_DEFAULT).symbol(name).or_else(|| self.symbol(name))
    }

    /// The address of a symbol of it, or of what it needs.
    fn symbol(&self, name: &CStr) -> Option<usize> {
        // SAFETY: the name ends with a zero byte, and the library stays.
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!symbol.is_null()).then_some(symbol as usize)
    }
}
