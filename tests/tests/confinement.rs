//! Programs that may do little: filters of system calls, limits, no room. What runs without the pool runs on it.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;

use poolscope_e2e::{Output, Pool, Program, compiler, library, repository};

/// What a small program makes without the pool: to be loaded, to start threads, to print and to end.
const OF_THE_C_LIBRARY: &str = "execve brk mmap mprotect munmap madvise mremap futex access openat read pread64 newfstatat \
    fstat close arch_prctl set_tid_address set_robust_list rseq prlimit64 getrandom exit exit_group write clone clone3 \
    rt_sigaction rt_sigprocmask sched_getaffinity prctl";

/// Numbers of system calls, by name, as the C compiler knows them.
fn numbers() -> BTreeMap<String, String> {
    let defined = Program::new("gcc").args(["-E", "-dM", "-x", "c", "-include", "sys/syscall.h", "/dev/null"]).run();
    let defined = defined.silent_success().stdout;
    let number = |line: &str| {
        let (name, number) = line.strip_prefix("#define __NR_")?.split_once(' ')?;
        Some((name.to_owned(), number.to_owned()))
    };
    defined.lines().filter_map(number).collect()
}

/// The calls of the guide's table, by when they are made.
fn calls_of_the_pool(when: impl Fn(&str) -> bool) -> Vec<String> {
    let page = std::fs::read_to_string(repository().join("docs/guide/confinement.md")).unwrap();
    let rows = page.lines().skip_while(|line| !line.starts_with("| system calls |")).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|')).filter(|row| when(row.rsplit('|').nth(1).unwrap().trim()));
    let names = rows.flat_map(|row| row.split('|').nth(1).unwrap().split(','));
    names.map(|name| name.trim().trim_matches('`').to_owned()).collect()
}

/// A program that is ended for each system call but these.
fn allow(pool: &Pool, calls: &[String]) -> Program {
    let numbers = numbers();
    let allow = compiler::compile_with_headers(pool.files(), "tests/csrc/allow.c", "allow", &["-O1"]);
    let base = OF_THE_C_LIBRARY.split_whitespace().map(str::to_owned);
    let allowed: Vec<&str> =
        base.chain(calls.iter().cloned()).filter_map(|name| numbers.get(&name).map(String::as_str)).collect();
    Program::new(allow).arg(allowed.join(","))
}

/// Tells the program that the launcher runs of the pool, and not the launcher.
fn on_the_pool(launch: Program, pool: &Pool, setting: Option<&str>, program: &std::path::Path) -> Program {
    let launch = launch.arg("/usr/bin/env").arg(format!("LD_PRELOAD={}", library().display()));
    let launch = launch.arg(format!("POOLSCOPE_DIR={}", pool.segment_dir().display()));
    launch.args(setting).arg(program)
}

fn is_done(output: &Output) -> bool {
    output.status.success() && output.stdout == "done\n" && output.stderr.is_empty()
}

#[test]
fn a_plain_pool_makes_no_system_calls_but_those_of_the_c_librarys_allocator() {
    let pool = Pool::new();
    let program = compiler::compile_with_headers(pool.files(), "tests/csrc/confined.c", "confined", &["-O1"]);
    let without = allow(&pool, &[]).arg(&program).run();
    assert!(is_done(&without), "the test's own list is too short: {}", without.report());

    let calls = calls_of_the_pool(|when| when == "always");
    assert_eq!(calls, ["mmap", "munmap", "mprotect", "madvise", "mremap", "futex"]);
    for settings in
        ["POOLSCOPE_PLAIN=1", "POOLSCOPE_PLAIN=1 POOLSCOPE_HARDENED=1 POOLSCOPE_PERIOD=1 POOLSCOPE_NUMA=local"]
    {
        let launch = allow(&pool, &calls).arg("/usr/bin/env").arg(format!("LD_PRELOAD={}", library().display()));
        // Once more in the program: what loading it took is not allowed either.
        let output = launch.args(settings.split(' ')).arg(&program).arg("confine").run();
        assert!(is_done(&output), "{settings}: {}", output.report());
    }
    // The filter is one: with samples and a segment, the pool makes more.
    let output = on_the_pool(allow(&pool, &calls), &pool, None, &program).run();
    assert_eq!(output.status.signal(), Some(libc::SIGSYS), "{}", output.report());
    assert_eq!(pool.segments().len(), 0);
}

#[test]
fn a_filter_that_allows_what_the_guide_lists_ends_no_program() {
    let pool = Pool::new();
    let program = compiler::compile_with_headers(pool.files(), "tests/csrc/confined.c", "confined", &["-O1"]);
    let calls = calls_of_the_pool(|_| true);
    for setting in ["POOLSCOPE_VERBOSE=0", "POOLSCOPE_PERIOD=16K", "POOLSCOPE_HARDENED=1", "POOLSCOPE_GC_MS=1"] {
        let output = on_the_pool(allow(&pool, &calls), &pool, Some(setting), &program).run();
        assert!(is_done(&output), "{setting}: {}", output.report());
    }
}

/// A process limits itself: a bad address is an error, as the kernel has it,
/// and what is only reserved counts for nothing.
#[test]
fn limits_that_a_process_sets_itself() {
    let pool = Pool::new();
    let program = compiler::compile_with_headers(pool.files(), "tests/csrc/limits.c", "limits", &["-O0"]);
    for which in ["bad-pointer", "mlockall", "mlockall-8", "mlockall-full"] {
        for run in [Program::new(&program), pool.program(&program), pool.program(&program).env("POOLSCOPE_ARENA", "1T")]
        {
            let output = run.arg(which).run();
            assert!(is_done(&output), "{which}: {}", output.report());
        }
    }
}

/// Settings that have the pool do at each chance what it otherwise does now and then.
const EAGER: [&str; 3] = ["POOLSCOPE_PERIOD=1", "POOLSCOPE_GC_MS=20", "POOLSCOPE_SCAVENGE_MS=0"];

/// A process closes the pool's descriptors, takes the addresses beside its heap, forks in crowds, and so on: it
/// allocates on as without the pool, and no block loses what it holds.
#[test]
fn what_a_process_does_to_its_surroundings_costs_it_no_block() {
    let pool = Pool::new();
    let program = compiler::compile_with_headers(pool.files(), "tests/csrc/surroundings.c", "surroundings", &["-O1"]);
    let ways =
        ["close-all", "no-more-files", "move-the-break", "take-addresses", "be-undumpable", "fork-a-thousand", "storm"];
    for way in ways {
        let with = |settings: &[&str]| {
            let settings = settings.iter().filter_map(|setting| setting.split_once('='));
            settings.fold(pool.program(&program), |program, (name, value)| program.env(name, value))
        };
        let runs = [Program::new(&program), with(&[]), with(&EAGER), with(&["POOLSCOPE_PLAIN=1"])];
        for (at, run) in runs.into_iter().enumerate() {
            let output = run.arg(way).run();
            assert!(is_done(&output), "{way}, run {at}: {}", output.report());
        }
    }
}

/// Small real programs, each with what it prints.
const PROGRAMS: [(&str, &str); 5] = [
    ("ls -d /etc /usr", "/etc\n/usr\n"),
    ("bash -c 'a=(); for i in {1..3000}; do a+=($i); done; echo ${#a[@]}'", "3000\n"),
    ("/usr/bin/python3 -c 'print(len([str(n) for n in range(20000)]))'", "20000\n"),
    ("sqlite3 :memory: 'create table t(a); insert into t values(1),(2); select sum(a) from t'", "3\n"),
    ("git --no-pager -C / hash-object -t blob /dev/null", "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391\n"),
];

/// What the pool may need above what the C library's allocator does, in KiB. Python needs from 850 to 970: what is
/// sampled differs from run to run.
const MORE_DATA: u32 = 1152;
/// The same where a program allocates next to nothing: the library's own data, and a heap.
const MORE_DATA_AT_LEAST: u32 = 192;

/// Whether a program says what it is to say under a limit of data, in KiB, on a pool with these settings or on none.
fn runs_with(data: u32, program: &str, says: &str, pool: Option<(&Pool, &str)>) -> bool {
    let preload = pool.map_or(String::new(), |(_, settings)| format!("{settings} LD_PRELOAD={}", library().display()));
    // The shell itself is on the other allocator, and its limit is the program's alone.
    let script = format!("ulimit -d {data}; exec env {preload} {program}");
    let dir = pool.map_or("/nowhere".into(), |(pool, _)| pool.segment_dir());
    let output = Program::new("bash").args(["-c", &script]).env("POOLSCOPE_DIR", dir).env("POOLSCOPE_KEEP", "1").run();
    output.stdout == says && output.status.success() && output.stderr.is_empty()
}

/// A pool that set memory aside for each class needed 5,000 KiB for the first of them, and 16,000 for Python; a plain
/// one, which can't ask for the limit, 3,200 more than the C library's allocator.
#[test]
fn a_narrow_limit_of_data_has_to_leave_the_pool_little() {
    let pool = Pool::new();
    for (program, says) in PROGRAMS {
        // Between too little and enough.
        let (mut low, mut least) = (0u32, 32_000);
        while least - low > 8 {
            let middle = low.midpoint(least);
            let enough = runs_with(middle, program, says, None);
            (low, least) = if enough { (low, middle) } else { (middle, least) };
        }
        println!("{program}: {least} KiB without the pool");
        assert!(least < 16_000, "{program}: {least} KiB without the pool, which is no narrow limit");
        for settings in ["", "POOLSCOPE_PLAIN=1"] {
            let is_enough = |more: u32| runs_with(least + more, program, says, Some((&pool, settings)));
            assert!(is_enough(MORE_DATA), "{settings} {program} with {} KiB", least + MORE_DATA);
            if program.starts_with("ls") {
                let more = MORE_DATA_AT_LEAST + if settings.is_empty() { 0 } else { 64 };
                // What is sampled differs from run to run.
                let runs = (0..40).filter(|_| is_enough(more)).count();
                assert_eq!(runs, 40, "{settings} {program} with {} KiB", least + more);
            }
        }
        pool.assert_ran(program.split(' ').next().unwrap().rsplit('/').next().unwrap());
    }
}

#[test]
fn real_programs_in_surroundings_that_refuse_things() {
    let pool = Pool::new();
    let dir = pool.segment_dir();
    // Limits in KiB are some that each of the programs stands without the pool.
    let surroundings = [
        "ulimit -f 0",
        "ulimit -v 300000",
        "ulimit -d 32000",
        "ulimit -d 8000",
        "ulimit -s 256",
        "ulimit -n 16",
        "export POOLSCOPE_DIR=/proc/self",
        "export POOLSCOPE_DIR=/dev/null",
        "export POOLSCOPE_PLAIN=1",
        "export POOLSCOPE_PLAIN=1; ulimit -v 300000",
        "export POOLSCOPE_SCAVENGE_MS=0 POOLSCOPE_GC_MS=1 POOLSCOPE_PERIOD=1",
        "mount -t tmpfs -o nr_blocks=3 tmpfs \"$POOLSCOPE_DIR\"",
        "mount -t tmpfs -o ro tmpfs \"$POOLSCOPE_DIR\"",
    ];
    for surrounding in surroundings {
        for (program, says) in PROGRAMS {
            // Through a pipe: a file may not be as long as the answer.
            let script = format!("( set -e; {surrounding}; export LD_PRELOAD=\"$1\"; {program} ) | cat");
            let run = Program::with_own_mounts().args(["bash", "-o", "pipefail", "-c", &script, "bash"]);
            let output = run.arg(library()).env("POOLSCOPE_DIR", &dir).run();
            let is_right = output.stderr.is_empty() && output.stdout == says && output.status.success();
            assert!(is_right, "{surrounding}; {program}: {}", output.report());
        }
    }
}
