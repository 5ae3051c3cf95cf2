//! Our own C++ programs that do many hard things at once.

use poolscope_e2e::compiler::{compile, compile_library};
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
