//! Programs that are written for LeakSanitizer link to the library, or have it preloaded, unchanged. Those of other
//! sanitizers can't have it, and are told so.

use std::path::{Path, PathBuf};

use poolscope_e2e::{Output, Pool, Program, compiler};

/// The program, linked to the library, with definitions of its own.
fn linked(pool: &Pool, defined: &str) -> PathBuf {
    let flags = ["-O1", "-g", "-fno-builtin", "-pthread", defined];
    let name = format!("lsan{}", defined.replace("-D", "-"));
    compiler::compile_linked(pool.files(), "tests/csrc/lsan.c", &name, &flags)
}

fn run(program: &Path, pool: &Pool, scenario: &str, options: &str) -> Output {
    let program = Program::new(program).arg(scenario).env("POOLSCOPE_DIR", pool.segment_dir());
    program.env("POOLSCOPE_PERIOD", "1").env("LSAN_OPTIONS", options).run()
}

#[test]
fn a_program_checks_itself_any_number_of_times_and_goes_on() {
    let pool = Pool::new();
    let output = run(&linked(&pool, "-DPLAIN"), &pool, "recoverable", "");
    assert_eq!((output.code(), output.stdout.as_str()), (0, "0 1 1\n"), "{}", output.report());
    let found = |text: &str| output.stderr.matches(text).count();
    assert_eq!((found("1,337 B in 1 block\n"), found("23 B in 1 block\n")), (2, 1), "{}", output.report());
    assert!(found("lose_on_purpose") > 0 && found("lsan.c:") > 0, "{}", output.report());
}

#[test]
fn what_is_allocated_while_the_checker_is_disabled_or_is_ignored_is_no_leak_and_neither_is_what_it_leads_to() {
    let pool = Pool::new();
    let program = linked(&pool, "-DPLAIN");
    for (scenario, expected) in [("disabled", "0\n1\n"), ("ignored", "0\n")] {
        let output = run(&program, &pool, scenario, "");
        assert_eq!((output.code(), output.stdout.as_str()), (0, expected), "{scenario}: {}", output.report());
    }
}

#[test]
fn a_registered_region_holds_blocks_also_where_a_part_of_it_is_closed() {
    let pool = Pool::new();
    let output = run(&linked(&pool, "-DPLAIN"), &pool, "root_region", "");
    assert_eq!((output.code(), output.stdout.as_str()), (0, "0\n1\n"), "{}", output.report());
}

#[test]
fn a_check_ends_the_program_with_the_code_that_is_asked_for() {
    let pool = Pool::new();
    let (plain, with_options) = (linked(&pool, "-DPLAIN"), linked(&pool, "-DOPTIONS"));
    let suppressions = pool.files().write("known", "leak:lose_on_*\n");
    let by_file = format!("suppressions={}", suppressions.display());
    for (program, options, code) in [
        (&plain, "", 23),
        (&plain, "exitcode=42:verbosity=0", 42),
        (&plain, "exitcode=0", 3),
        (&plain, "detect_leaks=0", 3),
        (&plain, by_file.as_str(), 3),
        (&with_options, "", 7),
        (&with_options, "exitcode=9", 9),
    ] {
        let output = run(program, &pool, "do_leak_check", options);
        assert_eq!(output.code(), code, "{options}: {}", output.report());
        assert_eq!(output.stdout == "goes on\n", code == 3, "{options}: {}", output.report());
    }
    let log = pool.files().join("log");
    let logged = run(&plain, &pool, "do_leak_check", &format!("log_path={}", log.display()));
    let entries = std::fs::read_dir(pool.files().path()).expect("a folder").flatten();
    let mut logs = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("log."));
    let text = std::fs::read_to_string(logs.next().expect("a log").path()).expect("text");
    assert!(text.contains("1,337 B in 1 block") && logged.stderr.is_empty(), "{text}: {}", logged.report());
    let nowhere = run(&plain, &pool, "do_leak_check", "log_path=/dev/null/nowhere/log");
    for words in ["log_path can't be written to", "1,337 B in 1 block"] {
        assert!(nowhere.stderr.contains(words), "{words}: {}", nowhere.report());
    }
    let unreadable = run(&plain, &pool, "do_leak_check", "suppressions=/dev/null/nowhere");
    assert!(unreadable.code() == 23 && unreadable.stderr.contains("/dev/null/nowhere"), "{}", unreadable.report());
    assert!(unreadable.stderr.contains("could not report it"), "{}", unreadable.report());
    let objects = run(&plain, &pool, "do_leak_check", "report_objects=1");
    assert!(objects.stderr.contains("leaked: 1337 bytes at 0x"), "{}", objects.report());
}

#[test]
fn what_the_program_says_of_its_leaks_holds_at_its_end_as_well() {
    let pool = Pool::new();
    for (defined, code, said) in [
        ("-DPLAIN", 23, "1,337 B in 1 block"),
        ("-DSUPPRESSIONS", 0, "Suppressed: 1,337 B in 1 block: leak:lose_on_purpose"),
        ("-DTURNED_OFF", 24, "the program has turned its leak check off"),
    ] {
        let program = linked(&pool, defined);
        let output = pool.poolscope().args(["check", "--"]).arg(&program).arg("lose").run();
        assert_eq!(output.code(), code, "{defined}: {}", output.report());
        assert!(output.stderr.contains(said), "{defined}: {}", output.report());
        if defined != "-DPLAIN" {
            let output = run(&program, &pool, "do_leak_check", "");
            assert_eq!(output.stdout, "goes on\n", "{defined}: {}", output.report());
        }
    }
}

#[test]
fn a_program_that_is_sampled_is_told_so() {
    let pool = Pool::new();
    let program = Program::new(linked(&pool, "-DPLAIN")).arg("do_leak_check");
    let output = program.env("POOLSCOPE_DIR", pool.segment_dir()).run();
    assert_eq!(output.code(), 3, "{}", output.report());
    assert!(output.stderr.contains("no leak check: not every allocation is recorded"), "{}", output.report());
}

/// The one would end at once, and the other would crash without a word.
#[test]
fn commands_say_of_a_program_with_a_sanitizer_that_it_runs_with_no_other_allocator() {
    let pool = Pool::new();
    for (option, name) in [("address", "AddressSanitizer"), ("thread", "ThreadSanitizer")] {
        let program = compiler::compile(pool.files(), "leak.c", option, &["-g", &format!("-fsanitize={option}")]);
        for command in [&["run", "--headless", "--"][..], &["check", "--"], &["record", "--"]] {
            let output = pool.poolscope().args(command).arg(&program).run();
            let expected = format!("{option} is built with {name} (-fsanitize={option})");
            assert!(output.code() == 2 && output.stderr.contains(&expected), "{command:?}: {}", output.report());
        }
    }
}
