//! Names for the frames of real programs: where their symbols are, who made their code, and what became of their files.

use std::path::{Path, PathBuf};

use poolscope_e2e::{Pool, Program, Running, compiler};

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

/// Puts the header of one section in the place of another one's, as `patchelf` does when it moves a section to the file's end.
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
        eprintln!("skipped: no CPython 3.12 or later here, and earlier ones do not name their functions");
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
    assert!(woven.contains("[module]") && woven.contains("< Py_RunMain <"), "{woven}");
    assert_some(&stacks(&pool, &pid, &["--python"]), "Cache.insert (cache.py) < fill (cache.py) < [module]");
    running.send("\n");
    running.finish();

    let plain = pool.program(&python).args(["-c", "x = [0] * 100000"]).env("POOLSCOPE_PERIOD", "1").start();
    let pid = plain.pid().to_string();
    plain.finish();
    let said = pool.poolscope().args(["dump", &pid, "--python", "-o", "-"]).run();
    assert!(said.stderr.contains("is started with -X perf"), "{}", said.report());
}

#[test]
fn functions_of_javascript_have_their_names() {
    let node = Path::new("/usr/bin/node");
    if !node.exists() {
        eprintln!("skipped: there is no /usr/bin/node");
        return;
    }
    let pool = Pool::new();
    let script = pool.files().write(
        "cache.js",
        "function fillCache() { const held = []; for (let i = 0; i < 100; i++) held.push(Buffer.allocUnsafeSlow(50000)); \
         return held; }\nconst held = fillCache();\nconsole.log('ready ' + held.length);\nsetTimeout(() => {}, 100000);\n",
    );
    let mut running = pool
        .program(node)
        .args(["--perf-basic-prof", "--interpreted-frames-native-stack"])
        .arg(script)
        .env("POOLSCOPE_PERIOD", "16K")
        .start();
    running.wait_for_line("ready");
    assert_some(&stacks(&pool, &running.pid().to_string(), &[]), "fillCache");
    std::fs::remove_file(format!("/tmp/perf-{}.map", running.pid())).expect("node wrote it");
}
