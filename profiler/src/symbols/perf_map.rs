//! Names of generated code: the file `/tmp/perf-PID.map`, which JIT compilers write for Linux' `perf`.
//!
//! Node (`--perf-basic-prof`), CPython since 3.12 (`-X perf`), Java's agents and others append a line for each function
//! that they compile: its address, its length, its name (`tools/perf/Documentation/jit-interface.txt` in Linux). The
//! file is read as it grows, and from its start where it was written anew, as Java's machine does whenever it is asked
//! (`jcmd PID Compiler.perfmap`). Code that is moved or thrown away is not taken out of it: of two functions at one
//! address the later one counts.
//!
//! Anybody may write to `/tmp`: the file must belong to the process's user, or to root,
//! and be younger than the process.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use rustix::fs::OFlags;

use crate::model::profile::Frame;
use crate::model::snapshot::{ProcessInfo, ProcessState};
use crate::process;
use crate::symbols::function_name;
use crate::words::printable::printable;

/// No more is read of a file.
const LARGEST: u64 = 256 << 20;

/// The longest line; what is longer is no function's.
const LONGEST_LINE: usize = 64 << 10;

/// So much of what was read last is looked at again.
const TAIL: usize = 64;

/// File systems count the time of a change in ticks of the kernel's clock.
const CLOCK_SLACK_NS: u64 = 20_000_000;

/// What a process says of its generated code.
#[derive(Debug, Default)]
pub(crate) struct PerfMap {
    /// The file that is being read, with the time at which its process started.
    file: Option<(u64, File)>,
    read: u64,
    /// The last bytes of what was read: where they have changed, the file was written anew.
    tail: Vec<u8>,
    /// The beginning of a line.
    partial: Vec<u8>,
    /// For each start the end and the name.
    functions: BTreeMap<u64, (u64, String)>,
}

impl PerfMap {
    /// Reads what is new. True if there was anything.
    pub(crate) fn update(&mut self, process: &ProcessInfo) -> bool {
        if self.file.as_ref().is_none_or(|(started, _)| *started != process.start_realtime_ns) {
            let Some(file) = open(process) else { return false };
            *self = Self { file: Some((process.start_realtime_ns, file)), ..Self::default() };
        }
        if !self.has_its_tail() {
            // What it said of code that is gone still counts: stacks may be older.
            self.read = 0;
            self.tail.clear();
            self.partial.clear();
        }
        let before = self.read;
        // What cannot be read has no names.
        let _ = self.read_on();
        self.read != before
    }

    /// Whether what was read last is there still.
    fn has_its_tail(&self) -> bool {
        let Some((_, file)) = &self.file else { return true };
        let mut tail = [0; TAIL];
        let tail = &mut tail[..self.tail.len()];
        file.read_exact_at(tail, self.read - tail.len() as u64).is_ok() && *tail == *self.tail
    }

    fn read_on(&mut self) -> std::io::Result<()> {
        let Some((_, file)) = &mut self.file else { return Ok(()) };
        file.seek(SeekFrom::Start(self.read))?;
        let mut buffer = vec![0; 64 << 10];
        while self.read < LARGEST {
            let got = file.read(&mut buffer)?;
            if got == 0 {
                break;
            }
            self.read += got as u64;
            self.tail.extend_from_slice(&buffer[got.saturating_sub(TAIL)..got]);
            self.tail.drain(..self.tail.len().saturating_sub(TAIL));
            let mut rest = &buffer[..got];
            while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
                self.partial.extend_from_slice(&rest[..end]);
                add(&mut self.functions, &self.partial);
                self.partial.clear();
                rest = &rest[end + 1..];
            }
            if self.partial.len() + rest.len() <= LONGEST_LINE {
                self.partial.extend_from_slice(rest);
            }
        }
        Ok(())
    }

    /// The function at an address.
    pub(crate) fn frame(&self, address: u64) -> Option<Frame> {
        let (_, (end, name)) = self.functions.range(..=address).next_back()?;
        (address < *end).then(|| frame(name))
    }
}

/// The map of a process: in a container it lies in another `/tmp`, under another process id.
fn open(process: &ProcessInfo) -> Option<File> {
    let pid = process.pid;
    let mut candidates = Vec::new();
    if process.state == ProcessState::Running {
        let inner = process::innermost_pid(pid).unwrap_or(pid);
        candidates.push(PathBuf::from(format!("/proc/{pid}/root/tmp/perf-{inner}.map")));
    }
    candidates.push(PathBuf::from(format!("/tmp/perf-{pid}.map")));
    let owner = process::effective_uid(pid).unwrap_or_else(process::own_uid);
    candidates.into_iter().find_map(|path| {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
        let metadata = file.metadata().ok()?;
        let changed = (metadata.mtime().max(0) as u64).saturating_mul(1_000_000_000) + metadata.mtime_nsec() as u64;
        let ours = metadata.uid() == owner || metadata.uid() == 0;
        (metadata.is_file() && ours && changed + CLOCK_SLACK_NS >= process.start_realtime_ns).then_some(file)
    })
}

/// Adds `START LENGTH NAME`, numbers in hexadecimal. What it covers of others goes.
fn add(functions: &mut BTreeMap<u64, (u64, String)>, line: &[u8]) {
    let line = printable(line);
    let mut parts = line.splitn(3, ' ');
    let mut number = || u64::from_str_radix(parts.next()?.trim_start_matches("0x"), 16).ok();
    let (Some(start), Some(length)) = (number(), number()) else { return };
    let (Some(end), Some(name)) = (start.checked_add(length), parts.next()) else { return };
    if length == 0 || name.is_empty() {
        return;
    }
    if let Some((&below, (below_end, _))) = functions.range_mut(..start).next_back()
        && *below_end > start
    {
        debug_assert!(below < start);
        *below_end = start;
    }
    let covered: Vec<u64> = functions.range(start..end).map(|(&at, _)| at).collect();
    for at in covered {
        functions.remove(&at);
    }
    functions.insert(start, (end, name.to_owned()));
}

/// A function as its writer means it: `py::NAME:FILE` is Python's, `JS:*NAME FILE:LINE:COLUMN` V8's.
/// Anything else is a name.
fn frame(name: &str) -> Frame {
    python(name).or_else(|| javascript(name)).unwrap_or_else(|| Frame { name: name.to_owned(), ..Frame::default() })
}

fn python(name: &str) -> Option<Frame> {
    let (function, file) = name.strip_prefix("py::")?.rsplit_once(':')?;
    Some(Frame { name: function_name::in_file(function, file), file: Some(file.to_owned()), ..Frame::default() })
}

fn javascript(name: &str) -> Option<Frame> {
    let (kind, rest) = name.split_once(':')?;
    if !matches!(kind, "JS" | "LazyCompile" | "Function" | "Eval" | "Script") {
        return None;
    }
    // How far it is compiled: `~` interpreted, `^` baseline, `+` mid-tier, `*` optimised.
    let (function, place) = rest.trim_start_matches(['~', '^', '+', '*']).rsplit_once(' ')?;
    let mut parts = place.rsplitn(3, ':');
    let (_column, line, file) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
    let file = file.strip_prefix("file://").unwrap_or(file);
    let name = if function.is_empty() { "(anonymous)" } else { function };
    Some(Frame { name: name.to_owned(), file: Some(file.to_owned()), line: Some(line), ..Frame::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(text: &str) -> PerfMap {
        let mut map = PerfMap::default();
        text.lines().for_each(|line| add(&mut map.functions, line.as_bytes()));
        map
    }

    fn name(map: &PerfMap, address: u64) -> Option<String> {
        map.frame(address).map(|frame| frame.name)
    }

    #[test]
    fn of_two_functions_at_one_address_the_later_one_counts() {
        let map = map("1000 100 first\n1080 10 second\n0x2000 10 with a blank\n1ff0 20 over it\n");
        for (address, expected) in [
            (0xfff, None),
            (0x1000, Some("first")),
            (0x1080, Some("second")),
            (0x1090, None),
            (0x1ff0, Some("over it")),
            (0x200f, Some("over it")),
            (0x2010, None),
        ] {
            assert_eq!(name(&map, address).as_deref(), expected, "{address:#x}");
        }
    }

    #[test]
    fn a_file_that_is_written_anew_is_read_from_its_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("perf.map");
        let process = ProcessInfo { start_realtime_ns: 7, ..ProcessInfo::default() };
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        write("1000 10 first\n2000 10 sec");
        let mut map = PerfMap { file: Some((7, File::open(&path).unwrap())), ..PerfMap::default() };
        assert!(map.update(&process) && !map.update(&process));
        write("1000 10 first\n2000 10 second\n");
        assert!(map.update(&process), "it has grown");
        assert_eq!(name(&map, 0x2000).as_deref(), Some("second"));
        // Longer than before, as long, and shorter.
        for (text, last) in [
            ("1000 10 first\n1800 10 between them\n2000 10 third\n", "third"),
            ("1000 10 first\n1800 10 between them\n2000 10 other\n", "other"),
            ("2000 10 fifth\n", "fifth"),
        ] {
            write(text);
            assert!(map.update(&process) && !map.update(&process), "{text}");
            let known = [0x1000, 0x1800, 0x2000].map(|at| name(&map, at).unwrap_or_default());
            assert_eq!(known, ["first", "between them", last]);
        }
        write("");
        assert!(!map.update(&process));
        assert_eq!(name(&map, 0x2000).as_deref(), Some("fifth"), "of code that is gone");
        write("2000 10 sixth\n");
        assert!(map.update(&process));
        assert_eq!(name(&map, 0x2000).as_deref(), Some("sixth"));
    }

    #[test]
    fn lines_that_are_no_functions_are_passed_over() {
        let map = map("\nnonsense\n10\n10 20\n10 20 \n10 0 empty\nffffffffffffffff 2 over the end\n10 zz x\n");
        assert!(map.functions.is_empty(), "{map:?}");
    }

    proptest::proptest! {
        #[test]
        fn no_line_does_harm_and_functions_never_overlap(
            lines in proptest::collection::vec("[0-9a-f]{0,3} [0-9a-f]{0,2} (py::|JS:[*~]?)?[a-z<:; ]{0,8}|\\PC{0,20}", 0..60),
            address in 0..0x1200u64,
        ) {
            let map = map(&lines.join("\n"));
            let mut end_of_last = 0;
            for (start, (end, name)) in &map.functions {
                assert!(end_of_last <= *start && start < end && !name.is_empty(), "{map:?}");
                end_of_last = *end;
            }
            let _ = map.frame(address);
        }
    }

    #[test]
    fn functions_of_python_and_javascript_have_files() {
        let python = frame("py::Cache.insert:/srv/app/cache.py");
        assert_eq!(
            (python.name.as_str(), python.file.as_deref()),
            ("Cache.insert (cache.py)", Some("/srv/app/cache.py"))
        );
        assert_eq!(frame("py::<module>:<string>").name, "<module> (<string>)");
        let js = frame("JS:*insert file:///srv/cache.js:12:7");
        assert_eq!((js.name.as_str(), js.source().as_deref()), ("insert", Some("/srv/cache.js:12")));
        assert_eq!(frame("JS:~ /srv/cache.js:12:7").name, "(anonymous)");
        assert_eq!(frame("LazyCompile:~x node:internal/timers:492:26").file.as_deref(), Some("node:internal/timers"));
        for plain in ["Lorg/Cache;::insert", "Builtin:ArrayMap", "JS:broken", "py::nothing", "RegExp:a b:1:2"] {
            assert_eq!(frame(plain).name, plain);
        }
    }
}
