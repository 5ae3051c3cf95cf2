//! Which stacks hold a device's memory, in words: for the message where there is none left.
//!
//! Names are looked up here, in the process itself, because the message is all that many a program leaves behind. It costs
//! milliseconds at first; a program that runs out of memory has them.

use std::ffi::c_void;
use std::path::Path;

use backtrace::Symbol;
use poolscope_cpu::device::Holder;

/// Functions of a stack that are named, the innermost ones.
const NAMED: usize = 6;

/// A line of a holder: its bytes, its blocks and the functions that allocated them.
pub(super) fn describe(holder: &Holder) -> String {
    let blocks = (holder.objects >> 16).max(1);
    let (bytes, plural) = (holder.bytes as f64 / f64::from(1 << 20), if blocks == 1 { "" } else { "s" });
    let functions: Vec<String> = holder.frames().iter().flat_map(|frame| functions_at(*frame)).collect();
    let stack = match functions.get(NAMED) {
        Some(_) => format!("{} < ...", functions[..NAMED].join(" < ")),
        None if functions.is_empty() => "(no stack)".to_owned(),
        None => functions.join(" < "),
    };
    format!("about {bytes:.1} MiB in {blocks} block{plural}: {stack}")
}

/// The functions at a return address, innermost first, more than one where some are inlined. Those of the pool, of Rust's standard
/// library and of a thread's beginning are left out: they say little of where memory went.
fn functions_at(frame: u64) -> Vec<String> {
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

/// Whether a function is the pool's own, the standard library's or a thread's beginning: by its name, and by its source where it is inlined and has
/// only the last part of its name.
fn is_left_out(name: &str, source: Option<&Path>) -> bool {
    const NAMES: [&str; 13] = [
        "poolscope_gpu",
        "poolscope_alloc::",
        "poolscope_cpu::",
        "poolscope_capture::",
        "poolscope_torch_",
        "poolscope_cupy_",
        "core::",
        "alloc::",
        "std::",
        "__libc_start_",
        "_start",
        "start_thread",
        "clone3",
    ];
    let name = name.trim_start_matches(['<', '&']);
    let ours = |path: &Path| {
        let inside = path.strip_prefix(env!("CARGO_MANIFEST_DIR"));
        inside.is_ok_and(|path| {
            ["src", "gpu/src", "cpu/src", "capture/src", "plugin/src"].iter().any(|it| path.starts_with(it))
        })
    };
    let of_std = |path: &Path| path.starts_with("/rustc");
    NAMES.iter().any(|beginning| name.starts_with(beginning)) || source.is_some_and(|path| ours(path) || of_std(path))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use poolscope_cpu::device::Holder;

    use super::{describe, is_left_out};

    #[test]
    fn a_line_of_a_holder_without_a_stack_says_so() {
        let none = describe(&Holder { bytes: 3 << 20, objects: 2 << 16, ..Holder::EMPTY });
        assert_eq!(none, "about 3.0 MiB in 2 blocks: (no stack)");
    }

    #[test]
    fn an_address_without_a_name_stays_an_address() {
        let mut holder = Holder { bytes: 1 << 20, objects: 1 << 16, depth: 1, ..Holder::EMPTY };
        holder.frames[0] = 0x1234;
        assert_eq!(describe(&holder), "about 1.0 MiB in 1 block: 0x1234");
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
