//! Names for addresses, with real programs that a compiler makes here.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use poolscope_profiler::model::snapshot::{Module, ProcessInfo, ProcessState, file_number};
use poolscope_profiler::symbols::symbolize::SymbolCache;
use poolscope_profiler::symbols::warning::SymbolWarning;
use poolscope_profiler::{Frame, ProfileBuilder, SegmentReader, Site};

use crate::segment::{BIAS, Segment, TempSegment};

const SOURCE: &str = r#"#include <stdlib.h>
void *keep[4];
static inline __attribute__((always_inline)) void *grab(size_t n) {
    return malloc(n);
}
__attribute__((noinline)) void hold_memory(size_t n) {
    keep[0] = grab(n);
    keep[1] = 0;
}
void rusty(void) __asm__("_ZN7mycrate5cache3new17h0123456789abcdefE");
__attribute__((noinline)) void rusty(void) {
    keep[2] = malloc(2);
    keep[3] = 0;
}
void plus_plus(void) __asm__("_ZN5Cache6insertEi");
__attribute__((noinline)) void plus_plus(void) {
    keep[3] = malloc(3);
    keep[2] = 0;
}
"#;

const MAIN: &str = "int main(void) { hold_memory(1); rusty(); plus_plus(); return 0; }\n";

/// A compiled file and how its functions look inside.
struct Program {
    folder: tempfile::TempDir,
    path: PathBuf,
    /// The build id of the file.
    build_id: Vec<u8>,
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("is text")
}

impl Program {
    fn compile(flags: &[&str]) -> Self {
        Self::compile_source(&format!("{SOURCE}{MAIN}"), flags)
    }

    fn compile_source(source: &str, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("there is room");
        std::fs::write(folder.path().join("program.c"), source).expect("is written");
        let path = folder.path().join("program");
        run(Command::new("gcc")
            .current_dir(folder.path())
            .args(["-O2", "-Wl,--build-id", "-o", "program", "program.c"])
            .args(flags));
        let mut program = Self { folder, path, build_id: Vec::new() };
        let notes = run(Command::new("readelf").arg("-n").arg(&program.path));
        if let Some(id) = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")) {
            let digits = id.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("is text"));
            program.build_id = digits.map(|pair| u8::from_str_radix(pair, 16).expect("is hexadecimal")).collect();
        }
        program
    }

    fn tool(&self, name: &str, arguments: &[&str]) {
        run(Command::new(name).current_dir(self.folder.path()).args(arguments));
    }

    /// The address in the file to which the first call in a function returns.
    fn return_address_in(&self, function: &str) -> u64 {
        let code = run(Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(&self.path));
        let mut lines = code.lines().skip_while(|line| !line.ends_with(&format!("<{function}>:")));
        lines.find(|line| line.contains("call ")).expect("it calls something");
        let next = lines.next().expect("goes on");
        u64::from_str_radix(next.trim().split(':').next().expect("has an address"), 16).expect("is an address")
    }

    fn module(&self) -> Module {
        let number = || {
            let file = std::fs::metadata(&self.path).expect("is there");
            file_number(file.ino(), file.len(), (file.mtime(), file.mtime_nsec() as u64))
        };
        Module {
            file: if self.build_id.is_empty() { number() } else { 0 },
            start: BIAS,
            end: BIAS + 0x10_0000,
            load_bias: BIAS,
            build_id: self.build_id.clone(),
            path: self.path.display().to_string(),
            stacks: 0..u32::MAX,
        }
    }
}

fn dead_process() -> ProcessInfo {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("is after 1970").as_nanos() as u64;
    ProcessInfo {
        pid: 4_000_000_000,
        state: ProcessState::Killed,
        exe: String::new(),
        args: Vec::new(),
        start_realtime_ns: now + 1_000_000_000,
        start_monotonic_ns: 0,
        forked: false,
    }
}

/// The frames of a call, and what was complained about.
fn frames(module: &Module, return_address: u64) -> (Vec<Frame>, Vec<SymbolWarning>) {
    let mut symbols = SymbolCache::new();
    let frames = symbols.frames(&dead_process(), module, BIAS + return_address - 1).to_vec();
    (frames, symbols.take_warnings())
}

fn names(frames: &[Frame]) -> Vec<&str> {
    frames.iter().map(|frame| frame.name.as_str()).collect()
}

#[test]
fn debug_information_gives_inlined_functions_with_files_and_lines() {
    let program = Program::compile(&["-g"]);
    let (frames, warnings) = frames(&program.module(), program.return_address_in("hold_memory"));
    assert_eq!(warnings, []);
    assert_eq!(names(&frames), ["grab", "hold_memory"]);
    assert_eq!((frames[0].inlined, frames[1].inlined), (true, false));
    assert_eq!((frames[0].line, frames[1].line), (Some(4), Some(7)));
    assert!(
        frames.iter().all(|frame| frame.file.as_ref().is_some_and(|file| file.ends_with("/program.c"))),
        "{frames:?}"
    );
}

#[test]
fn a_binary_stripped_of_debug_information_still_has_names() {
    let program = Program::compile(&["-g"]);
    let (hold, rust, cpp) = (
        program.return_address_in("hold_memory"),
        program.return_address_in("_ZN7mycrate5cache3new17h0123456789abcdefE"),
        program.return_address_in("_ZN5Cache6insertEi"),
    );
    program.tool("strip", &["--strip-debug", "program"]);
    let module = program.module();
    assert_eq!(names(&frames(&module, hold).0), ["hold_memory"]);
    assert_eq!(names(&frames(&module, rust).0), ["mycrate::cache::new"]);
    assert_eq!(names(&frames(&module, cpp).0), ["Cache::insert(int)"]);
}

#[test]
fn a_fully_stripped_library_has_the_names_that_it_exports() {
    let program = Program::compile_source(SOURCE, &["-g", "-shared", "-fPIC"]);
    let address = program.return_address_in("hold_memory");
    program.tool("strip", &["--strip-all", "program"]);
    assert_eq!(names(&frames(&program.module(), address).0), ["hold_memory"]);
}

#[test]
fn a_fully_stripped_program_shows_module_and_offset_without_complaint() {
    let program = Program::compile(&["-g"]);
    let address = program.return_address_in("hold_memory");
    program.tool("strip", &["--strip-all", "program"]);
    let (frames, warnings) = frames(&program.module(), address);
    assert_eq!(names(&frames), [format!("[program+{:#x}]", address - 1)]);
    assert_eq!(warnings, []);
}

#[test]
fn separate_debug_information_is_found_by_its_link() {
    let program = Program::compile(&["-g"]);
    let address = program.return_address_in("hold_memory");
    program.tool("objcopy", &["--only-keep-debug", "program", "program.debug"]);
    program.tool("strip", &["--strip-all", "program"]);
    program.tool("objcopy", &["--add-gnu-debuglink=program.debug", "program"]);
    assert_eq!(names(&frames(&program.module(), address).0), ["grab", "hold_memory"]);
}

#[test]
fn a_file_that_was_rebuilt_gives_no_names_and_one_warning() {
    let program = Program::compile(&["-g"]);
    let address = program.return_address_in("hold_memory");
    let mut module = program.module();
    module.build_id[0] ^= 1;
    let mut symbols = SymbolCache::new();
    for offset in [0, 1] {
        let frames = symbols.frames(&dead_process(), &module, BIAS + address - offset);
        assert!(frames[0].is_placeholder(), "{frames:?}");
    }
    let warnings = symbols.take_warnings();
    assert_eq!(warnings.len(), 1);
    assert_eq!(
        warnings[0].to_string().replace(&module.path, "FILE"),
        "no names for program: FILE has changed since the process loaded it (its build id differs); its frames show as [program+OFFSET]"
    );
    assert_eq!(symbols.take_warnings(), []);
}

#[test]
fn a_file_without_a_build_id_must_be_the_very_one_that_was_loaded() {
    let program = Program::compile(&["-g", "-Wl,--build-id=none"]);
    assert_eq!(program.build_id, [0u8; 0]);
    let address = program.return_address_in("hold_memory");
    assert_eq!(names(&frames(&program.module(), address).0), ["grab", "hold_memory"]);

    let loaded = program.module();
    let touched = SystemTime::now() - std::time::Duration::from_secs(3600);
    std::fs::File::open(&program.path).and_then(|file| file.set_modified(touched)).expect("is made older");
    for (module, why) in [
        (loaded, "it is another file, or was written to"),
        (Module { file: 0, ..program.module() }, "for all that is known"),
    ] {
        let (frames, warnings) = frames(&module, address);
        assert!(frames[0].is_placeholder() && warnings[0].to_string().contains(why), "{frames:?} {warnings:?}");
    }
}

#[test]
fn a_missing_file_and_one_that_is_no_elf_give_a_warning_each() {
    let program = Program::compile(&[]);
    let mut module = program.module();
    module.path = "/nonexistent/libfoo.so".to_owned();
    let (found, warnings) = frames(&module, 0x100);
    assert_eq!(names(&found), ["[libfoo.so+0xff]"]);
    assert!(matches!(warnings.as_slice(), [SymbolWarning::Unreadable { .. }]), "{warnings:?}");

    for contents in [&b""[..], b"text", b"\x7fELF\x02\x01\x01", &[0xff; 4096]] {
        std::fs::write(&program.path, contents).expect("is written");
        let (found, warnings) = frames(&program.module(), 0x100);
        assert!(found[0].is_placeholder());
        assert_eq!(warnings.len(), 1, "{contents:?}");
    }
    module.path = "./libfoo.so".to_owned();
    let (_, warnings) = frames(&module, 0x100);
    assert!(matches!(warnings.as_slice(), [SymbolWarning::Relative { .. }]), "{warnings:?}");
    for path in ["[vdso]", "", "/dev/zero", "/tmp"] {
        module.path = path.to_owned();
        assert!(frames(&module, 0x100).0[0].is_placeholder());
    }
}

#[test]
fn a_program_whose_file_is_gone_has_names_while_it_runs() {
    let program = Program::compile_source(
        &format!("{SOURCE}#include <unistd.h>\nint main(void) {{ hold_memory(1); sleep(60); }}"),
        &["-g"],
    );
    let address = program.return_address_in("hold_memory");
    let mut child = Command::new(&program.path).spawn().expect("starts");
    std::fs::remove_file(&program.path).expect("is removed");
    let path = format!("{} (deleted)", program.path.display());
    let process = ProcessInfo { pid: child.id(), state: ProcessState::Running, exe: path.clone(), ..dead_process() };
    let mut symbols = SymbolCache::new();
    let frames = symbols.frames(&process, &Module { path, ..program.module() }, BIAS + address - 1);
    child.kill().and_then(|()| child.wait()).expect("ends");
    assert_eq!(names(&frames), ["grab", "hold_memory"]);
}

#[test]
fn two_libraries_at_the_same_address_one_after_the_other_are_told_apart() {
    let first = Program::compile(&["-g"]);
    let second = Program::compile_source(&SOURCE.replace("hold_memory", "other_plugin"), &["-g", "-shared", "-fPIC"]);
    let mut segment = Segment::new();
    let add = |segment: &mut Segment, program: &Program, stacks: std::ops::Range<u32>| {
        let record =
            segment.module(&program.path.display().to_string(), BIAS, BIAS + 0x10_0000, BIAS, &program.build_id);
        (record.first_stack, record.last_stack) = (stacks.start, stacks.end);
    };
    add(&mut segment, &first, 0..2);
    add(&mut segment, &second, 2..u32::MAX);
    let stack = segment.stack(&[BIAS + first.return_address_in("hold_memory")]);
    segment.block(stack, 10, 2);
    let stack = segment.stack(&[BIAS + second.return_address_in("other_plugin")]);
    segment.block(stack, 10, 1);
    let file = TempSegment::new(&segment);
    let snapshot = SegmentReader::open(&file.path).expect("opens").snapshot().expect("reads");
    let profile = ProfileBuilder::new().build(&snapshot);
    let outermost: Vec<&str> =
        profile.sites.iter().map(|site| profile.frames(site).last().expect("has a frame").name.as_str()).collect();
    assert_eq!(outermost, ["hold_memory", "other_plugin"]);
    assert!(Path::new(&profile.modules[1].path).is_file());
}

#[test]
fn an_address_of_several_stacks_is_of_the_library_that_was_there_when_each_was_captured() {
    let first = Program::compile(&["-g"]);
    let second = Program::compile_source(&SOURCE.replace("hold_memory", "other_plugin"), &["-g", "-shared", "-fPIC"]);
    let mut segment = Segment::new();
    for (program, stacks) in [(&first, 0..2), (&second, 2..3), (&first, 3..u32::MAX)] {
        let path = program.path.display().to_string();
        let record = segment.module(&path, BIAS, BIAS + 0x10_0000, BIAS, &program.build_id);
        (record.first_stack, record.last_stack) = (stacks.start, stacks.end);
    }
    let address = BIAS + first.return_address_in("hold_memory");
    for number in 0..3 {
        let stack = segment.stack(&[address]);
        segment.block(stack, 10, 3 - number);
    }
    let file = TempSegment::new(&segment);
    let snapshot = SegmentReader::open(&file.path).expect("opens").snapshot().expect("reads");
    let profile = ProfileBuilder::new().build(&snapshot);
    let path_of = |site: &Site| {
        profile
            .module(&profile.locations[site.locations[0]])
            .map(|module| PathBuf::from(&module.path))
            .expect("has one")
    };
    let paths: Vec<PathBuf> = profile.sites.iter().map(path_of).collect();
    // The first and the third are one call site again.
    assert_eq!(paths, [first.path.clone(), second.path.clone()]);
    assert_eq!(profile.sites[0].in_use.objects, 4.0);
}
