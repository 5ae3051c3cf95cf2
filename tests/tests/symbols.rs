//! Names for the frames of real programs: where their symbols are, who made their code, and what became of their files.

use std::path::{Path, PathBuf};

use poolscope_e2e::{Pool, Program, Running, compiler, pprof};
use serde_json::Value;

/// The stacks in use, as folded lines without figures.
fn stacks(pool: &Pool, target: &str, args: &[&str]) -> Vec<String> {
    let profile = pool.files().join(format!("{}.pb.gz", target.replace('/', "_")));
    // What it says of modules without names is the tests' business.
    assert_eq!(pool.poolscope().args(["dump", target, "-o"]).arg(&profile).args(args).run().code(), 0);
    let traces = Program::new("go")
        .args(["tool", "pprof", "-traces", "-sample_index=inuse_space"])
        .arg(&profile)
        .env("PPROF_TMPDIR", pool.files().path())
        .env("HOME", pool.files().path())
        .run()
        .success()
        .stdout;
    // A stack's first line has its figure, labels have a colon.
    let is_rule = |line: &str| line.starts_with("-----------+");
    let mut found = Vec::new();
    for part in traces.split_inclusive('\n').collect::<Vec<_>>().split(|line| is_rule(line)) {
        let names: Vec<&str> = part
            .iter()
            .filter(|line| !line.trim_start().starts_with("bytes:") && !line.trim_start().starts_with("thread:"))
            .map(|line| line.get(10..).unwrap_or_default().trim().trim_end_matches(" (inline)"))
            .filter(|name| !name.is_empty())
            .collect();
        found.push(names.join(" < "));
    }
    found
}

#[track_caller]
fn assert_some(stacks: &[String], part: &str) {
    assert!(stacks.iter().any(|stack| stack.contains(part)), "no stack has {part:?}: {stacks:#?}");
}

/// A program of `tests/csrc`.
fn build(pool: &Pool, flags: &[&str]) -> PathBuf {
    compiler::compile_with_headers(pool.files(), "tests/csrc/symbols.c", "symbols", flags)
}

fn start(pool: &Pool, program: &Path, plug_ins: &[&Path]) -> Running {
    let mut running = pool.program(program).args(plug_ins).env("POOLSCOPE_PERIOD", "1").start();
    running.wait_for_line("ready");
    running
}

/// A shared library whose function `plug_in` calls one of the name given.
fn plug_in(pool: &Pool, file: &str, function: &str) -> PathBuf {
    let source = format!(
        "#include <stdlib.h>\n__attribute__((noinline)) void *{function}(void) {{ void *p = malloc(1000); \
         *(char *)p = 1; return p; }}\nvoid *plug_in(void) {{ void *p = {function}(); *(char *)p = 2; return p; }}\n"
    );
    let source = pool.files().write(&format!("{file}.c"), &source);
    let library = pool.files().join(file);
    let flags = ["-shared", "-fPIC", "-g", "-O1", "-Wl,--build-id"];
    Program::new("gcc").args(flags).arg("-o").arg(&library).arg(source).run().silent_success();
    library
}

fn tool(pool: &Pool, name: &str, args: &[&str]) {
    Program::new(name).args(args).dir(pool.files().path()).run().silent_success();
}

fn build_id(path: &Path) -> String {
    let notes = Program::new("readelf").arg("-n").arg(path).run().success().stdout;
    notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).expect("has a build id").to_owned()
}

#[test]
fn programs_with_and_without_a_fixed_address_have_their_names_and_inlined_functions() {
    for flags in [["-g", "-O1", "-pie", "-fPIE"], ["-g", "-O1", "-no-pie", "-fno-PIE"]] {
        let pool = Pool::new();
        let running = start(&pool, &build(&pool, &flags), &[]);
        assert_some(&stacks(&pool, &running.pid().to_string(), &[]), "inlined_into_it < hold_in_main < main");
    }
}

#[test]
fn debug_information_is_found_by_build_id_and_by_link_in_a_folder_that_is_named() {
    let pool = Pool::new();
    let program = build(&pool, &["-g", "-O1", "-Wl,--build-id"]);
    let id = build_id(&program);
    tool(&pool, "objcopy", &["--only-keep-debug", "symbols", "symbols.debug"]);
    tool(&pool, "strip", &["--strip-all", "symbols"]);
    let running = start(&pool, &program, &[]);
    let pid = running.pid().to_string();
    assert_some(&stacks(&pool, &pid, &[]), "[symbols+0x");

    let by_id = pool.files().join(format!("by-id/.build-id/{}", &id[..2]));
    std::fs::create_dir_all(&by_id).expect("is made");
    std::fs::copy(pool.files().join("symbols.debug"), by_id.join(format!("{}.debug", &id[2..]))).expect("is copied");
    let dir = pool.files().join("by-id");
    let named = stacks(&pool, &pid, &["--debug-dir", dir.to_str().expect("is text")]);
    assert_some(&named, "inlined_into_it < hold_in_main < main");

    // One of another build, at the right place, is not believed.
    let other = compiler::compile_with_headers(pool.files(), "tests/csrc/symbols.c", "other", &["-g", "-O2"]);
    std::fs::copy(other, by_id.join(format!("{}.debug", &id[2..]))).expect("is copied");
    assert_some(&stacks(&pool, &pid, &["--debug-dir", dir.to_str().expect("is text")]), "[symbols+0x");
    drop(running);

    let linked = pool.files().join("linked");
    std::fs::create_dir(&linked).expect("is made");
    tool(&pool, "objcopy", &["--add-gnu-debuglink=symbols.debug", "symbols"]);
    std::fs::rename(pool.files().join("symbols.debug"), linked.join("symbols.debug")).expect("is moved");
    let running = start(&pool, &program, &[]);
    let named = stacks(&pool, &running.pid().to_string(), &["--debug-dir", linked.to_str().expect("is text")]);
    assert_some(&named, "inlined_into_it < hold_in_main < main");
}

/// Puts the header of one section in the place of another one's,
/// as `patchelf` does when it moves a section to the file's end.
fn swap_sections(file: &Path, names: [&str; 2]) {
    let mut bytes = std::fs::read(file).expect("is read");
    let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")) as usize;
    let short = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let (table, count, name_section) = (long(40), short(60), short(62));
    let all_names = long(table + 64 * name_section + 24);
    let place = |name: &str| {
        let is_it = |&at: &usize| {
            let start = all_names + long(table + 64 * at) as u32 as usize;
            bytes[start..].starts_with(format!("{name}\0").as_bytes())
        };
        table + 64 * (0..count).find(is_it).expect("the section is there")
    };
    let [one, other] = names.map(place);
    (0..64).for_each(|byte| bytes.swap(one + byte, other + byte));
    std::fs::write(file, bytes).expect("is written");
}

#[test]
fn a_probe_before_the_build_id_is_not_taken_for_it() {
    let pool = Pool::new();
    let source = "#include <stdlib.h>\n\
        __asm__(\".pushsection .note.stapsdt,\\\"\\\",\\\"note\\\"\\n.balign 4\\n.long 8, 2f - 1f, 3\\n.asciz \\\"stapsdt\\\"\\n\"\n\
        \"1: .quad 0, 0, 0\\n.asciz \\\"provider\\\"\\n.asciz \\\"probe\\\"\\n.asciz \\\"\\\"\\n.balign 4\\n2:\\n.popsection\");\n\
        __attribute__((noinline)) void *of_the_wheel(void) { void *p = malloc(1000); *(char *)p = 1; return p; }\n\
        void *plug_in(void) { void *p = of_the_wheel(); *(char *)p = 2; return p; }\n";
    let source = pool.files().write("wheel.c", source);
    let library = pool.files().join("libwheel.so");
    let flags = ["-shared", "-fPIC", "-g", "-O1", "-Wl,--build-id"];
    Program::new("gcc").args(flags).arg("-o").arg(&library).arg(source).run().silent_success();
    swap_sections(&library, [".note.gnu.build-id", ".note.stapsdt"]);
    let notes = Program::new("readelf").arg("-n").arg(&library).run().success().stdout;
    assert!(notes.find("stapsdt") < notes.find("Build ID"), "{notes}");
    let running = start(&pool, &build(&pool, &["-g", "-O1"]), &[&library]);
    assert_some(&stacks(&pool, &running.pid().to_string(), &[]), "of_the_wheel < plug_in < main");
}

#[test]
fn a_library_that_was_replaced_on_disk_lends_no_wrong_names() {
    let pool = Pool::new();
    let library = plug_in(&pool, "libplug.so", "of_the_first_build");
    let other = plug_in(&pool, "libother.so", "of_the_second_build_which_is_longer");
    let program = build(&pool, &["-g", "-O1"]);
    let running = start(&pool, &program, &[&library]);
    std::fs::rename(&other, &library).expect("is replaced");
    let living = stacks(&pool, &running.pid().to_string(), &[]);
    // The mapped file itself can be opened by the administrator alone.
    let right = living.iter().any(|stack| stack.contains("of_the_first_build < plug_in < main"));
    let none = living.iter().any(|stack| stack.contains("[libplug.so+0x"));
    assert!((right || none) && !living.iter().any(|stack| stack.contains("second")), "{living:#?}");

    running.signal(libc::SIGKILL);
    let pid = running.pid().to_string();
    running.finish();
    let dead = stacks(&pool, &pid, &[]);
    assert_some(&dead, "[libplug.so+0x");
    assert!(!dead.iter().any(|stack| stack.contains("second")), "{dead:#?}");
    let dump = pool.poolscope().args(["dump", &pid, "-o", "-"]).run();
    assert!(dump.stderr.contains("libplug.so has changed since the process loaded it"), "{}", dump.report());
}

/// A library without a build id.
fn plug_in_without_id(pool: &Pool, file: &str, function: &str) -> PathBuf {
    let library = plug_in(pool, file, function);
    tool(pool, "objcopy", &["--remove-section", ".note.gnu.build-id", file]);
    library
}

#[test]
fn a_library_that_was_loaded_by_a_relative_path_has_its_names_and_its_whole_path() {
    for with_id in [true, false] {
        let pool = Pool::new();
        let library = if with_id { plug_in } else { plug_in_without_id }(&pool, "libnear.so", "of_the_near_one");
        let running = start(&pool, &build(&pool, &["-g", "-O1"]), &[Path::new("./libnear.so")]);
        let pid = running.pid().to_string();
        assert_some(&stacks(&pool, &pid, &[]), "of_the_near_one < plug_in < main");
        running.signal(libc::SIGKILL);
        running.finish();
        assert_some(&stacks(&pool, &pid, &[]), "of_the_near_one < plug_in < main");
        let profile = pool.files().join(format!("{pid}.pb.gz"));
        let mappings = pprof::Raw::read(pool.files(), &profile).mappings.join("\n");
        assert!(mappings.contains(library.to_str().expect("is text")), "{mappings}");
    }
}

#[test]
fn a_library_without_a_build_id_has_names_of_the_very_file_that_was_loaded_and_of_no_other() {
    let pool = Pool::new();
    let other = plug_in_without_id(&pool, "libother.so", "of_the_older_build");
    let past = std::time::SystemTime::now() - std::time::Duration::from_secs(86_400);
    std::fs::File::options().write(true).open(&other).and_then(|file| file.set_modified(past)).expect("is made older");
    let library = plug_in_without_id(&pool, "libplug.so", "of_the_loaded_build");
    let running = start(&pool, &build(&pool, &["-g", "-O1"]), &[&library]);
    running.signal(libc::SIGKILL);
    let pid = running.pid().to_string();
    running.finish();
    assert_some(&stacks(&pool, &pid, &[]), "of_the_loaded_build < plug_in < main");
    std::fs::rename(&other, &library).expect("is replaced");
    let dead = stacks(&pool, &pid, &[]);
    assert_some(&dead, "[libplug.so+0x");
    assert!(!dead.iter().any(|stack| stack.contains("of_the")), "{dead:#?}");
    let dump = pool.poolscope().args(["dump", &pid, "-o", "-"]).run();
    assert!(dump.stderr.contains("libplug.so has changed since the process loaded it"), "{}", dump.report());
}

#[test]
fn libraries_that_came_one_after_the_other_keep_their_names() {
    let pool = Pool::new();
    let (first, second) = (plug_in(&pool, "libone.so", "of_one"), plug_in(&pool, "libtwo.so", "of_two"));
    let running = start(&pool, &build(&pool, &["-g", "-O1"]), &[&first, &second]);
    let found = stacks(&pool, &running.pid().to_string(), &[]);
    assert_some(&found, "of_one < plug_in < main");
    assert_some(&found, "of_two < plug_in < main");
}

#[test]
fn generated_code_has_the_names_of_the_perf_map() {
    let pool = Pool::new();
    let program = compiler::compile_with_headers(pool.files(), "tests/csrc/jit.c", "jit", &["-g", "-O1"]);
    let mut running = pool.program(program).env("POOLSCOPE_PERIOD", "1").start();
    running.wait_for_line("ready");
    let pid = running.pid().to_string();
    let found = stacks(&pool, &pid, &[]);
    assert_some(&found, "callee < jit_with_a_frame_pointer < function < main");
    assert_some(&found, "callee < Cache.insert (cache.py) < function < main");
    assert!(!found.iter().any(|stack| stack.contains("jit_named_later")), "{found:#?}");
    running.send("\n");
    running.wait_for_line("named");
    assert_some(&stacks(&pool, &pid, &[]), "callee < jit_named_later < function < main");
    running.end_input();
    assert_eq!(running.finish().code(), 0);
}

#[test]
fn a_perf_map_that_is_older_than_the_process_is_not_its_own() {
    let pool = Pool::new();
    let program = build(&pool, &["-g", "-O1"]);
    let running = start(&pool, &program, &[]);
    let path = PathBuf::from(format!("/tmp/perf-{}.map", running.pid()));
    std::fs::write(&path, "0 ffffffffffff of_another_process\n").expect("is written");
    let past = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    std::fs::File::options().write(true).open(&path).and_then(|file| file.set_modified(past)).expect("is made older");
    let found = stacks(&pool, &running.pid().to_string(), &[]);
    std::fs::remove_file(&path).expect("is removed");
    assert!(!found.iter().any(|stack| stack.contains("of_another_process")), "{found:#?}");
}

/// A view of the dashboard, as text.
fn screen(pool: &Pool, view: &str, pid: &str) -> String {
    let args = ["top", pid, "--once", "--plain", "--size", "160x40", "--view", view];
    pool.poolscope().args(args).run().success().stdout
}

/// Python that can name its functions while it runs, if this machine has one.
fn python() -> Option<PathBuf> {
    let mut candidates: Vec<PathBuf> = vec!["/usr/bin/python3".into(), "/usr/local/bin/python3".into()];
    for folder in std::env::var_os("HOME").into_iter().map(|home| PathBuf::from(home).join(".pyenv/versions")) {
        let versions = std::fs::read_dir(folder).into_iter().flatten().flatten();
        candidates.extend(versions.map(|version| version.path().join("bin/python3")));
    }
    let can = "import sys; sys.activate_stack_trampoline('perf'); sys.deactivate_stack_trampoline()";
    candidates
        .into_iter()
        .find(|python| python.exists() && Program::new(python).args(["-c", can]).run().status.success())
}

#[test]
fn functions_of_python_are_woven_into_the_stacks() {
    let Some(python) = python() else {
        poolscope_e2e::skip("no CPython 3.12 or later here, and earlier ones do not name their functions");
        return;
    };
    let pool = Pool::new();
    let script = pool.files().write(
        "cache.py",
        "class Cache:\n    def insert(self, n):\n        return bytearray(n)\n\ndef fill(cache):\n    \
         return [cache.insert(5000) for _ in range(100)]\n\nheld = fill(Cache())\nprint('ready', flush=True)\ninput()\n",
    );
    let mut running = pool.program(&python).args(["-X", "perf"]).arg(script).env("POOLSCOPE_PERIOD", "1").start();
    running.wait_for_line("ready");
    let pid = running.pid().to_string();
    let all = stacks(&pool, &pid, &[]);
    let woven = all.iter().find(|stack| stack.contains("Cache.insert (cache.py)")).expect("a stack of the script");
    assert!(woven.contains("_PyEval_EvalFrameDefault") && woven.contains("fill (cache.py)"), "{woven}");
    assert!(woven.contains("<module> (cache.py)") && woven.contains("< Py_RunMain <"), "{woven}");
    let path = "Cache.insert (cache.py) < fill (cache.py) < <module> (cache.py)";
    assert_some(&stacks(&pool, &pid, &["--python"]), path);
    // What a person reads first is named by them, too.
    let report = pool.poolscope().args(["report", &pid]).run().success();
    let with_line = "Cache.insert  cache.py:3 < fill (cache.py) < <module> (cache.py)";
    assert!(report.stdout.contains(with_line), "{}", report.stdout);
    let sites = screen(&pool, "sites", &pid);
    assert!(sites.contains("Cache.insert cache.py:3 < fill"), "{sites}");
    let flame = screen(&pool, "flame", &pid);
    let boxes: Vec<&str> = flame.lines().filter_map(|line| line.split(" (cache.py)").next()).collect();
    assert!(boxes.windows(3).any(|boxes| boxes == ["|<module>", "|fill", "|Cache.insert"]), "{flame}");
    let why = "PYTHONPERFSUPPORT=1";
    assert!(!screen(&pool, "findings", &pid).contains(why));
    running.send("\n");
    running.finish();

    // So is a recording, without an option.
    let recording = pool.files().join("plain.rec");
    let script = "import os\ndef fill():\n    return [0] * 1000000\nx = fill(); os._exit(0)";
    let record = pool.poolscope().args(["record", "-o"]).arg(&recording).arg("--").arg(&python);
    assert_eq!(record.args(["-c", script]).run().code(), 0);
    let view = |view| {
        let view = ["--once", "--plain", "--size", "160x40", "--view", view];
        pool.poolscope().arg("replay").arg(&recording).args(view).run().success().stdout
    };
    assert!(!view("findings").contains(why));
    let sites = view("sites");
    assert!(sites.contains("fill <string>:3 < <module>"), "{sites}");
    let path = "fill (<string>) < <module> (<string>)";
    assert_some(&stacks(&pool, &recording.to_string_lossy(), &["--python"]), path);
}

#[test]
fn functions_of_javascript_have_their_names() {
    let node = Path::new("/usr/bin/node");
    let pool = Pool::new();
    let script = pool.files().write(
        "cache.js",
        "function fillCache() { const held = []; for (let i = 0; i < 100; i++) held.push(Buffer.allocUnsafeSlow(50000)); \
         return held; }\nconst held = fillCache();\nconsole.log('ready ' + held.length);\nsetTimeout(() => {}, 100000);\n",
    );
    let mut running = pool
        .program(node)
        .args(["--perf-basic-prof", "--interpreted-frames-native-stack"])
        .arg(&script)
        .env("POOLSCOPE_PERIOD", "16K")
        .start();
    running.wait_for_line("ready");
    let pid = running.pid().to_string();
    assert_some(&stacks(&pool, &pid, &[]), "fillCache");
    // It is what a person reads first, in one row: it holds 100 blocks of 50,000 bytes, which are 4.77 MiB, and small
    // ones beside them. Estimates are a few blocks off.
    let report = pool.poolscope().args(["report", &pid]).run().success().stdout;
    let in_use = report.lines().take_while(|line| !line.starts_with("Memory allocated"));
    let of_script: Vec<&str> = in_use.filter(|line| line.contains("fillCache  cache.js:1")).collect();
    assert_eq!(of_script.len(), 1, "{report}");
    let mib: f64 = of_script[0].split_once(" MiB").expect("some MiB").0.trim().parse().expect("a number");
    assert!((4.05..5.49).contains(&mib), "{mib}: {report}");
    let sites = screen(&pool, "sites", &pid);
    assert!(sites.contains("fillCache cache.js:1"), "{sites}");
    let flame = screen(&pool, "flame", &pid);
    assert!(flame.contains("|fillCache") && !flame.contains("AllocateUninitialized"), "{flame}");
    let why = "Call sites are those of Node";
    assert!(!screen(&pool, "findings", &pid).contains(why));
    std::fs::remove_file(format!("/tmp/perf-{}.map", running.pid())).expect("node wrote it");
    let mut plain = pool.program(node).arg(script).start();
    plain.wait_for_line("ready");
    let findings = screen(&pool, "findings", &plain.pid().to_string());
    assert!(findings.contains(why), "{findings}");
}

#[test]
fn functions_of_java_have_their_names() {
    let pool = Pool::new();
    let source = pool.files().write(
        "Cache.java",
        "import java.nio.ByteBuffer;\npublic class Cache {\n  static ByteBuffer[] held = new ByteBuffer[100];\n\
         static void fillCache() { for (int i = 0; i < 100; i++) held[i] = ByteBuffer.allocateDirect(50000); }\n\
         public static void main(String[] arguments) throws Exception {\n\
         fillCache(); System.out.println(\"ready\"); System.in.read();\n}\n}\n",
    );
    Program::new("javac").arg(&source).run().success();
    let start = |options: &[&str]| {
        let java = Path::new("/usr/bin/java");
        let mut running = pool.program(java).args(options).arg("Cache").env("POOLSCOPE_PERIOD", "16K").start();
        running.wait_for_line("ready");
        running
    };
    let mut running = start(&[
        "-XX:+PreserveFramePointer",
        "-Xcomp",
        "-XX:CompileCommand=quiet",
        "-XX:CompileOnly=Cache",
        "-XX:-Inline",
    ]);
    let pid = running.pid().to_string();
    let why = "Call sites are native functions that Java calls";
    let findings = screen(&pool, "findings", &pid);
    assert!(findings.contains(why), "{findings}");
    Program::new("jcmd").args([&pid, "Compiler.perfmap"]).run().success();
    let all = stacks(&pool, &pid, &[]);
    assert_some(&all, "void Cache.fillCache()");
    assert_some(&all, "Unsafe_AllocateMemory0");
    // It holds 100 blocks of 50,000 bytes, and estimates are a few blocks off. One small block, should it be a sample,
    // stands for hundreds: their number says nothing.
    let report = pool.poolscope().args(["report", &pid]).run().success().stdout;
    let in_use = report.lines().take_while(|line| !line.starts_with("Memory allocated"));
    let of_program = in_use.filter(|line| line.ends_with("  Cache.fillCache < Cache.main"));
    let bytes = |line: &str| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [number, "MiB", ..] => number.parse::<f64>().ok().map(|number| number * 1024.0 * 1024.0),
        [number, "KiB", ..] => number.parse::<f64>().ok().map(|number| number * 1024.0),
        _ => None,
    };
    let held: f64 = of_program.filter_map(bytes).sum();
    assert!((4_250_000.0..5_750_000.0).contains(&held), "{held}: {report}");
    let sites = screen(&pool, "sites", &pid);
    assert!(sites.contains("Cache.fillCache < Cache.main"), "{sites}");
    let flame = screen(&pool, "flame", &pid);
    assert!(flame.contains("|Cache.fillCache") && !flame.contains("Unsafe_AllocateMemory0"), "{flame}");
    assert!(!screen(&pool, "findings", &pid).contains(why));
    std::fs::remove_file(format!("/tmp/perf-{}.map", running.pid())).expect("Java wrote it");
    running.send("\n");
    running.finish();
}

/// What `go tool pprof -top` says that functions hold, themselves and by those that they call.
#[track_caller]
fn assert_holds(pool: &Pool, program: &Path, expected: &[(&str, u64)]) {
    let running = start(pool, program, &[]);
    let profile = pool.files().join("heap.pb.gz");
    pool.poolscope().args(["dump", &running.pid().to_string(), "-o"]).arg(&profile).run().success();
    let rows = pprof::top(pool.files(), &profile);
    for &(function, bytes) in expected {
        let found: Vec<u64> = rows.iter().filter(|row| row.function == function).map(|row| row.cumulative).collect();
        assert_eq!(found, [bytes], "{function} in {rows:#?}");
    }
}

/// What a report says in JSON that a function has, by the names of its sites.
#[track_caller]
fn figure(json: &str, list: &str, function: &str, bytes: impl Fn(&Value) -> Option<f64>) -> f64 {
    let report: Value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"));
    let sites = report[list].as_array().unwrap_or_else(|| panic!("no {list}: {json}"));
    let named: Vec<&Value> = sites.iter().filter(|site| site["function"] == function).collect();
    assert!(!named.is_empty(), "no {function} in {json}");
    // Frames are the same in every JSON, and the one that names the site is among them.
    for frame in sites.iter().flat_map(|site| site["frames"].as_array().expect("frames")) {
        let keys: Vec<&String> = frame.as_object().expect("a frame").keys().collect();
        assert_eq!(keys, ["file", "function", "inlined", "line"], "{frame}");
    }
    named.iter().filter_map(|site| bytes(site)).sum()
}

#[test]
fn every_report_names_a_site_by_the_function_that_asked_for_memory() {
    let pool = Pool::new();
    let flags = ["-Cdebuginfo=line-tables-only"];
    let program = compiler::compile_rust(pool.files(), "tests/csrc/makers.rs", "makers", &flags);
    let function = "makers::server::handle_request";
    let held = 100.0 * 700.0;
    let poolscope = |args: &[&str]| pool.poolscope().args(args).run();
    let row = |text: &str, what: &str| {
        let rows: Vec<&str> = text.lines().filter(|line| line.contains("68.4 KiB")).collect();
        let is_named = |line: &&str| line.contains("makers::server::handle_request  makers.rs:3");
        assert!(!rows.is_empty() && rows.iter().all(is_named), "{what}: {text}");
        let plumbing = ["raw_vec", "with_capacity_in", "call_once", "lang_start", "_start"];
        let is_plain = |line: &str| plumbing.iter().all(|name| !line.contains(name));
        assert!(text.lines().filter(|line| line.contains(" < ")).all(is_plain), "{what}: {text}");
    };

    let running = start(&pool, &program, &[]);
    let pid = running.pid().to_string();
    row(&poolscope(&["report", &pid]).success().stdout, "report of a process");
    let in_use = |site: &Value| site["in_use"]["bytes"].as_f64();
    assert_eq!(figure(&poolscope(&["top", &pid, "--json"]).success().stdout, "sites", function, in_use), held);
    let top = poolscope(&["top", &pid, "--once", "--view", "sites", "--size", "200x40"]).success().stdout;
    assert!(top.contains("makers::server::handle_request makers.rs:3"), "{top}");

    let mut other = start(&pool, &program, &[]);
    other.send("leak\n");
    let other_pid = other.pid().to_string();
    other.finish();
    drop(running);
    let none = compiler::compile_with_headers(pool.files(), "tests/csrc/symbols.c", "none", &["-O1"]);
    let none = start(&pool, &none, &[]).pid().to_string();
    let after = |site: &Value| site["after"]["in_use"]["bytes"].as_f64();
    let diff = poolscope(&["diff", &none, &other_pid, "--json"]).success().stdout;
    assert_eq!(figure(&diff, "sites", function, after), held);
    row(&poolscope(&["diff", &none, &other_pid]).success().stdout, "diff");

    let leaks = poolscope(&["leaks", &other_pid, "--json"]).success().stdout;
    assert_eq!(figure(&leaks, "leaks", function, |leak| leak["bytes"].as_f64()), held);
    let leaks = poolscope(&["leaks", &other_pid]).success().stdout;
    assert!(
        leaks.contains("70,000 B in 100 blocks of 700 B each\n    makers::server::handle_request  makers.rs:3"),
        "{leaks}"
    );
    let check = |json: &[&str]| {
        let report = pool.files().join("check.txt");
        let check = pool
            .poolscope()
            .args(["check", "--growth"])
            .args(json)
            .arg("--output")
            .arg(&report)
            .arg("--")
            .arg(&program);
        assert_eq!(check.input("leak\n").run().code(), 23);
        std::fs::read_to_string(report).expect("was written")
    };
    let text = check(&[]);
    assert!(
        text.contains("70,000 B in 100 blocks of 700 B each\n    makers::server::handle_request  makers.rs:3"),
        "{text}"
    );
    let checked: Value = serde_json::from_str(&check(&["--json"])).expect("is JSON");
    let report = checked["processes"][0]["report"].to_string();
    assert_eq!(figure(&report, "leaks", function, |leak| leak["bytes"].as_f64()), held);

    let recording = pool.files().join("makers.rec");
    let record = pool.poolscope().args(["record", "--lossless", "-o"]).arg(&recording).arg("--").arg(&program);
    assert_eq!(record.input("leak\n").run().code(), 0);
    let recording = recording.to_str().expect("is text");
    let html = pool.files().join("makers.html");
    row(&poolscope(&["report", recording]).success().stdout, "report");
    let json = poolscope(&["report", recording, "--json", "--html", html.to_str().expect("is text")]).success().stdout;
    assert_eq!(figure(&json, "sites", function, |site| site["at_end"]["bytes"].as_f64()), held);
    let html = std::fs::read_to_string(html).expect("was written");
    assert!(html.contains("makers::server::handle_request  makers.rs:3"), "{html}");
}

#[test]
fn functions_of_cpp_that_differ_in_their_template_arguments_stay_apart_in_pprof() {
    for flags in [&["-g", "-O1"][..], &["-O1"]] {
        let pool = Pool::new();
        let program = compiler::compile_with_headers(pool.files(), "tests/csrc/makers.cpp", "makers", flags);
        let expected = [
            ("Pool<int, 25>::make()", 100 * 25 * 4),
            ("Pool<double, 250>::make()", 100 * 250 * 8),
            ("std::vector<short, std::allocator<short> > fill<short>(unsigned long)", 100 * 500 * 2),
        ];
        assert_holds(&pool, &program, &expected);
    }
}

#[test]
fn functions_of_rust_have_their_paths_and_types_in_pprof_whatever_debug_information_there_is() {
    for flags in [
        &["-Cdebuginfo=2"][..],
        &["-Cdebuginfo=0"],
        &["-Cdebuginfo=line-tables-only"],
        &["-Cdebuginfo=line-tables-only", "-Csymbol-mangling-version=v0"],
    ] {
        let pool = Pool::new();
        let program = compiler::compile_rust(pool.files(), "tests/csrc/makers.rs", "makers", flags);
        let expected = [
            ("<makers::A as makers::Maker>::make", 100 * 1000),
            ("<makers::B as makers::Maker>::make", 100 * 3000),
            ("makers::server::handle_request", 100 * 700),
        ];
        assert_holds(&pool, &program, &expected);
    }
}

/// The home of a service is often `/nonexistent`, and is to stay so.
#[test]
fn names_are_kept_in_a_home_that_is_there_and_none_is_made() {
    let pool = Pool::new();
    let flags = ["-O0", "-g", "-fno-builtin"];
    let program = compiler::compile_with_headers(pool.files(), "tests/csrc/kept_and_lost.c", "kept_and_lost", &flags);
    let home = pool.files().join("home");
    let check = || {
        let check = pool.poolscope().arg("check").arg("--").arg(&program).arg("10");
        let output = check.env("XDG_CACHE_HOME", "").env("HOME", &home).run();
        assert!(output.code() == 23 && output.stderr.contains("kept_and_lost.c"), "{}", output.report());
    };
    check();
    assert!(!home.exists());
    std::fs::create_dir(&home).expect("a folder");
    check();
    assert!(home.join(".cache/poolscope/symbols").exists());
}
