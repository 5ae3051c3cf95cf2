//! Where CPython keeps what it is running, version by version: offsets in bytes, on systems of 64 bits, as the headers
//! of each version have them (`pycore_frame.h`, `code.h`).
//!
//! An interpreter that was built with other structures is told by the sizes that its types state of their objects, and
//! by the type of a type. One without the lock of the interpreter (free-threaded) has longer heads of objects.

use poolscope_wire::script::Lines;

/// Where the frames of a thread begin.
pub enum First {
    /// In the state of the thread.
    Of(usize),
    /// In what the state of the thread points to.
    Behind(usize, usize),
}

/// How far a frame has come.
pub enum At {
    /// A number of units of so many bytes (`f_lasti`).
    Units(usize, i32),
    /// A pointer into the bytecode, which lies in the function's code object.
    Pointer(usize),
}

/// Which frames end those that one call of the interpreter's runs.
pub enum Ends {
    /// Every one.
    Each,
    /// One of which this byte is not 0.
    Marked(usize),
    /// One before a frame that is no function's: this byte says so.
    Before(usize),
}

/// Where threads have copies of a function's bytecode, which they specialize each for itself: numbered, and the first is
/// the one in the code object.
#[derive(Clone, Copy)]
pub struct Copies {
    /// In a frame: the number of the one that it runs.
    pub number: usize,
    /// In code: where the list of their addresses lies, which stands behind one word.
    pub all: usize,
}

/// What the owner of a frame is at least where the interpreter made it for itself (`FRAME_OWNED_BY_CSTACK`, and from
/// 3.14 on `FRAME_OWNED_BY_INTERPRETER`, too).
pub const OWNED_BY_INTERPRETER: u8 = 3;

/// A version's structures.
pub struct Layout {
    /// The number behind the `3.`.
    pub minor: u32,
    /// Bytes of an object before what is its own. Its type is the last of them.
    pub head: usize,
    /// What the types of code and frames state as the sizes of their objects.
    pub sizes: [usize; 2],
    /// The thread that a thread's state is of.
    pub thread: usize,
    pub first: First,
    /// In a frame: the one that called it, its code, how far it has come, and whether it is the last.
    pub previous: usize,
    pub code: usize,
    /// Bits of the word that has the code, which are no part of its address.
    pub tag: usize,
    pub at: At,
    pub ends: Ends,
    pub copies: Option<Copies>,
    /// In code: the path of its file, its name with those of what it is in as far as the version knows them, its first
    /// line and its table of lines.
    pub file: usize,
    pub name: usize,
    pub first_line: usize,
    pub table: usize,
    pub lines: Lines,
    /// In a string: its characters, if all are ASCII, and if not.
    pub characters: [usize; 2],
    /// In the word that says what a string is made of: the first bit of what says how wide a character is.
    pub width: u32,
}

/// Where a frame has what changes while it runs, in a form that takes few instructions to look at.
#[derive(Clone, Copy)]
pub struct Glance {
    pub previous: usize,
    pub code: usize,
    pub code_mask: usize,
    /// How far it has come, and which bits of the word say so.
    pub at: usize,
    pub at_mask: usize,
    /// A byte that says whether it is the last, and which of its bits.
    pub role: usize,
    pub role_mask: u8,
    /// In code: its table of lines.
    pub table: usize,
}

impl Layout {
    /// Whether it has no lock of the interpreter.
    pub fn is_free_threaded(&self) -> bool {
        self.head > V8.head
    }

    /// The same, for a look at what may have changed.
    pub fn glance(&self) -> Glance {
        let (at, at_mask) = match self.at {
            At::Units(at, _) => (at, u32::MAX as usize),
            At::Pointer(at) => (at, usize::MAX),
        };
        let (role, role_mask) = match self.ends {
            Ends::Each => (0, 0),
            Ends::Marked(at) | Ends::Before(at) => (at, u8::MAX),
        };
        let Layout { previous, code, tag, table, .. } = *self;
        Glance { previous, code, code_mask: !tag, at, at_mask, role, role_mask, table }
    }
}

const V8: Layout = Layout {
    minor: 8,
    head: 16,
    sizes: [176, 368],
    thread: 176,
    first: First::Of(24),
    previous: 24,
    code: 32,
    tag: 0,
    at: At::Units(104, 1),
    ends: Ends::Each,
    copies: None,
    file: 104,
    name: 112,
    first_line: 40,
    table: 120,
    lines: Lines::Steps,
    characters: [48, 72],
    width: 2,
};

const V10: Layout = Layout { minor: 10, sizes: [176, 360], at: At::Units(96, 2), lines: Lines::Ranges, ..V8 };

const V11: Layout = Layout {
    minor: 11,
    sizes: [184, 120],
    thread: 152,
    first: First::Behind(56, 8),
    previous: 48,
    code: 32,
    tag: 0,
    at: At::Pointer(56),
    ends: Ends::Marked(68),
    file: 112,
    name: 128,
    first_line: 72,
    table: 136,
    lines: Lines::Locations,
    ..V8
};

const V12: Layout = Layout {
    minor: 12,
    sizes: [192, 120],
    thread: 136,
    first: First::Behind(56, 0),
    previous: 8,
    code: 0,
    ends: Ends::Before(70),
    first_line: 68,
    characters: [40, 56],
    ..V11
};

const V13: Layout = Layout { minor: 13, sizes: [200, 136], thread: 152, first: First::Of(72), ..V12 };

const V14: Layout = Layout { minor: 14, sizes: [208, 152], ends: Ends::Before(74), tag: 3, ..V13 };

const V15: Layout = Layout { minor: 15, thread: 176, ..V14 };

/// A version's objects without the interpreter's lock: the thread that owns one, a lock, bits of the collector's and two
/// counts of references stand where one count was.
const fn free_threaded(of: Layout) -> Layout {
    const MORE: usize = 16;
    let [code, frame] = of.sizes;
    let [ascii, other] = of.characters;
    Layout {
        head: of.head + MORE,
        sizes: [code + MORE, frame + MORE],
        file: of.file + MORE,
        name: of.name + MORE,
        first_line: of.first_line + MORE,
        table: of.table + MORE,
        characters: [ascii + MORE, other + MORE],
        ..of
    }
}

const V13_FREE: Layout = free_threaded(V13);

const V14_FREE: Layout = Layout {
    sizes: [232, 168],
    ends: Ends::Before(78),
    copies: Some(Copies { number: 72, all: 224 }),
    width: 8,
    ..free_threaded(V14)
};

const V15_FREE: Layout = Layout { minor: V15.minor, thread: V15.thread, ..V14_FREE };

static LAYOUTS: [Layout; 11] =
    [V8, Layout { minor: 9, ..V8 }, V10, V11, V12, V13, V14, V15, V13_FREE, V14_FREE, V15_FREE];

/// Those of CPython 3.`minor`.
pub fn of_version(minor: u32) -> impl Iterator<Item = &'static Layout> {
    LAYOUTS.iter().filter(move |layout| layout.minor == minor)
}
