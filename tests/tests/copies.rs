//! Copies of the segment that a program writes: by `poolscope_dump`, and at its exit.

use std::path::Path;

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
    let written = pool.poolscope().arg("convert").arg(copy).args(["-", "--format", "collapsed"]).run().success().stdout;
    let line = written.lines().find(|line| line.contains("main;hold "));
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
