//! A process in which a library takes over what the C library says of the time, of who the process is and of files, and
//! allocates to answer.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use poolscope_e2e::{Pool, Program, compiler, library, skip};

/// Both orders in which the two can be preloaded.
fn orders(other: &Path) -> [String; 2] {
    let (pool, other) = (library().display().to_string(), other.display().to_string());
    [format!("{pool}:{other}"), format!("{other}:{pool}")]
}

#[test]
fn what_the_pool_says_of_a_process_is_the_kernels_and_not_another_librarys() {
    for (number, order) in orders(Path::new("taken-over.so")).into_iter().enumerate() {
        let pool = Pool::new();
        let build = |name: &str, flags: &[&str]| {
            compiler::compile_with_headers(pool.files(), "tests/csrc/taken_over.c", name, flags)
        };
        let other = build("taken-over.so", &["-O2", "-DLIBRARY", "-fPIC", "-shared"]);
        let order = order.replace("taken-over.so", &other.display().to_string());
        let program = build("taken-over", &["-O2"]);
        let mut target = pool.program(&program).env("LD_PRELOAD", order).env("POOLSCOPE_PERIOD", "10000").start();
        let pid = target.wait_for_line("").trim().to_owned();
        assert_eq!(pid, target.pid().to_string(), "{number}");
        let said = pool.segment(target.pid()).expect("it has a segment").header;
        // SAFETY: a system call without arguments.
        let user = unsafe { libc::geteuid() };
        assert_eq!((said.pid, said.parent_pid, said.uid), (target.pid(), std::process::id(), user));
        let age = SystemTime::now().duration_since(UNIX_EPOCH + Duration::from_nanos(said.start_realtime_ns));
        assert!(age.is_ok_and(|age| age < Duration::from_secs(60)), "{}", said.start_realtime_ns);
        // Longer than a program waits before it looks whether its recorder lives.
        let record = ["record", &pid, "--duration", "1.5", "--lossless", "-o", "taken-over.rec"];
        let recorded = pool.poolscope().args(record).run();
        assert_eq!(recorded.code(), 0, "{}", recorded.report());
        assert!(recorded.stderr.contains("the time of --duration is over"), "{}", recorded.report());
        assert!(recorded.stderr.contains("nothing was lost"), "{}", recorded.report());
        target.end_input();
        target.finish().silent_success();
    }
}

#[test]
fn a_program_that_is_told_another_time_runs_and_has_it() {
    let Some(other) = faketime() else { return skip("libfaketime is not installed: another time") };
    for order in orders(&other) {
        for (fake, year) in [("2001-01-01 00:00:00", "2001"), ("@2040-01-01 00:00:00 x100", "2040")] {
            let pool = Pool::new();
            let told = pool.program("bash").args(["-c", "date +%Y; true"]);
            let target = told.env("LD_PRELOAD", &order).env("FAKETIME", fake);
            assert_eq!(target.run().silent_success().stdout.trim(), year, "{order}");
            pool.assert_ran("bash");
        }
    }
}

fn faketime() -> Option<std::path::PathBuf> {
    let found = Program::new("sh").args(["-c", "ls /usr/lib/*/faketime/libfaketime.so.1"]).run();
    found.stdout.lines().next().map(Into::into)
}
