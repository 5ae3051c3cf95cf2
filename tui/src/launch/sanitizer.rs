//! Programs that a compiler's sanitizer serves: its runtime must be the first library, and ends the program, or lets it
//! crash, where another allocator is before it.

use std::ffi::OsStr;

use super::executable;
use crate::failure::Failure;

/// A function of each runtime that takes the place of malloc, the sanitizer's name, and the compiler's option.
/// LeakSanitizer is not among them: the library has its functions.
const RUNTIMES: [(&[u8], &str, &str); 4] = [
    (b"__asan_init", "AddressSanitizer", "address"),
    (b"__hwasan_init", "HWAddressSanitizer", "hwaddress"),
    (b"__msan_init", "MemorySanitizer", "memory"),
    (b"__tsan_init", "ThreadSanitizer", "thread"),
];

/// Refuses a command whose executable has such a runtime. Of what it can't read it knows nothing.
pub(crate) fn refuse(program: &OsStr) -> Result<(), Failure> {
    // Whoever has set this has thought of it.
    let is_allowed = std::env::var("ASAN_OPTIONS").is_ok_and(|options| options.contains("verify_asan_link_order=0"));
    let names = executable::of(program).and_then(|path| executable::section(&path, b".dynstr"));
    let Some(names) = names.filter(|_| !is_allowed) else { return Ok(()) };
    let runtime = |name| RUNTIMES.iter().find(|(function, ..)| *function == name);
    match names.split(|byte| *byte == 0).find_map(runtime) {
        None => Ok(()),
        Some((_, name, option)) => Err(Failure::usage(format!(
            "{} is built with {name} (-fsanitize={option}), which serves all that it allocates and runs with no other \
             allocator: use a build without it",
            program.to_string_lossy()
        ))),
    }
}
