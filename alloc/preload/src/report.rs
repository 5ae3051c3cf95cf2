//! The pool's statistics, written without allocation: to standard error, to a stream of the C library, into a buffer.

use core::ffi::{c_char, c_int};
use core::fmt::{self, Write};

use poolscope_cpu as pool;
use poolscope_wire::stats::{ClassStats, Stats, json, text};
use poolscope_wire::{ClassCounter, TierCounter};

use crate::buffer::Buffer;

/// `malloc_stats` (glibc): prints the statistics to standard error, in the layout of tcmalloc.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_stats() {
    pool::with_stats(|stats| {
        let mut out = pool::StandardError::new();
        // What can't be written can't be complained about either.
        let _ = text::write(stats, &mut out);
    });
}

/// `malloc_info` (glibc): writes XML in the form of glibc's to a stream, with all of the pool as one heap. 0, or
/// `EINVAL` if there are options.
///
/// # Safety
/// `stream` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_info(options: c_int, stream: *mut libc::FILE) -> c_int {
    if options != 0 || stream.is_null() {
        return libc::EINVAL;
    }
    // The stream may allocate: no lock is held.
    let written = pool::with_stats(|stats| write_xml(stats, &mut Stream(stream)));
    match written {
        Some(Ok(())) => 0,
        Some(Err(_)) => libc::EIO,
        None => libc::ENOMEM,
    }
}

/// Writes the statistics as text (`poolscope stats PID` prints the same) into `buffer` as far as they fit, with a zero
/// byte at the end. Returns the bytes that the whole takes, without that one.
///
/// # Safety
/// `buffer` has room for `size` bytes; it may be null if `size` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_stats_text(buffer: *mut c_char, size: usize) -> usize {
    // SAFETY: the caller's promise.
    unsafe { fill(buffer, size, text::write) }
}

/// The same as JSON (`poolscope stats PID --json`).
///
/// # Safety
/// As for [`poolscope_stats_text`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_stats_json(buffer: *mut c_char, size: usize) -> usize {
    // SAFETY: the caller's promise.
    unsafe { fill(buffer, size, json::write) }
}

/// # Safety
/// As for [`poolscope_stats_text`].
unsafe fn fill(buffer: *mut c_char, size: usize, write: fn(&Stats, &mut Buffer) -> fmt::Result) -> usize {
    // SAFETY: the caller's promise.
    let mut out = unsafe { Buffer::new(buffer, size) };
    // A buffer takes everything; without memory for the statistics it stays empty.
    let _ = pool::with_stats(|stats| write(stats, &mut out));
    out.end()
}

/// A stream of the C library.
struct Stream(*mut libc::FILE);

impl Write for Stream {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        // SAFETY: the stream is open.
        let written = unsafe { libc::fwrite(part.as_ptr().cast(), 1, part.len(), self.0) };
        if written == part.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

fn write_xml(stats: &Stats, out: &mut impl Write) -> fmt::Result {
    out.write_str("<malloc version=\"1\">\n<heap nr=\"0\">\n<sizes>\n")?;
    let (mut from, mut largest) = (1, 0);
    for class in stats.classes() {
        let free = class.free_blocks();
        if class.block_bytes > largest {
            from = largest + 1;
            largest = class.block_bytes;
        }
        if free > 0 {
            let (to, total) = (class.block_bytes, class.bytes(free));
            writeln!(out, "  <size from=\"{from}\" to=\"{to}\" total=\"{total}\" count=\"{free}\"/>")?;
        }
    }
    out.write_str("</sizes>\n")?;
    write_totals(stats, out, false)?;
    out.write_str("</heap>\n")?;
    write_totals(stats, out, true)?;
    out.write_str("</malloc>\n")
}

/// The lines that each heap has, and the process once more with its large blocks.
fn write_totals(stats: &Stats, out: &mut impl Write, of_process: bool) -> fmt::Result {
    let usage = stats.usage();
    let fast = (stats.sum(ClassStats::thread_blocks), usage.thread_caches);
    let rest = (
        stats.sum(|class| class.shared(ClassCounter::CentralFree)),
        usage.central_cache + usage.transfer_cache + usage.page_heap,
    );
    let system = stats.tier(TierCounter::SystemUsed);
    writeln!(out, "<total type=\"fast\" count=\"{}\" size=\"{}\"/>", fast.0, fast.1)?;
    writeln!(out, "<total type=\"rest\" count=\"{}\" size=\"{}\"/>", rest.0, rest.1)?;
    if of_process {
        let (count, size) = (stats.tier(TierCounter::LargeObjects), stats.tier(TierCounter::LargeBytes));
        writeln!(out, "<total type=\"mmap\" count=\"{count}\" size=\"{size}\"/>")?;
    }
    // Blocks count in full, touched or not, as in glibc.
    let given_back = usage.unmapped.saturating_sub(usage.untouched);
    writeln!(out, "<system type=\"current\" size=\"{}\"/>", system - given_back.min(system))?;
    writeln!(out, "<system type=\"max\" size=\"{system}\"/>")?;
    writeln!(out, "<aspace type=\"total\" size=\"{system}\"/>")?;
    writeln!(out, "<aspace type=\"mprotect\" size=\"{system}\"/>")
}
