//! Which stacks hold a device's memory, in words: for the message where there is none left.
//!
//! Names are looked up here, in the process itself, because the message is all that many a program leaves behind. It
//! costs milliseconds at first; a program that runs out of memory has them.

use std::ffi::c_void;
use std::path::Path;

use backtrace::Symbol;
use poolscope_cpu::device::{Holder, Table};
use poolscope_wire::holders::Settlement;
use poolscope_wire::own_code::{DEVICE_C_FUNCTIONS, OWN_CODE, OwnCode};

/// Functions of a stack that are named, the innermost ones.
const NAMED: usize = 6;

fn mebibytes(bytes: f64) -> String {
    format!("{:.1} MiB", bytes / f64::from(1 << 20))
}

/// What is in use and no line of a holder accounts for, if there is any.
pub(super) fn rest(settlement: &Settlement) -> Option<String> {
    let bytes = settlement.unattributed;
    (bytes >= f64::from(1 << 16))
        .then(|| format!("{}: nobody who is known, no block of it was sampled", mebibytes(bytes)))
}

/// A line of a holder: its bytes with their standard error, its blocks and the functions that allocated them.
pub(super) fn describe(holder: &Holder, settlement: &Settlement, table: &Table) -> String {
    let blocks = (holder.objects >> 16).max(1);
    let plural = if blocks == 1 { "" } else { "s" };
    let bytes = mebibytes(settlement.bytes(&holder.sampled));
    let bytes = match holder.sampled.error() {
        0.0 => bytes,
        error => format!("about {bytes} (±{})", mebibytes(error)),
    };
    let functions: Vec<String> = holder.frames().iter().flat_map(|frame| functions_at(*frame, table)).collect();
    let stack = match functions.get(NAMED) {
        Some(_) => format!("{} < ...", functions[..NAMED].join(" < ")),
        None if functions.is_empty() => "(no stack)".to_owned(),
        None => functions.join(" < "),
    };
    format!("{bytes} in {blocks} block{plural}: {stack}")
}

/// The functions at a return address, innermost first, more than one where some are inlined. Those of the pool, of
/// Rust's standard library and of a thread's beginning are left out: they say little of where memory went.
fn functions_at(frame: u64, table: &Table) -> Vec<String> {
    let mut text = [0; 256];
    // SAFETY: both parts are those of the array.
    let said = unsafe { (table.say_call)(frame, text.as_mut_ptr(), text.len()) };
    if said > 0 {
        return vec![String::from_utf8_lossy(&text[..said]).into_owned()];
    }
    let (mut functions, mut known) = (Vec::new(), false);
    backtrace::resolve(frame as *mut c_void, |symbol| {
        let Some(name) = symbol.name() else { return };
        known = true;
        // The alternate form is without the hash that ends the names of Rust.
        let name = format!("{name:#}");
        if !is_left_out(&name, symbol.filename()) {
            functions.push(name + &place(symbol));
        }
    });
    if !known {
        functions.push(format!("{frame:#x}"));
    }
    functions
}

/// Where in its source a function is, if that is known.
fn place(symbol: &Symbol) -> String {
    match (symbol.filename().and_then(Path::file_name), symbol.lineno()) {
        (Some(file), Some(line)) => format!(" ({}:{line})", file.to_string_lossy()),
        _ => String::new(),
    }
}

/// Whether a function is the pool's own, the standard library's or a thread's beginning: by its name, and by its source
/// where it is inlined and has only the last part of its name.
fn is_left_out(name: &str, source: Option<&Path>) -> bool {
    const OF_OTHERS: [&str; 7] = ["core::", "alloc::", "std::", "__libc_start_", "_start", "start_thread", "clone3"];
    let begins = name.trim_start_matches(['<', '&']);
    let is_own =
        OWN_CODE.iter().any(|own| own.has_function(name) || source.is_some_and(|file| is_source_of(own, file)));
    let of_c = DEVICE_C_FUNCTIONS.iter().any(|beginning| name.starts_with(beginning));
    let of_std = source.is_some_and(|file| file.starts_with("/rustc"));
    is_own || of_c || of_std || OF_OTHERS.iter().any(|beginning| begins.starts_with(beginning))
}

/// Whether a file is a source of the pool's own code, in the folder that this was built from.
fn is_source_of(own: &OwnCode, file: &Path) -> bool {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let inside = repository.and_then(|repository| file.strip_prefix(repository).ok());
    inside.and_then(Path::to_str).is_some_and(|file| own.has_source(file))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use poolscope_cpu::device::{Holder, TABLE};
    use poolscope_wire::holders::Settlement;

    use super::{describe, is_left_out, rest};

    fn holder(size: u64, weight: f64) -> Holder {
        let mut holder = Holder { objects: (weight * 65_536.0) as u64, ..Holder::EMPTY };
        holder.sampled.add(size, 1.0, weight);
        holder
    }

    #[test]
    fn a_line_of_a_holder_says_its_error_and_is_brought_into_line_with_the_counter() {
        let exact = holder(3 << 20, 1.0);
        let settled = Settlement::new(&exact.sampled, 5 << 20);
        assert_eq!(describe(&exact, &settled, &TABLE), "3.0 MiB in 1 block: (no stack)");
        assert_eq!(rest(&settled).as_deref(), Some("2.0 MiB: nobody who is known, no block of it was sampled"));
        let rough = holder(1 << 20, 8.0);
        let settled = Settlement::new(&rough.sampled, 6 << 20);
        assert_eq!(describe(&rough, &settled, &TABLE), "about 6.0 MiB (±7.5 MiB) in 8 blocks: (no stack)");
        assert_eq!(rest(&settled), None);
    }

    #[test]
    fn an_address_without_a_name_stays_an_address() {
        let mut holder = Holder { depth: 1, ..holder(1 << 20, 1.0) };
        holder.frames[0] = 0x1234;
        let settled = Settlement::new(&holder.sampled, 1 << 20);
        assert_eq!(describe(&holder, &settled, &TABLE), "1.0 MiB in 1 block: 0x1234");
    }

    #[test]
    fn only_the_programs_functions_are_named() {
        assert!(is_left_out("<poolscope_gpu::pool::Pool<D>>::allocate", None));
        assert!(is_left_out("poolscope_torch_alloc", None));
        assert!(is_left_out("<alloc::vec::Vec<T> as core::iter::FromIterator<T>>::from_iter", None));
        assert!(is_left_out("capture", Some(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/capture/src/entry.rs")))));
        assert!(is_left_out("call_once", Some(Path::new("/rustc/abc/library/core/src/ops/function.rs"))));
        assert!(!is_left_out("poolscope_example::main", None));
        assert!(!is_left_out("capture", Some(Path::new("/home/me/camera/src/main.rs"))));
    }
}
