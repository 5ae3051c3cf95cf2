//! Our own C++ programs that do many hard things at once.

use poolscope_e2e::compiler::{compile, compile_library, compile_with_headers};
use poolscope_e2e::{Output, Pool};

#[test]
fn thread_local_destructors_allocate_while_other_threads_throw() {
    let pool = Pool::new();
    let program = compile(pool.files(), "threads_tls.cpp", "threads_tls", &["-O2"]);
    for period in ["512K", "1K"] {
        let output = pool.program(&program).arg("10").env("POOLSCOPE_PERIOD", period).run().silent_success();
        assert!(output.stdout.contains("wrong 0"), "{}", output.report());
    }
    pool.assert_ran("threads_tls");
}

fn stress(period: &str, seconds: &str) -> Output {
    let pool = Pool::new();
    let program = compile(pool.files(), "stress.cpp", "stress", &["-O2", "-g"]);
    let plugin = compile_library(pool.files(), "stress_plugin.cpp", "stress_plugin.so", &["-O2", "-g"]);
    let output = pool.program(program).arg(plugin).arg(seconds).env("POOLSCOPE_PERIOD", period).run().silent_success();
    pool.assert_ran("stress");
    output
}

#[test]
fn libraries_exceptions_forks_and_an_allocating_signal_handler_go_together() {
    stress("512K", "10");
}

/// A backtrace every 4 KiB: most are taken in the middle of something.
#[test]
fn they_go_together_with_a_hundred_times_as_many_samples() {
    stress("4K", "10");
}

/// The child has the locks that its own thread had, and no others.
#[test]
fn a_handler_forks_in_the_middle_of_malloc_while_other_threads_have_its_locks() {
    let pool = Pool::new();
    let program = compile_with_headers(pool.files(), "tests/csrc/fork_in_handler.c", "fork_in_handler", &["-O2"]);
    let output = pool.program(&program).arg("100").limit(60).run().success();
    assert!(output.stdout.ends_with("GOOD\n"), "{}", output.report());
}

/// A process has 65,530 mappings by default, and the pool moves blocks by `mremap`, which leaves some.
#[test]
fn blocks_that_realloc_moves_keep_their_bytes_and_leave_no_mappings_behind() {
    let pool = Pool::new();
    let program = compile_with_headers(pool.files(), "tests/csrc/moves.c", "moves", &["-O1"]);
    for (arguments, bounds) in [
        ("1 2000", [200, 200, 80]),
        ("20 300", [1500, 300, 80]),
        ("300 10", [2500, 1500, 80]),
        ("9000 1", [17_000, 1500, 80]),
    ] {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let output = pool.program(&program).args(&arguments).run().silent_success();
        let of = |name: &str| -> u64 {
            let rest = &output.stdout[output.stdout.find(name).expect("the program says it") + name.len()..];
            rest.trim_start().split([',', ' ', '\n']).next().and_then(|number| number.parse().ok()).expect("a number")
        };
        let figures = ["most", "after", "trimmed"].map(of);
        assert!(figures.iter().zip(bounds).all(|(&is, most)| is <= most), "{arguments:?}: {}", output.stdout);
    }
    // Where a block is several mappings, and where the kernel moves nothing, whatever it says.
    pool.program(&program).args(["40", "20", "in parts"]).run().silent_success();
    let refuse = compile_with_headers(pool.files(), "tests/csrc/refuse.c", "refuse", &["-O2"]);
    for error in [libc::EPERM, libc::ENOSYS, libc::EFAULT, libc::ENOMEM] {
        let launch = pool.program(&refuse).args([libc::SYS_mremap.to_string(), error.to_string()]).arg(&program);
        launch.args(["40", "20", "in parts"]).run().silent_success();
    }
}

/// In the hardened mode every `realloc` moves.
#[test]
fn pages_that_nobody_touched_stay_so_when_the_hardened_mode_moves_a_block() {
    let pool = Pool::new();
    let program = compile_with_headers(pool.files(), "tests/csrc/moves.c", "moves", &["-O1"]);
    let output = pool.program(&program).args(["300", "2"]).env("POOLSCOPE_HARDENED", "1").run().silent_success();
    let (_, peak) = output.stdout.split_once("peak ").expect("the program says it");
    let kib: u64 = peak.split(' ').next().and_then(|number| number.parse().ok()).expect("a number");
    // The blocks have a gibibyte.
    assert!(kib < 150 << 10, "{}", output.stdout);
}
