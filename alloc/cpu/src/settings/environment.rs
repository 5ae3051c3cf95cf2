//! What the process was started with: read once, at its first allocation.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::range::{Printable, Range};
use super::{Goal, Index, SETTINGS, Setting, store};
use crate::kernel::message::Message;

/// Variables that the `poolscope` command and the libraries for devices and tensors read and the pool does not, each
/// with what it takes and what it is for.
pub const COMMAND_VARIABLES: [(&str, &str, &str); 7] = [
    (
        "POOLSCOPE_LIB",
        "a path",
        "Path of `libpoolscope.so`, for `poolscope run` and `poolscope check`. Otherwise it is looked for beside the \
         command, in folders of the prefix that it is installed in, and in the system's library folders.",
    ),
    (
        "POOLSCOPE_GPU_DEVICE",
        "`cuda`, `sim`, `sim:BYTES` or `sim:BYTES:DEVICES`",
        "The devices of `libpoolscope_gpu.so`: CUDA's by default, or some that are simulated.",
    ),
    ("POOLSCOPE_GPU_LIB", "a path", "Path of `libpoolscope_gpu.so`, for the programs in `samples/python`."),
    (
        "POOLSCOPE_SYMBOL_CACHE",
        "a path, or nothing",
        "Folder in which `poolscope` keeps names of functions from one run to the next, by build ids; nothing for none. \
         `~/.cache/poolscope/symbols` if it is not set.",
    ),
    (
        "POOLSCOPE_TENSORS",
        "a path",
        "The socket of the owner of named tensors, for `poolscope tensors` and its clients.",
    ),
    ("POOLSCOPE_TENSORS_LIB", "a path", "Path of `libpoolscope_tensors.so`, for `poolscope_tensors.py`."),
    ("POOLSCOPE_COMMAND", "a path", "Path of the command `poolscope`, for programs that check themselves for leaks."),
];

const PREFIX: &[u8] = b"POOLSCOPE_";

/// Variables of pools of device memory begin so; these pools read them, and name those that they don't know.
const OF_DEVICES: &[u8] = b"POOLSCOPE_GPU_";

static STARTED: AtomicBool = AtomicBool::new(false);

/// Whether the environment was read: what is only set at the start stays as it is from then on.
pub fn is_started() -> bool {
    STARTED.load(Ordering::Acquire)
}

/// Reads the environment. Every value that is none, and every variable of the pool's that it does not know, is named
/// on standard error.
pub fn start() {
    STARTED.store(true, Ordering::Release);
    read();
    follow_goal();
    if super::current().plain() {
        store::put(Index::period as usize, PERIOD_NEVER);
    }
}

/// A period within which no sample is ever due.
const PERIOD_NEVER: u64 = 1 << 50;

/// Puts in force what the goal makes of other settings, of which nobody has said what they are to be.
fn follow_goal() {
    let [thread_cache, scavenge_ms, gc_ms] = match super::current().goal() {
        Goal::Balanced => return,
        Goal::Memory => [1 << 20, 1000, 500],
        Goal::Speed => [256 << 20, 60_000, 30_000],
    };
    let words = [(Index::thread_cache, thread_cache), (Index::scavenge_ms, scavenge_ms), (Index::gc_ms, gc_ms)];
    for (index, word) in words {
        if !store::is_said(index as usize) {
            store::put(index as usize, word);
        }
    }
}

fn read() {
    // SAFETY: getauxval takes no memory. The caller of a set-uid program must not steer it.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return;
    }
    for (at, setting) in SETTINGS.iter().enumerate() {
        let Some(text) = variable(setting.variable) else { continue };
        let text = if matches!(setting.range, Range::Folder { .. }) { keep(text) } else { text };
        match setting.range.parse(text) {
            Some(word) => store::put(at, word),
            None => name_bad_value(setting, text, store::get(at)),
        }
    }
    for_each_name(|name| {
        let known = SETTINGS.iter().map(|setting| setting.variable.to_bytes());
        let mut known = known.chain(COMMAND_VARIABLES.iter().map(|(name, ..)| name.as_bytes()));
        if name.starts_with(PREFIX) && !name.starts_with(OF_DEVICES) && !known.any(|known| known == name) {
            name_unknown(name);
        }
    });
}

#[cold]
fn name_bad_value(setting: &Setting, text: &CStr, used: u64) {
    let mut message = Message::new("");
    // A message that does not fit is cut.
    let _ = write!(
        message,
        "{}={} is not valid, {} is used; it takes {}",
        Printable(setting.variable.to_bytes()),
        Printable(text.to_bytes()),
        setting.range.show(used),
        setting.range
    );
    message.print();
}

#[cold]
fn name_unknown(name: &[u8]) {
    let mut message = Message::new("");
    let _ = write!(message, "{} is unknown and without effect", Printable(name));
    if let Some(known) = nearest(&name[PREFIX.len()..]) {
        let _ = write!(message, "; is POOLSCOPE_{} meant?", Printable(known));
    }
    message.print();
}

/// The variable (without its prefix) that a wrong name was most likely to be: one that it begins,
/// or is a slip away from.
fn nearest(name: &[u8]) -> Option<&'static [u8]> {
    let known = || SETTINGS.iter().map(|setting| &setting.variable.to_bytes()[PREFIX.len()..]);
    let begun = known().find(|known| name.len() > 1 && known.starts_with(name));
    let slip = || known().filter(|known| distance(name, known) <= 1 + known.len() / 4);
    begun.or_else(|| slip().min_by_key(|known| distance(name, known)))
}

/// The longest name that is compared in [`distance`].
const LONGEST: usize = 32;

/// Letters to put in, take out, change or swap with their neighbour to make one name of the other. Names that are too
/// long are far from all.
fn distance(a: &[u8], b: &[u8]) -> usize {
    if a.len() > LONGEST || b.len() > LONGEST {
        return usize::MAX;
    }
    // rows[i % 3][j]: the distance of the first i letters of `a` to the first j of `b`.
    let mut rows = [[0; LONGEST + 1]; 3];
    rows[0] = core::array::from_fn(|j| j);
    for i in 1..=a.len() {
        rows[i % 3][0] = i;
        for j in 1..=b.len() {
            let same = a[i - 1].eq_ignore_ascii_case(&b[j - 1]);
            let last = rows[(i - 1) % 3];
            let mut best = (last[j - 1] + usize::from(!same)).min(last[j] + 1).min(rows[i % 3][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[(i - 2) % 3][j - 2] + 1);
            }
            rows[i % 3][j] = best;
        }
    }
    rows[a.len() % 3][b.len()]
}

/// Room for the texts that are read again later, each with the zero behind it.
const KEPT_MAX: usize = 1536;

struct Kept(UnsafeCell<[u8; KEPT_MAX]>);

// SAFETY: bytes are handed out once, by `KEPT_BYTES`, and written before anybody else knows of them.
unsafe impl Sync for Kept {}

static KEPT: Kept = Kept(UnsafeCell::new([0; KEPT_MAX]));
static KEPT_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The same text in memory of the pool's own: a program that sets its title writes it over its arguments and the
/// environment behind them. A text for which there is no room stays where it is.
fn keep(text: &'static CStr) -> &'static CStr {
    let bytes = text.to_bytes_with_nul();
    let at = KEPT_BYTES.fetch_add(bytes.len(), Ordering::Relaxed);
    if at.saturating_add(bytes.len()) > KEPT_MAX {
        return text;
    }
    // SAFETY: the bytes from `at` on are this call's alone, and end with the text's zero.
    unsafe {
        let kept = KEPT.0.get().cast::<u8>().add(at);
        kept.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        CStr::from_ptr(kept.cast())
    }
}

/// The value of a variable.
fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: the value lies in memory that the C library keeps until the program changes it, and is read at once.
    unsafe {
        let value: *const c_char = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value))
    }
}

unsafe extern "C" {
    /// The environment (POSIX).
    static environ: *const *const c_char;
}

/// Calls `f` with the name of each variable.
fn for_each_name(mut f: impl FnMut(&[u8])) {
    // SAFETY: `environ` is null or an array of texts that ends with null; another thread that changes the environment
    // while this one makes its first allocation races with every getenv as well.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            let text = CStr::from_ptr(*at).to_bytes();
            f(text.split(|&byte| byte == b'=').next().unwrap_or(text));
            at = at.add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{distance, nearest};

    #[test]
    fn a_wrong_name_leads_to_the_one_that_was_meant() {
        for (wrong, meant) in [
            ("PEROID", Some("PERIOD")),
            ("SCAVENGE", Some("SCAVENGE_MS")),
            ("SCAVANGE_MS", Some("SCAVENGE_MS")),
            ("HARDEN", Some("HARDENED")),
            ("verbose", Some("VERBOSE")),
            ("LOG_LEVEL", None),
            ("", None),
        ] {
            assert_eq!(nearest(wrong.as_bytes()), meant.map(str::as_bytes), "{wrong}");
        }
    }

    #[test]
    fn names_are_near_that_differ_by_a_slip() {
        for (a, b, expected) in [
            ("PERIOD", "PERIOD", 0),
            ("PERIDO", "PERIOD", 1),
            ("period", "PERIOD", 0),
            ("PERIODS", "PERIOD", 1),
            ("PEROD", "PERIOD", 1),
            ("GC", "GC_MS", 3),
            ("", "DIR", 3),
        ] {
            assert_eq!(distance(a.as_bytes(), b.as_bytes()), expected, "{a} {b}");
        }
        assert_eq!(distance(&[b'A'; 100], b"PERIOD"), usize::MAX);
    }
}
