//! Copies of the segment that a program writes: by `poolscope_dump`, at its exit, at a signal, and where memory runs
//! out.

use std::path::{Path, PathBuf};

use poolscope_e2e::{Pool, Program, compiler};

/// Holds 300 blocks of 1,000 bytes, copies the segment to its first argument, and frees them.
const SOURCE: &str = "#include <poolscope.h>\n#include <stdio.h>\n#include <stdlib.h>\n\
    static void *kept[300];\n\
    __attribute__((noinline)) void hold(void) { for (int i = 0; i < 300; i++) { kept[i] = malloc(1000); *(char *)kept[i] = 1; } }\n\
    int main(int argc, char **argv) {\n\
        hold();\n\
        for (int i = 1; i < argc; i++) printf(\"%d\\n\", poolscope_dump(argv[i]));\n\
        if (argc > 1) for (int i = 0; i < 300; i++) free(kept[i]);\n\
        return 0;\n\
    }\n";

fn program(pool: &Pool) -> std::path::PathBuf {
    let source = pool.files().write("copied.c", SOURCE);
    let program = pool.files().join("copied");
    let library = poolscope_e2e::library();
    let folder = library.parent().expect("it lies in a folder");
    Program::new("gcc")
        .args(["-g", "-O1", "-I"])
        .arg(compiler::headers())
        .arg("-o")
        .arg(&program)
        .arg(source)
        .arg("-L")
        .arg(folder)
        .args(["-lpoolscope", &format!("-Wl,-rpath,{}", folder.display())])
        .run()
        .silent_success();
    program
}

/// Bytes in use from `hold`, by what is written of a copy.
fn held(pool: &Pool, copy: &Path) -> u64 {
    held_by(pool, copy, "hold")
}

/// Bytes in use from a function that `main` calls.
fn held_by(pool: &Pool, copy: &Path, function: &str) -> u64 {
    let written = pool.poolscope().arg("convert").arg(copy).args(["-", "--format", "collapsed"]).run().success().stdout;
    let line = written.lines().find(|line| line.contains(&format!("main;{function} ")));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

#[test]
fn a_copy_has_what_was_in_use_when_it_was_written() {
    let pool = Pool::new();
    let copy = pool.files().join("copy");
    let missing = pool.files().join("nowhere/copy");
    let run = Program::new(program(&pool))
        .arg(&copy)
        .arg(&missing)
        .env("POOLSCOPE_DIR", pool.segment_dir())
        .env("POOLSCOPE_PERIOD", "1")
        .run()
        .silent_success();
    assert_eq!(run.stdout, format!("0\n{}\n", libc::ENOENT));
    assert!(pool.segments().is_empty(), "the segment itself is gone");
    assert_eq!(held(&pool, &copy), 300_000);
    let stats = pool.poolscope().arg("stats").arg(&copy).arg("--json").run().success().stdout;
    let stats: serde_json::Value = serde_json::from_str(&stats).expect("is JSON");
    assert!(stats["usage"]["in_use"].as_u64() >= Some(300_000), "{stats}");
    // How the process ended was not known yet.
    let report = pool.poolscope().arg("report").arg(&copy).run().success().stdout;
    assert!(report.lines().next().is_some_and(|line| line.ends_with(", gone)")), "{report}");
    // The segment has addresses for gigabytes; the copy takes what there is.
    let taken = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&copy).expect("it is there")) * 512;
    assert!(taken < 4 << 20, "{taken}");
}

#[test]
fn a_copy_at_exit_is_of_a_process_that_ended_by_exit() {
    let pool = Pool::new();
    let copy = pool.files().join("at-exit");
    Program::new(program(&pool))
        .env("POOLSCOPE_DIR", pool.segment_dir())
        .env("POOLSCOPE_PERIOD", "1")
        .env("POOLSCOPE_DUMP_AT_EXIT", &copy)
        .run()
        .silent_success();
    assert!(pool.segments().is_empty());
    assert_eq!(held(&pool, &copy), 300_000);
    let leaks = pool.poolscope().arg("leaks").arg(&copy).arg("--json").run();
    assert!(leaks.stdout.contains("\"claim\": \"leaked\""), "{}", leaks.report());
    // Where none can be written, the program says so and ends as it would.
    let run = Program::new(program(&pool))
        .env("POOLSCOPE_DIR", pool.segment_dir())
        .env("POOLSCOPE_DUMP_AT_EXIT", "/proc/nothing")
        .run();
    assert_eq!(run.code(), 0);
    assert!(run.stderr.contains("/proc/nothing (POOLSCOPE_DUMP_AT_EXIT)"), "{}", run.stderr);
}

/// A launcher's is soon overwritten by what it started, or the other way round.
#[test]
fn each_process_that_inherits_a_copy_at_exit_has_its_own_where_the_path_says_so() {
    let pool = Pool::new();
    let pattern = pool.files().join("%p-at-exit.%p");
    let script = "echo $$; sh -c 'echo $$; :'; :";
    let run = pool.program("sh").args(["-c", script]).env("POOLSCOPE_DUMP_AT_EXIT", &pattern).run().success();
    let pids: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(pids.len(), 2, "{}", run.stdout);
    for pid in pids {
        let copy = pool.files().join(format!("{pid}-at-exit.{pid}"));
        let report = pool.poolscope().arg("report").arg(&copy).run().success().stdout;
        assert!(report.contains(&format!("(pid {pid}, exited)")), "{report}");
    }
    assert!(!pattern.exists());
    // A path that is too long for it is no path, and is named, as far as a message goes.
    let long = pool.files().join("x".repeat(200)).join("y".repeat(200)).join(format!("{}%p", "z".repeat(200)));
    let run = pool.program("true").env("POOLSCOPE_DUMP_AT_EXIT", &long).run();
    let said = format!("no copy of the segment was written to {}/xxx", pool.files().path().display());
    assert!(run.code() == 0 && run.stderr.contains(&said), "{}", run.report());
}

/// A program that runs on the pool without knowing of it.
fn compiled(pool: &Pool, name: &str, source: &str) -> PathBuf {
    let source = pool.files().write(&format!("{name}.c"), source);
    let program = pool.files().join(name);
    Program::new("gcc").args(["-g", "-O1", "-pthread", "-o"]).arg(&program).arg(source).run().silent_success();
    program
}

/// The copies that the pool says it has written.
fn copies(stderr: &str) -> Vec<PathBuf> {
    let said = stderr.lines().filter_map(|line| line.strip_prefix("poolscope: a copy of the segment is in "));
    said.filter_map(|rest| Some(rest.split_once(" (")?.0.into())).collect()
}

/// Holds 300 blocks of 1,000 bytes, and then allocates and frees on three threads until its input ends: nearly every
/// signal finds its thread inside the pool.
const BUSY: &str = "#include <pthread.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
    static void *volatile kept[300];\n\
    static volatile int ended;\n\
    __attribute__((noinline)) void hold(void) { for (int i = 0; i < 300; i++) { kept[i] = malloc(1000); *(char *)kept[i] = 1; } }\n\
    static void *churn(void *p) { while (!ended) { char *b = malloc(5000); *b = 1; free(b); } return p; }\n\
    int main(void) {\n\
        pthread_t threads[3];\n\
        hold();\n\
        for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, churn, 0);\n\
        puts(\"ready\"); fflush(stdout);\n\
        char c;\n\
        while (read(0, &c, 1) > 0) {}\n\
        ended = 1;\n\
        for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);\n\
        return 0;\n\
    }\n";

#[test]
fn a_signal_has_a_copy_written_whatever_the_program_is_doing() {
    let pool = Pool::new();
    let program = compiled(&pool, "busy", BUSY);
    let mut running = pool
        .program(&program)
        .env("POOLSCOPE_PERIOD", "1")
        .env("POOLSCOPE_DUMP_SIGNAL", libc::SIGUSR2.to_string())
        .env("POOLSCOPE_DUMP_DIR", pool.files().path())
        .start();
    running.wait_for_line("ready");
    for number in 1..=5 {
        running.signal(libc::SIGUSR2);
        running.wait_until("the copy is there", |running| (copies(&running.stderr()).len() == number).then_some(()));
    }
    let pid = running.pid();
    let output = running.finish();
    assert_eq!(output.code(), 0, "{}", output.report());
    let copies = copies(&output.stderr);
    for (number, copy) in (1..).zip(&copies) {
        assert_eq!(*copy, pool.files().join(format!("poolscope.{pid}.{number}.segment")));
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(copy).expect("it is there").permissions());
        assert_eq!(mode & 0o777, 0o600);
    }
    assert_eq!(held(&pool, &copies[0]), 300_000);
    assert_eq!(held(&pool, &copies[4]), 300_000);
}

/// Holds 300 blocks of 1,000 bytes, and ends as soon as the signal's handler returns.
const WOKEN: &str = "#include <signal.h>\n#include <stdlib.h>\n\
    static void *volatile kept[300];\n\
    __attribute__((noinline)) void hold(void) { for (int i = 0; i < 300; i++) { kept[i] = malloc(1000); *(char *)kept[i] = 1; } }\n\
    int main(void) { hold(); raise(SIGUSR2); return 0; }\n";

#[test]
fn a_signal_that_wakes_a_program_to_its_end_has_its_copy_written() {
    let pool = Pool::new();
    let program = compiled(&pool, "woken", WOKEN);
    for round in 1..=10 {
        let folder = pool.files().join(format!("{round}"));
        std::fs::create_dir(&folder).expect("is made");
        let run = pool
            .program(&program)
            .env("POOLSCOPE_PERIOD", "1")
            .env("POOLSCOPE_DUMP_SIGNAL", "USR2")
            .env("POOLSCOPE_DUMP_DIR", &folder)
            .run();
        assert_eq!((run.code(), copies(&run.stderr).len()), (0, 1), "{}", run.report());
        if round == 1 {
            assert_eq!(held(&pool, &copies(&run.stderr)[0]), 300_000);
        }
    }
}

#[test]
fn a_copy_that_cannot_be_written_says_where_and_why() {
    let pool = Pool::new();
    let program = compiled(&pool, "woken", WOKEN);
    let text = pool.files().write("text", "");
    for (folder, why) in [
        (pool.files().join("nowhere"), "error 2: there is no such folder"),
        (text, "error 20: a part of the path is no folder"),
    ] {
        let woken = pool.program(&program).env("POOLSCOPE_DUMP_SIGNAL", "USR2");
        let output = woken.env("POOLSCOPE_DUMP_DIR", &folder).run();
        let expected = format!("(POOLSCOPE_DUMP_SIGNAL; POOLSCOPE_DUMP_DIR names the folder): {why}\n");
        assert!(output.stderr.ends_with(&expected), "{expected}: {}", output.report());
    }
    for (file, why) in [("nowhere/copy", "error 2: there is no such folder"), ("", "error 21: it is a folder")] {
        let path = pool.files().join(file);
        let output = pool.program("/bin/true").env("POOLSCOPE_DUMP_AT_EXIT", &path).run();
        let expected = format!("(POOLSCOPE_DUMP_AT_EXIT): {why}\n");
        assert!(output.stderr.ends_with(&expected), "{expected}: {}", output.report());
    }
}

/// A link that waits where the next copy goes, as anybody can put one into /tmp.
#[test]
fn a_copy_goes_through_no_link_and_over_no_file() {
    let pool = Pool::new();
    let script = "ln -s victim poolscope.$$.1.segment; echo kept > poolscope.$$.2.segment; kill -USR1 $$; sleep 0.3; :";
    let output = pool
        .program("/bin/bash")
        .args(["-c", script])
        .env("POOLSCOPE_DUMP_SIGNAL", "SIGUSR1")
        .env("POOLSCOPE_DUMP_DIR", pool.files().path())
        .run();
    assert_eq!(output.code(), 0, "{}", output.report());
    let copies = copies(&output.stderr);
    assert!(matches!(&copies[..], [copy] if copy.to_string_lossy().ends_with(".3.segment")), "{}", output.report());
    assert!(!pool.files().join("victim").exists());
}

/// Takes blocks of a mebibyte within 400 MiB of addresses until it is refused one, four times, and says how many it
/// had.
const GREEDY: &str = "#include <stdio.h>\n#include <stdlib.h>\n#include <sys/resource.h>\n\
    static void *volatile kept[1000];\n\
    __attribute__((noinline)) int grow(void) { int i = 0; while ((kept[i] = malloc(1 << 20))) i++; return i; }\n\
    int main(void) {\n\
        struct rlimit limit = { 400 << 20, 400 << 20 };\n\
        setrlimit(RLIMIT_AS, &limit);\n\
        int had = grow();\n\
        for (int i = 0; i < 3; i++) kept[had] = malloc(64 << 20);\n\
        printf(\"%d\\n\", had);\n\
        return kept[had] != 0;\n\
    }\n";

#[test]
fn a_program_that_finds_no_memory_leaves_one_copy_of_what_it_had() {
    let pool = Pool::new();
    let program = compiled(&pool, "greedy", GREEDY);
    let run = |is_on: &str| {
        let greedy = pool.program(&program).env("POOLSCOPE_PERIOD", "1").env("POOLSCOPE_DUMP_AT_REFUSAL", is_on);
        let output = greedy.env("POOLSCOPE_DUMP_DIR", pool.files().path()).run();
        assert_eq!(output.code(), 0, "{}", output.report());
        output
    };
    let output = run("1");
    let had: u64 = output.stdout.trim().parse().expect("a number");
    let copies = copies(&output.stderr);
    assert!(had > 100, "{had}");
    assert!(matches!(&copies[..], [copy] if held_by(&pool, copy, "grow") == had << 20), "{}", output.report());
    assert_eq!(run("0").stderr, "");
}
