//! Ruby's methods in stacks, as people see them, compared with what Ruby itself says of its calls.

use std::collections::BTreeMap;
use std::path::Path;

use poolscope_e2e::compiler::compile_with_headers;
use poolscope_e2e::{Pool, Program, Running, calls, library, pythons, repository};
use serde_json::Value;

const RUBY: &str = "/usr/bin/ruby";

/// A frame as the script says it, if it is a method's in Ruby.
fn call(frame: &Value) -> Option<String> {
    let file = frame["file"].as_str().filter(|file| file.ends_with(".rb") || file.starts_with('('))?;
    let short = file.rsplit('/').next().unwrap_or(file);
    let name = frame["function"].as_str()?.strip_suffix(&format!(" ({short})"))?;
    // As Ruby says it of itself: without the class, and without what it is in the method.
    let name = name.rsplit_once(" in ").map_or(name, |(_, method)| method);
    let name = name.rsplit(['#', '.']).next().unwrap_or(name);
    Some(format!("{name}:{}", frame["line"]))
}

#[track_caller]
fn assert_same_calls(report: &Value, what: &str, said: &BTreeMap<u64, String>) {
    calls::assert_same(report, what, said, call);
}

/// Starts the script that allocates in calls of many kinds, with every allocation recorded.
fn start(pool: &Pool) -> (Running, BTreeMap<u64, String>) {
    start_with(pool, "")
}

/// The same beside another library.
fn start_with(pool: &Pool, other: &str) -> (Running, BTreeMap<u64, String>) {
    let script = repository().join("tests/ruby/calls.rb");
    let libraries = format!("{}:{other}", library().display());
    let program = pool.program(RUBY).arg(script).env("LD_PRELOAD", libraries);
    let mut running = program.env("POOLSCOPE_PERIOD", "1").env("LANG", "C.UTF-8").start();
    running.wait_for_line("ready");
    let said = calls::said(&running.stdout());
    (running, said)
}

#[test]
fn stacks_have_the_methods_and_lines_that_ruby_says_it_runs() {
    let pool = Pool::new();
    let (mut running, said) = start(&pool);
    let pid = running.pid().to_string();
    let report = pool.json(&["report", &pid, "--json"]);
    assert_same_calls(&report, "in_use", &said);
    // The function that allocated stands before them, and how the program began is left out.
    let (&plain, _) = said.iter().find(|(_, calls)| calls.starts_with("plain:18;<main>:100")).expect("is said");
    let frames = calls::site_of(&report, "in_use", plain)["frames"].as_array().expect("has frames");
    let names: Vec<&str> = frames.iter().filter_map(|frame| frame["function"].as_str()).collect();
    let before = names.iter().position(|name| *name == "rb_str_times").expect("has a function of Ruby's own");
    let method = names.iter().position(|name| name.ends_with("plain (calls.rb)")).expect("has the method");
    assert!(before < method && names.ends_with(&["<main> (calls.rb)"]), "{names:?}");

    let listed = pool.poolscope().args(["report", &pid, "--rows", "500"]).run();
    assert!(listed.stdout.contains("insert  calls.rb:29 < "), "{}", listed.stdout);
    running.send("\n");
    running.finish().silent_success();
}

/// As an editor has both, for scripts in either.
#[test]
fn a_program_that_has_pythons_library_as_well_has_the_methods_that_ruby_runs() {
    let pool = Pool::new();
    let python = pythons::library(Path::new("/usr/bin/python3")).expect("has a library");
    let (mut running, said) = start_with(&pool, &python.to_string_lossy());
    let pid = running.pid().to_string();
    assert_same_calls(&pool.json(&["report", &pid, "--json"]), "in_use", &said);
    running.send("\n");
    running.finish().silent_success();
}

/// As programs load one with a plugin. Methods of a version before 3.3 are read only where the program began with it.
#[test]
fn a_ruby_that_a_program_loads_when_it_runs_has_its_methods_from_3_3_on() {
    let version = "print RUBY_VERSION >= '3.3', ' ', RbConfig::CONFIG['LIBRUBY_SONAME']";
    let says = Program::new(RUBY).args(["-e", version]).run().stdout;
    let (is_read, library) = says.split_once(' ').expect("says both");
    let pool = Pool::new();
    let program = compile_with_headers(pool.files(), "tests/csrc/later_interpreter.c", "later", &["-O1"]);
    let script = repository().join("tests/ruby/calls.rb");
    let program = pool.program(program).args(["-r", library]).arg(script);
    let mut running = program.env("POOLSCOPE_PERIOD", "1").env("LANG", "C.UTF-8").start();
    running.wait_for_line("ready");
    let said = calls::said(&running.stdout());
    let pid = running.pid().to_string();
    let report = pool.json(&["report", &pid, "--json"]);
    if is_read == "true" {
        assert_same_calls(&report, "in_use", &said);
    } else {
        let sites = report["sites"].as_array().expect("has sites");
        let in_use: f64 = sites.iter().filter_map(|site| site["in_use"]["bytes"].as_f64()).sum();
        assert!(in_use >= said.keys().sum::<u64>() as f64, "{report:#}");
    }
    running.send("\n");
    running.finish().silent_success();
}

#[test]
fn a_process_of_rubys_that_was_killed_has_the_methods_that_it_ran() {
    let pool = Pool::new();
    let (running, said) = start(&pool);
    let segment = pool.segment(running.pid()).expect("has a segment");
    running.signal(libc::SIGKILL);
    running.finish();
    assert_same_calls(&pool.json(&["report", &segment.path.to_string_lossy(), "--json"]), "in_use", &said);
}

#[test]
fn a_recording_has_the_methods_and_lines_that_ruby_says_it_runs() {
    let pool = Pool::new();
    let recording = pool.files().join("calls.rec");
    let script = repository().join("tests/ruby/calls.rb");
    let command = pool.poolscope().args(["record", "-q", "--free-stacks", "-o"]).arg(&recording);
    let ended = command.args(["--", RUBY]).arg(script).env("LANG", "C.UTF-8").run();
    assert_eq!(ended.code(), 0, "{}", ended.report());
    let report = pool.json(&["report", &recording.to_string_lossy(), "--json"]);
    assert_same_calls(&report, "allocated", &calls::said(&ended.stdout));
}

#[test]
fn what_rubys_objects_hold_at_its_end_is_no_leak_and_what_an_extension_loses_is() {
    let pool = Pool::new();
    let held = "x = {}; 1000.times { |i| x[i] = 's' * (i * 10) }";
    pool.poolscope().args(["check", "--", RUBY, "-e", held]).run().success();

    let library = compile_with_headers(
        pool.files(),
        "tests/csrc/leaky_ruby.c",
        "leaky_ruby.so",
        &["-O1", "-g", "-fPIC", "-shared"],
    );
    let library = library.display();
    let script = format!(
        "require 'fiddle'
        LOSE = Fiddle::Function.new(Fiddle.dlopen('{library}')['lose'], [Fiddle::TYPE_INT], Fiddle::TYPE_VOID, need_gvl: true)
        def work(n) = 3.times {{ LOSE.call(n) }}
        work(5000)"
    );
    let ended = pool.poolscope().args(["check", "--", RUBY, "-e", &script]).run();
    assert_eq!(ended.code(), 23, "{}", ended.report());
    assert!(ended.stderr.contains("15,000 B in 3 blocks leaked, from 1 stack."), "{}", ended.report());
    for function in ["lose_a_block", "call", "work (-e)"] {
        assert!(ended.stderr.contains(function), "{function}: {}", ended.report());
    }
}

/// A Ruby that ends frees what its methods are, and its exit handlers still allocate.
#[test]
fn a_program_of_rubys_ends_as_it_does_without_the_library() {
    let pool = Pool::new();
    for script in [
        "exit 3",
        "exit! 4",
        "abort 'no'",
        "raise 'no'",
        "at_exit { puts ('x' * 5000).size; exit 7 }",
        "Fiber.current; at_exit { GC.start; puts ('x' * 5000).size }",
        "ObjectSpace.define_finalizer(Object.new, proc { puts ('x' * 5000).size })",
        "Thread.new { loop { 'x' * 5000 } }; sleep 0.05; puts 1",
        "pid = fork { 'x' * 5000; exit 5 }; Process.wait pid; puts $?.exitstatus",
        "pid = fork { 'x' * 5000; exit! 6 }; Process.wait pid; puts $?.exitstatus",
        "GC.stress = true; 20.times { |n| ('x' * n * 500).upcase }; puts 1",
        "100.times { Thread.new { 'x' * 5000 } }; GC.compact; puts 1",
        "def deep(n) = deep(n + 1); begin; deep(0); rescue SystemStackError; puts 'x' * 50; end",
        "exec 'true'",
    ] {
        let bare = Program::new(RUBY).args(["-e", script]).run();
        for period in ["1", "512K"] {
            let pooled = pool.program(RUBY).args(["-e", script]).env("POOLSCOPE_PERIOD", period).run();
            assert_eq!((pooled.code(), &pooled.stdout), (bare.code(), &bare.stdout), "{script}: {}", pooled.report());
            assert_eq!(pooled.stderr, bare.stderr, "{script}");
        }
    }
}
