//! `poolscope check`: what a program lost, by stack, and exit code 23 for it; 24 where that could not be said.

use std::path::{Path, PathBuf};

use poolscope_e2e::compiler::{compile, compile_into, compile_rust};
use poolscope_e2e::{Output, Pool, Program, artifacts, library, poolscope, pythons};
use serde_json::Value;

struct Check {
    pool: Pool,
    program: PathBuf,
}

impl Check {
    fn new() -> Check {
        let pool = Pool::new();
        let program = compile(pool.files(), "leak.c", "leak", &["-O1", "-g", "-fno-inline"]);
        Check { pool, program }
    }

    fn run(&self, options: &[&str], args: &[&str]) -> Output {
        let check = self.pool.poolscope().arg("check").args(options).arg("--");
        check.arg(&self.program).args(args).run()
    }
}

/// Runs `leaky_child` under `check`.
fn check_leaky_child(options: &[&str], args: &[&str]) -> Output {
    let pool = Pool::new();
    let program = pool.files().join("leaky_child");
    compile_into(&program, Path::new("tests/csrc/leaky_child.c"), &["-O1", "-g", "-fno-builtin"], &[]);
    pool.poolscope().arg("check").args(options).arg("--").arg(&program).args(args).run()
}

/// The report of `check --json`: each process's blocks, and why it could not be checked.
fn processes(report: &Value) -> Vec<(Option<u64>, Option<&str>)> {
    let list = report["processes"].as_array().expect("processes");
    list.iter().map(|process| (process["report"]["objects"].as_u64(), process["not_checked"].as_str())).collect()
}

#[test]
fn every_block_that_a_forked_child_loses_is_found() {
    for blocks in [1, 5, 20] {
        let output = check_leaky_child(&["--json"], &["fork", &blocks.to_string()]);
        assert_eq!(output.code(), 23, "{}", output.report());
        let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
        assert_eq!(processes(&report), [(Some(0), None), (Some(blocks), None)]);
        assert_eq!(report["bytes"].as_u64(), Some(1000 * blocks));
    }
    // The child's one block is not also its child's.
    let output = check_leaky_child(&["--json"], &["grandchild", "3"]);
    let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert_eq!(processes(&report), [(Some(0), None), (Some(1), None), (Some(3), None)]);
    let clean = check_leaky_child(&[], &["fork", "0"]);
    assert_eq!(clean.code(), 0, "{}", clean.report());
}

/// Runs `check` on a program of 300,000 blocks, whose records take 20 MB, where `/dev/shm` has 4 MiB.
fn check_in_4_mib(pool: &Pool, script: &str) -> Output {
    let flags = ["-O0", "-g", "-fno-builtin"];
    let program = pool.files().join("kept_and_lost");
    compile_into(&program, Path::new("tests/csrc/kept_and_lost.c"), &flags, &[]);
    let script = format!("mount -t tmpfs -o size=4m tmpfs /dev/shm; {script}; exec \"$0\" check -- \"$1\" 300000");
    let run = Program::with_own_mounts().args(["bash", "-c", &script]).arg(poolscope()).arg(program);
    run.env("POOLSCOPE_LIB", library()).run()
}

/// A container's `/dev/shm` has 64 MiB unless somebody said otherwise.
#[test]
fn a_program_of_many_blocks_is_checked_where_shared_memory_is_small() {
    let pool = Pool::new();
    let output = check_in_4_mib(&pool, "unset POOLSCOPE_DIR");
    assert_eq!(output.code(), 23, "{}", output.report());
    assert!(output.stderr.contains("5,000 B in 5 blocks leaked, from 1 stack."), "{}", output.report());
    assert!(output.stderr.contains("checked 300,00"), "{}", output.report());
}

/// The user's own folder is used, whatever its room is.
#[test]
fn a_check_without_room_for_its_records_says_which_folder_is_full_and_what_to_do() {
    let pool = Pool::new();
    let output = check_in_4_mib(&pool, "export POOLSCOPE_DIR=/dev/shm/mine");
    assert_eq!(output.code(), 24, "{}", output.report());
    let why =
        "not all its blocks found room in the records. /dev/shm is full (4.00 MiB): let POOLSCOPE_DIR name a folder";
    assert!(output.stderr.contains(why), "{}", output.report());
}

#[test]
fn what_could_not_be_checked_exits_with_24_and_says_why() {
    for how in ["quick", "raw", "killed", "fork-killed"] {
        let output = check_leaky_child(&[], &[how]);
        assert_eq!(output.code(), 24, "{how}: {}", output.report());
        assert!(output.stderr.contains("Could not be checked: it was killed, or left by"), "{}", output.report());
        let output = check_leaky_child(&["--json"], &[how]);
        assert_eq!(output.code(), 24, "{how}: {}", output.report());
        let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
        let why = processes(&report).pop().and_then(|(_, why)| why).expect("a reason");
        assert!(why.contains("killed") && report["exit_code"].as_u64() == Some(24), "{report:#}");
    }
    let goes = Pool::new().poolscope().args(["check", "--", "go", "version"]).run();
    assert!(goes.code() == 24 && goes.stdout.contains("go version"), "{}", goes.report());
}

#[test]
fn json_has_standard_output_to_itself_and_leaves_it_to_the_program_where_it_goes_to_a_file() {
    let said = "a line that is no JSON";
    for options in [&["--json"][..], &["--json", "--output", "-"]] {
        let output = check_leaky_child(options, &["prints"]);
        assert_eq!(output.code(), 0, "{}", output.report());
        let report: Value = serde_json::from_str(&output.stdout).expect("standard output is JSON and nothing else");
        assert_eq!(report["leaked"].as_bool(), Some(false));
        assert!(output.stderr.contains(said), "{}", output.report());
    }
    let pool = Pool::new();
    let command = ["check", "--json", "--output", "report.json", "--", "/bin/echo", said];
    let output = pool.poolscope().args(command).run();
    assert_eq!(output.stdout.trim(), said, "{}", output.report());
    let report = std::fs::read_to_string(pool.files().join("report.json")).expect("the report is there");
    serde_json::from_str::<Value>(&report).expect("it is JSON");
}

#[test]
fn a_leak_is_named_with_its_size_and_stack_and_exits_with_23() {
    let output = Check::new().run(&[], &["40"]);
    assert_eq!(output.code(), 23, "{}", output.report());
    let report = format!("{}{}", output.stdout, output.stderr);
    assert!(report.contains("lose_blocks") && report.contains("leak.c"), "{}", output.report());
    // 40 blocks of 1 KiB, however they are written.
    assert!(["40960", "40,960", "40.0 KiB", "40 KiB"].iter().any(|size| report.contains(size)), "{}", output.report());
    assert!(!report.contains("use_and_free"), "what was freed is no leak: {}", output.report());
}

#[test]
fn a_clean_program_keeps_its_own_exit_code() {
    let check = Check::new();
    for code in [0, 7] {
        let output = check.run(&[], &["0", &code.to_string()]);
        assert_eq!(output.code(), code, "{}", output.report());
    }
}

#[test]
fn what_rusts_runtime_keeps_is_no_leak_however_it_was_built() {
    for flags in [&["-Cdebuginfo=line-tables-only"][..], &["-Cdebuginfo=0"], &["-Cdebuginfo=2", "-Copt-level=0"]] {
        let pool = Pool::new();
        let program = compile_rust(pool.files(), "tests/csrc/prints_backtraces.rs", "prints_backtraces", flags);
        let check = |args: &[&str]| {
            let check = pool.poolscope().env("RUST_BACKTRACE", "1").args(["check", "--json", "--"]);
            let output = check.arg(&program).args(args).run();
            (output.code(), serde_json::from_str::<Value>(&output.stdout).expect("JSON"))
        };
        let (code, report) = check(&[]);
        assert_eq!((code, report["bytes"].as_u64()), (0, Some(0)), "{flags:?}: {report:#}");
        let (code, report) = check(&["3333"]);
        assert_eq!(
            (code, report["bytes"].as_u64(), report["objects"].as_u64()),
            (23, Some(3333), Some(1)),
            "{flags:?}"
        );
    }
}

#[test]
fn a_leak_outweighs_the_programs_own_exit_code() {
    let output = Check::new().run(&[], &["1", "7"]);
    assert_eq!(output.code(), 23, "{}", output.report());
}

#[test]
fn one_lost_block_among_thousands_is_found() {
    // Exact: no sampling, so a single KiB shows.
    let output = Check::new().run(&[], &["1"]);
    assert_eq!(output.code(), 23, "{}", output.report());
    assert!(format!("{}{}", output.stdout, output.stderr).contains("lose_blocks"), "{}", output.report());
}

/// Looks for a number of this value anywhere below.
fn holds_number(value: &Value, number: u64) -> bool {
    match value {
        Value::Number(found) => found.as_u64() == Some(number),
        Value::Array(values) => values.iter().any(|value| holds_number(value, number)),
        Value::Object(fields) => fields.values().any(|value| holds_number(value, number)),
        _ => false,
    }
}

#[test]
fn json_says_the_same() {
    let check = Check::new();
    let output = check.run(&["--json"], &["40"]);
    assert_eq!(output.code(), 23, "{}", output.report());
    let report: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", output.report()));
    assert!(holds_number(&report, 40 * 1024) && holds_number(&report, 40), "{report:#}");
    assert!(report.to_string().contains("lose_blocks"), "{report:#}");

    let clean = check.run(&["--json"], &["0"]);
    assert_eq!(clean.code(), 0, "{}", clean.report());
    let report: Value = serde_json::from_str(&clean.stdout).unwrap_or_else(|e| panic!("{e}: {}", clean.report()));
    assert!(!report.to_string().contains("lose_blocks"), "{report:#}");
}

#[test]
fn a_program_that_cannot_start_is_an_error_of_its_own() {
    let pool = Pool::new();
    let output = pool.poolscope().args(["check", "--", "/nowhere/to/be/found"]).run();
    assert!(![0, 23].contains(&output.code()), "{}", output.report());
    assert!(output.stderr.contains("/nowhere/to/be/found"), "{}", output.report());
}

/// Code 23 by itself, beside the same program off the pool:
/// `check` adds nothing to its output on stdout but the report.
#[test]
fn the_programs_own_output_is_kept() {
    let pool = Pool::new();
    let plain = Program::new("/bin/echo").arg("hello").run().success();
    let checked = pool.poolscope().args(["check", "--", "/bin/echo", "hello"]).run();
    assert!(checked.stdout.contains(plain.stdout.trim()), "{}", checked.report());
}

#[test]
fn a_rust_program_that_has_the_pool_in_itself_is_checked_by_it() {
    let pool = Pool::new();
    let program = poolscope_e2e::sample("global-allocator");
    let check = |command: &[&str]| pool.poolscope().args(["check", "--prove", "--json", "--"]).args(command).run();
    let path = program.to_str().expect("a path");
    let output = check(&[path]);
    assert_eq!(output.code(), 0, "{}", output.report());
    let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
    let checked = &report["processes"][0]["report"]["checked"];
    assert_eq!((checked["threads"].as_u64(), checked["stopped"].as_u64()), (Some(1), Some(1)), "{report:#}");
    assert_eq!(report["proved"].as_bool(), Some(true), "{report:#}");
    let text = pool.poolscope().args(["check", "--", path]).run();
    assert!(text.stderr.contains("The program has the pool in itself"), "{}", text.report());
}

/// What they lose is held by rules: a script that runs them can do nothing about it.
#[test]
fn a_script_is_not_blamed_for_what_small_programs_of_the_system_lose() {
    let pool = Pool::new();
    let script = "trap 'echo end' EXIT; tail -n 3 /etc/passwd; expr 1 + 2; pr /etc/passwd; chown root /nowhere/at/all; column -t /etc/passwd; \
                  /sbin/sysctl -n kernel.ostype; date; sort /etc/passwd; lsns; true";
    let output = pool.poolscope().args(["check", "--", "sh", "-c", script]).run();
    assert_eq!(output.code(), 0, "{}", output.report());
    let output = pool.poolscope().args(["check", "--no-program-rules", "--", "sh", "-c", script]).run();
    assert!(output.code() == 23 && output.stderr.contains(": tail -n 3 /etc/passwd (pid"), "{}", output.report());
}

/// CPython 3.12 and later never frees what it has interned, and forgets where it is.
#[test]
fn immortal_strings_of_cpython_are_told_of_apart_and_other_objects_are_leaks() {
    let pool = Pool::new();
    let program = pool.files().join("immortal_strings");
    let flags = ["-O1", "-g", "-fno-builtin", "-rdynamic", "-Wno-unused-result"];
    compile_into(&program, Path::new("tests/csrc/immortal_strings.c"), &flags, &[]);
    let output = pool.poolscope().args(["check", "--"]).arg(&program).run();
    assert_eq!(output.code(), 23, "{}", output.report());
    assert!(output.stderr.contains("357 B in 3 blocks leaked"), "{}", output.report());
    let apart = "Suppressed: 3,000 B in 2 blocks: CPython's interned strings";
    assert!(output.stderr.contains(apart), "{}", output.report());
    // A program that does not export the name is no CPython.
    compile_into(&program, Path::new("tests/csrc/immortal_strings.c"), &flags[..3], &[]);
    let output = pool.poolscope().args(["check", "--"]).arg(&program).run();
    assert!(output.stderr.contains("3,421 B in 6 blocks leaked"), "{}", output.report());
}

#[test]
fn a_python_program_of_any_version_has_no_leaks_but_those_that_it_makes() {
    let pythons = pythons::from_version(12);
    if pythons.is_empty() {
        poolscope_e2e::skip("CPython's immortal strings: there is no Python from 3.12 on");
    }
    let imports = "import asyncio, ctypes, decimal, email, http.server, json, logging, re, ssl, typing, unittest, xml.dom.minidom";
    // Many versions would take long: the first and the last.
    let (first, last) = (pythons.first(), pythons.last());
    for python in first.into_iter().chain(last.filter(|_| pythons.len() > 1)) {
        let check = |script: &str| {
            let pool = Pool::new();
            pool.poolscope().args(["check", "--"]).arg(python).args(["-c", script]).run()
        };
        let is_free_threaded = pythons::is_free_threaded(python);
        let clean = check(imports);
        assert!(clean.code() == 0 && clean.stderr.contains("No leaks."), "{}", clean.report());
        // From 3.14 on they go at the end.
        let script = "import sys; sys.exit(sys.version_info >= (3, 14))";
        let is_before =
            Program::new("sh").args(["-c", "exec \"$0\" -c \"$1\""]).arg(python).arg(script).run().code() == 0;
        if is_before && !is_free_threaded {
            assert!(clean.stderr.contains("blocks: CPython's interned strings"), "{}", clean.report());
        }
        let lose = match is_free_threaded {
            true => "ctypes.CDLL(None).malloc(12345)",
            false => "ctypes.pythonapi.Py_IncRef(ctypes.py_object(bytes(12345)))",
        };
        let output = check(&format!("{imports}\n{lose}"));
        assert_eq!(output.code(), 23, "{}", output.report());
        assert!(output.stderr.contains("in 1 block leaked, from 1 stack."), "{}", output.report());
    }
}

/// As servers do that need not see more of the machine, and compressors.
#[test]
fn a_program_that_has_shut_itself_off_is_checked_all_the_same() {
    /// What the program exits with where the kernel has no such thing.
    const UNKNOWN_HERE: i32 = 77;
    let pool = Pool::new();
    let program = pool.files().join("shuts_itself_off");
    let flags = ["-O1", "-g", "-fno-builtin", "-pthread", "-Wno-unused-result"];
    compile_into(&program, Path::new("tests/csrc/shuts_itself_off.c"), &flags, &[]);
    // Its `/proc` is empty, as that of a root often is.
    let root = pool.files().join("root");
    std::fs::create_dir_all(root.join("proc")).expect("it is made");
    let check = |steps: &str| {
        let check = pool.poolscope().args(["check", "--"]).arg(&program).args(steps.split(' '));
        check.env("ROOT", &root).run()
    };
    let finds_the_lost_block = |steps: &str, processes: usize| {
        let output = check(steps);
        assert_eq!(output.code(), 23, "{steps}: {}", output.report());
        let lost = output.stderr.matches("1,234 B in 1 block leaked, from 1 stack.").count();
        assert_eq!(lost, processes, "{steps}: {}", output.report());
        assert!(output.stderr.contains("2 of 2 threads stopped"), "{steps}: {}", output.report());
    };
    finds_the_lost_block("undumpable epoll", 1);
    finds_the_lost_block("no-files", 1);
    finds_the_lost_block("close", 1);
    let why = "the kernel does not say what its instances of epoll wait for";
    let output = check("epoll no-files");
    assert!(output.code() == 24 && output.stderr.contains(why), "{}", output.report());
    let output = check("landlock");
    if output.code() == UNKNOWN_HERE || output.stderr.contains("left by") {
        poolscope_e2e::skip("a program that closes the file system to itself: this kernel has no Landlock");
    } else {
        finds_the_lost_block("landlock", 1);
        let output = check("epoll landlock");
        assert!(output.code() == 24 && output.stderr.contains(why), "{}", output.report());
    }
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        poolscope_e2e::skip("programs that take another root, or another user: they need root");
        return;
    }
    finds_the_lost_block("chroot epoll", 1);
    finds_the_lost_block("setuid epoll", 1);
    finds_the_lost_block("chroot setuid epoll", 1);
    // What the child makes is its own, by the other user or below the other root.
    for steps in ["chroot fork", "setuid fork", "chroot setuid fork"] {
        let output = check(steps);
        assert_eq!(output.code(), 23, "{steps}: {}", output.report());
        let lost = output.stderr.matches("1,234 B in 1 block leaked, from 1 stack.").count();
        assert_eq!(lost, 2, "{steps}: {}", output.report());
    }
}

/// As where a container's entry point drops what it needs no more (gosu, su-exec, setpriv), and where a server starts
/// others by other users.
#[test]
fn a_program_that_another_one_starts_as_another_user_is_checked() {
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        poolscope_e2e::skip("programs of another user: they need root");
        return;
    }
    let pool = Pool::new();
    let program = pool.files().join("shuts_itself_off");
    let flags = ["-O1", "-g", "-fno-builtin", "-pthread", "-Wno-unused-result"];
    compile_into(&program, Path::new("tests/csrc/shuts_itself_off.c"), &flags, &[]);
    // Where anybody may read it.
    let library = pool.files().join("libpoolscope.so");
    artifacts::copy(&artifacts::library(), &library);
    let by_setpriv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let by_runuser = ["runuser", "-u", "nobody", "--"];
    for (starter, processes) in [(&by_setpriv[..], 1), (&by_runuser[..], 2)] {
        let check = pool.poolscope().env("POOLSCOPE_LIB", &library).args(["check", "--"]).args(starter);
        let output = check.arg(&program).run();
        assert_eq!(output.code(), 23, "{starter:?}: {}", output.report());
        assert!(output.stderr.contains("1,234 B in 1 block leaked, from 1 stack."), "{}", output.report());
        assert_eq!(output.stderr.matches("poolscope check: ").count(), processes, "{}", output.report());
    }
}

/// A sandbox may have its parent's `/proc`, where threads have other numbers than those by which they are stopped.
#[test]
fn threads_of_another_namespace_than_that_of_proc_are_stopped() {
    let unshare = ["unshare", "-p", "-f"];
    if Program::new(unshare[0]).args(&unshare[1..]).arg("true").run().code() != 0 {
        poolscope_e2e::skip("process-id namespaces: this user may make none");
        return;
    }
    let pool = Pool::new();
    let program = pool.files().join("shuts_itself_off");
    let flags = ["-O1", "-g", "-fno-builtin", "-pthread", "-Wno-unused-result"];
    compile_into(&program, Path::new("tests/csrc/shuts_itself_off.c"), &flags, &[]);
    let output = pool.poolscope().args(["check", "--"]).args(unshare).arg(&program).run();
    assert_eq!(output.code(), 23, "{}", output.report());
    assert!(output.stderr.contains("1,234 B in 1 block leaked, from 1 stack."), "{}", output.report());
    assert!(output.stderr.contains("2 of 2 threads stopped"), "{}", output.report());
}
