//! The options of `poolscope check`: what other tools read, suppressions, and proof that it looked.

use std::path::{Path, PathBuf};

use poolscope_e2e::compiler::{compile, compile_into, compile_with_headers};
use poolscope_e2e::{Output, Pool, Program, pythons};
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

    /// Runs a program that loses so many blocks of 1 KiB.
    fn run(&self, options: &[&str], blocks: &str) -> Output {
        self.pool.poolscope().arg("check").args(options).arg("--").arg(&self.program).arg(blocks).run()
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.pool.files().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    }
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", output.report()))
}

#[test]
fn a_planted_leak_is_found_in_every_process() {
    let check = Check::new();
    let output = check.run(&["--prove"], "0");
    assert_eq!(output.code(), 0, "{}", output.report());
    assert!(output.stderr.contains("The leak that was planted in each process was found."), "{}", output.report());
    let output = check.run(&["--prove", "--json"], "40");
    assert_eq!((output.code(), json(&output)["bytes"].as_u64()), (23, Some(40 << 10)), "{}", output.report());
    let output = check.run(&["--prove", "--growth"], "0");
    assert_eq!(output.code(), 0, "{}", output.report());
    let pool = Pool::new();
    let two = pool.poolscope().args(["check", "--prove", "--json", "--", "sh", "-c", "/bin/true; exit 5"]).run();
    assert_eq!((two.code(), json(&two)["proved"].as_bool()), (5, Some(true)), "{}", two.report());
    // Where nothing is looked for, nothing is found.
    let command = ["check", "--prove", "--", "/bin/true"];
    let blind = pool.poolscope().env("POOLSCOPE_HARDENED", "1").args(command).run();
    assert_eq!(blind.code(), 24, "{}", blind.report());
}

#[test]
fn a_planted_leak_of_any_size_is_found() {
    let check = Check::new();
    // Each time of another size, and somewhere else. What the pool keeps of a block points into some of them.
    for _ in 0..60 {
        let output = check.run(&["--prove"], "0");
        assert_eq!(output.code(), 0, "{}", output.report());
    }
}

#[test]
fn a_child_of_vfork_that_ends_plants_nothing_in_its_parent() {
    let pool = Pool::new();
    let program =
        compile_with_headers(pool.files(), "tests/csrc/unstoppable.c", "unstoppable", &["-O1", "-g", "-pthread"]);
    let output = pool.poolscope().args(["check", "--prove", "--"]).arg(&program).args(["missing", "3"]).run();
    assert_eq!(output.code(), 0, "{}", output.report());
    assert!(output.stderr.contains("No leaks.\nchecked "), "{}", output.report());
}

#[test]
fn what_is_reachable_is_told_of_apart() {
    let pool = Pool::new();
    let program = pool.files().join("leaks");
    compile_into(&program, Path::new("tests/csrc/leaks.c"), &["-O1", "-g", "-fno-builtin"], &["-ldl"]);
    let check = |question: &str, scenario: &str| {
        let command = pool.poolscope().args(["check", question, "--json", "--"]).arg(&program).arg(scenario);
        let output = command.run();
        (output.code(), json(&output)["processes"][0]["report"].clone())
    };
    let sizes = |leaks: &Value| -> Vec<(u64, String)> {
        let leaks = leaks.as_array().map(Vec::as_slice).unwrap_or_default().iter();
        let facts =
            |leak: &Value| (leak["bytes"].as_u64().unwrap(), leak["verdict"].as_str().unwrap_or("-").to_owned());
        leaks.map(facts).collect()
    };
    let (code, held) = check("--all", "use_globals_initialized");
    assert_eq!((code, sizes(&held["leaks"]).len()), (0, 0), "{held:#}");
    assert!(sizes(&held["reachable"]).contains(&(1337, "retained".into())), "{held:#}");
    for (scenario, verdict) in [("use_tls_static", "retained"), ("use_stacks", "reachable"), ("mapped", "reachable")] {
        let (code, held) = check("--all", scenario);
        assert!(code == 0 && sizes(&held["reachable"]).contains(&(1337, verdict.into())), "{scenario}: {held:#}");
    }
    let (_, interior) = check("--all", "interior");
    assert!(sizes(&interior["reachable"]).iter().any(|(_, verdict)| verdict == "possible"), "{interior:#}");
    let (code, lost) = check("--all", "lost");
    assert_eq!((code, sizes(&lost["leaks"])), (23, vec![(1337, "direct".into())]), "{lost:#}");
    let (code, grew) = check("--growth", "use_globals_initialized");
    assert!(code == 23 && sizes(&grew["leaks"]).contains(&(1337, "-".into())), "{grew:#}");
    let (code, leaks) = check("--leaks", "use_globals_initialized");
    assert!(code == 0 && leaks["reachable"].is_null(), "{leaks:#}");
}

#[test]
fn a_copy_of_each_process_can_look_and_tags_in_pointers_can_be_named() {
    let pool = Pool::new();
    let flags = ["-O1", "-g", "-fno-builtin", "-pthread"];
    let program = compile_with_headers(pool.files(), "tests/csrc/asked.c", "asked", &flags);
    let check = |options: &[&str], input: &str| {
        let command = pool.poolscope().args(["check", "--json"]).args(options).arg("--").arg(&program);
        let output = command.input(input).run();
        (output.code(), json(&output)["bytes"].as_u64())
    };
    assert_eq!(check(&["--snapshot"], "lose 3\nhold 2\n"), (23, Some(3 * 1337)));
    assert_eq!(check(&["--snapshot", "--prove"], "hold 2\n"), (0, Some(0)));
    assert_eq!(check(&[], "tag\n"), (23, Some(1337)));
    for options in [&["--tag-mask", "0xff00000000000000"][..], &["--tag-mask", "0xff00000000000000", "--snapshot"]] {
        assert_eq!(check(options, "tag\n"), (0, Some(0)), "{options:?}");
    }
}

#[test]
fn other_tools_read_the_report() {
    let check = Check::new();
    let files = ["--junit", "leaks.xml", "--sarif", "leaks.sarif", "--github"];
    let output = check.run(&files, "40");
    assert_eq!(output.code(), 23, "{}", output.report());
    let annotation = output.stdout.lines().find(|line| line.starts_with("::error ")).expect("an annotation");
    assert!(
        annotation.contains("leak.c,line=") && annotation.contains("title=Leak::40,960 B in 40 blocks"),
        "{annotation}"
    );
    let sarif: Value = serde_json::from_str(&check.read("leaks.sarif")).expect("JSON");
    let result = &sarif["runs"][0]["results"][0];
    let place = &result["locations"][0]["physicalLocation"];
    assert!(place["artifactLocation"]["uri"].as_str().is_some_and(|uri| uri.ends_with("leak.c")), "{result:#}");
    assert!(place["region"]["startLine"].as_u64().is_some() && result["ruleId"] == "leak-direct", "{result:#}");
    // As Python's library reads XML.
    let script = "import sys, xml.etree.ElementTree as t; s = t.parse('leaks.xml').getroot()[0]; \
                  print(s.get('failures'), s[0][0].get('message'))";
    let read = Program::new("/usr/bin/python3").args(["-c", script]).dir(check.pool.files().path()).run().success();
    assert!(read.stdout.starts_with("1 40,960 B in 40 blocks from lose_blocks"), "{}", read.report());
    let clean = check.run(&["--junit", "clean.xml", "--github"], "0");
    assert!(clean.code() == 0 && !clean.stdout.contains("::error"), "{}", clean.report());
    assert!(check.read("clean.xml").contains("failures=\"0\" errors=\"0\""));
}

#[test]
fn suppressions_that_are_written_hold_what_was_found_here_and_in_valgrind() {
    let check = Check::new();
    assert_eq!(check.run(&["--write-suppressions", "found.supp"], "40").code(), 23);
    let again = check.run(&["--suppressions", "found.supp"], "40");
    assert_eq!(again.code(), 0, "{}", again.report());
    assert!(again.stderr.contains("Suppressed: 40,960 B in 40 blocks: lose_blocks (found.supp:"), "{}", again.report());
    let valgrind = Program::new("valgrind")
        .args(["-q", "--leak-check=full", "--error-exitcode=9", "--suppressions=found.supp"])
        .arg(&check.program)
        .arg("40")
        .dir(check.pool.files().path())
        .run();
    assert_eq!(valgrind.code(), 0, "{}", valgrind.report());
}

#[test]
fn suppressions_that_valgrind_wrote_hold_the_same_blocks_here() {
    let pool = Pool::new();
    let program =
        compile_with_headers(pool.files(), "tests/csrc/lost_copies.cpp", "lost_copies", &["-O0", "-g", "-std=c++20"]);
    let options = ["--leak-check=full", "--show-leak-kinds=all", "--gen-suppressions=all", "--log-fd=1"];
    let written = Program::new("valgrind").args(options).arg(&program).run().stdout;
    let rules = written.lines().filter(|line| !line.starts_with("==")).map(|line| format!("{line}\n"));
    std::fs::write(pool.files().join("theirs.supp"), rules.collect::<String>()).expect("a file");
    let check = pool.poolscope().args(["check", "--suppressions", "theirs.supp", "--"]).arg(&program);
    let output = check.dir(pool.files().path()).run();
    assert_eq!(output.code(), 0, "{written}{}", output.report());
    for held in ["Suppressed: 60 B in 10 blocks", "Suppressed: 40 B in 1 block"] {
        assert!(output.stderr.contains(held), "{written}{}", output.report());
    }
    // And those that are written here hold them there.
    let check = pool.poolscope().args(["check", "--write-suppressions", "ours.supp", "--"]).arg(&program);
    assert_eq!(check.dir(pool.files().path()).run().code(), 23);
    let options = ["-q", "--leak-check=full", "--error-exitcode=9", "--suppressions=ours.supp"];
    let valgrind = Program::new("valgrind").args(options).arg(&program).dir(pool.files().path()).run();
    assert_eq!(valgrind.code(), 0, "{}", valgrind.report());
}

#[test]
fn suppressions_that_are_written_for_a_leaked_structure_all_hold_something() {
    let pool = Pool::new();
    let program = compile_with_headers(pool.files(), "tests/csrc/lost_list.c", "lost_list", &["-O0", "-g"]);
    let check = |option: &str| {
        let program = program.to_str().expect("a path");
        pool.poolscope().args(["check", option, "list.supp", "--", program]).dir(pool.files().path()).run()
    };
    let found = check("--write-suppressions");
    assert_eq!(found.code(), 23, "{}", found.report());
    assert!(found.stderr.contains("indirect leak"), "{}", found.report());
    let again = check("--suppressions");
    assert_eq!(again.code(), 0, "{}", again.report());
    assert!(!again.stderr.contains("held nothing"), "{}", again.report());
}

#[test]
fn rules_have_a_count_and_a_maximum_and_those_that_hold_nothing_are_named() {
    let check = Check::new();
    check.pool.files().write("few.supp", "# poolscope: max=39\nleak:lose_blocks\nleak:nothing_like_it\n");
    let few = check.run(&["--suppressions", "few.supp"], "40");
    assert_eq!(few.code(), 23, "{}", few.report());
    assert!(few.stderr.contains("leak:lose_blocks may hold 39 blocks, and would hold 40,960 B in 40 blocks"));
    assert!(
        few.stderr.contains("This suppression held nothing: leak:nothing_like_it (few.supp:3)"),
        "{}",
        few.report()
    );
    let enough = check.run(&["--json", "--suppressions", "few.supp"], "39");
    assert_eq!(enough.code(), 0, "{}", enough.report());
    assert_eq!(json(&enough)["unused_suppressions"][0].as_str(), Some("leak:nothing_like_it (few.supp:3)"));
    check.pool.files().write("wrong.supp", "{\n  a rule\n  Memcheck:Leak\n  func:f\n}\n");
    let wrong = check.run(&["--suppressions", "wrong.supp"], "1");
    assert!(wrong.stderr.contains("wrong.supp:4: \"func:f\" is no frame: write fun:NAME"), "{}", wrong.report());
    assert!(![0, 23, 24].contains(&wrong.code()), "{}", wrong.report());
}

#[test]
fn the_built_in_rules_are_listed_with_their_reasons() {
    let output = Pool::new().poolscope().args(["check", "--list-rules"]).run().success();
    for words in [
        "the C library's locales",
        "libstdc++",
        "Rust's test harness",
        "CPython's interned strings",
        "^setlocale$",
        "program ^/usr/bin/perl$",
        "perl_destruct",
    ] {
        assert!(output.stdout.contains(words), "{words}: {}", output.report());
    }
}

#[test]
fn python_runs_on_malloc_unless_told_not_to() {
    let script = "import os; print(os.environ.get('PYTHONMALLOC'))";
    let run_in = |python: &Path, options: &[&str], own: Option<&str>| {
        let pool = Pool::new();
        let mut command = pool.poolscope().env_remove("PYTHONMALLOC");
        if let Some(own) = own {
            command = command.env("PYTHONMALLOC", own);
        }
        let output = command.arg("check").args(options).arg("--").arg(python).args(["-c", script]).run();
        assert_eq!(output.code(), 0, "{}", output.report());
        output.stdout.trim().to_owned()
    };
    let run = |options: &[&str], own: Option<&str>| run_in(Path::new("/usr/bin/python3"), options, own);
    assert_eq!(run(&[], None), "malloc");
    assert_eq!(run(&["--pymalloc"], None), "None");
    assert_eq!(run(&[], Some("pymalloc")), "pymalloc");
    // One that knows no such allocator ends when it is told to use it.
    for python in pythons::from_version(13).iter().filter(|python| pythons::is_free_threaded(python)) {
        assert_eq!(run_in(python, &[], None), "");
    }
}

#[test]
fn a_report_of_many_leaks_has_the_largest_ones_and_says_how_much_the_others_are() {
    let pool = Pool::new();
    let program = pool.files().join("loses_many");
    compile_into(&program, Path::new("tests/csrc/loses_many.c"), &["-O1", "-g", "-fno-builtin"], &[]);
    let report = |options: &[&str]| {
        let output = pool.poolscope().arg("check").args(options).arg("--").arg(&program).run();
        assert_eq!(output.code(), 23, "{}", output.report());
        output.stderr
    };
    let leaks = |text: &str| text.lines().filter(|line| line.starts_with("leak ")).count();
    let (total, hint) =
        ("7,260 B in 120 blocks leaked, from 120 stacks.", "0 prints all stacks, and --output FILE has them all");
    let usual = report(&[]);
    assert_eq!(leaks(&usual), 100, "{usual}");
    assert!(usual.contains("leak 1: 120 B in 1 block\n") && usual.contains(hint), "{usual}");
    assert!(usual.contains("20 more stacks, 210 B in 20 blocks, left out here.") && usual.contains(total), "{usual}");
    // The first one lies 119 calls deep.
    let first = |text: &str| -> Vec<String> {
        let lines = text.lines().skip_while(|line| !line.starts_with("leak 1:")).skip(2);
        lines.take_while(|line| !line.is_empty()).map(str::to_owned).collect()
    };
    let (stack, hint_of_frames) = (first(&usual), "With --max-frames 40: 0 prints whole stacks");
    assert!(stack.len() == 41 && stack[0].starts_with("    #0 lose "), "{usual}");
    assert!(stack[32].starts_with("    … ") && stack[32].ends_with(" frames left out"), "{usual}");
    assert!(stack[40].ends_with(" _start") && usual.contains(hint_of_frames), "{usual}");
    let whole = report(&["--max-frames", "0"]);
    assert!(first(&whole).len() > 120 && !whole.contains("whole stacks"), "{whole}");
    let two = report(&["--max-frames", "2"]);
    assert!(first(&two).len() == 3 && first(&two)[1].starts_with("    #1 lose "), "{two}");
    let few = report(&["--max-leaks", "3"]);
    assert!(leaks(&few) == 3 && few.contains("117 more stacks, 6,903 B in 117 blocks, left out here."), "{few}");
    let all = report(&["--max-leaks", "0"]);
    assert!(leaks(&all) == 120 && all.contains(total) && !all.contains(hint), "{all}");
    report(&["--output", pool.files().join("report.txt").to_str().expect("a path")]);
    let written = std::fs::read_to_string(pool.files().join("report.txt")).expect("a report");
    assert!(leaks(&written) == 120 && !written.contains("left out"), "{written}");
    assert!(first(&written).len() > 120, "{written}");
}

/// A job that runs out of time is killed with what it started; what its programs have recorded fills memory.
#[test]
fn gc_removes_what_a_killed_check_has_recorded_once_its_program_has_ended() {
    let pool = Pool::new();
    let mut check = pool.poolscope().args(["check", "--", "sh", "-c", "echo $$; exec sleep 100"]).start();
    let line = check.wait_for_line("");
    let program: i32 = line.trim().parse().expect("a process id");
    let folder = || {
        let begins = format!("poolscope-check-{}-", check.pid());
        let parent = pool.segment_dir().parent().expect("it has one").to_owned();
        let entries = std::fs::read_dir(parent).expect("is read").flatten().map(|entry| entry.path());
        entries.into_iter().find(|path| path.to_string_lossy().contains(&begins))
    };
    let path = folder().expect("it has a folder");
    let gc = || pool.poolscope().arg("gc").run().success().stdout;
    let names_it = |text: &str| text.contains(&format!("{}  of a check that was killed", path.display()));
    std::thread::sleep(std::time::Duration::from_millis(2100));
    assert!(!names_it(&gc()), "the check runs");
    check.signal(libc::SIGKILL);
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert!(!names_it(&gc()) && path.exists(), "its program runs");
    // SAFETY: the number is that of the check's program, which nobody has reaped.
    unsafe { libc::kill(program, libc::SIGKILL) };
    let was_named = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        names_it(&gc())
    });
    assert!(was_named && !path.exists(), "nobody runs");
    check.finish();
}
