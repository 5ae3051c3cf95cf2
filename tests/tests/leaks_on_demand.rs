//! `poolscope leaks PID` has a running program look for what it can't reach, and the program goes on.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use poolscope_e2e::{Output, Pool, Program, Running, compiler, pprof};
use serde_json::Value;

fn program(pool: &Pool) -> PathBuf {
    compiler::compile_with_headers(
        pool.files(),
        "tests/csrc/asked.c",
        "asked",
        &["-O1", "-g", "-fno-builtin", "-pthread"],
    )
}

/// The program, which is ready.
fn start(pool: &Pool, arguments: &[&str]) -> Running {
    let mut running = pool.program(program(pool)).args(arguments).env("POOLSCOPE_PERIOD", "1").start();
    running.wait_for_line("ready");
    running
}

fn ask(pool: &Pool, running: &Running, options: &[&str]) -> Output {
    pool.poolscope().arg("leaks").args(options).arg(running.pid().to_string()).run()
}

/// Blocks of 1,337 bytes that are leaked, and what was checked.
fn found(output: &Output) -> (u64, Value) {
    let report: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", output.report()));
    let leaks = report["leaks"].as_array().expect("leaks").iter();
    let sizes = leaks.flat_map(|leak| leak["sizes"].as_array().expect("sizes").clone());
    let ours = sizes.filter(|size| size["bytes"] == 1337).map(|size| size["objects"].as_u64().expect("a number"));
    (ours.sum(), report["checked"].clone())
}

#[test]
fn a_running_program_says_what_it_can_not_reach_any_number_of_times_and_goes_on() {
    let pool = Pool::new();
    let mut running = start(&pool, &[]);
    for options in [&["--json"][..], &["--json", "--snapshot"]] {
        let before = found(&ask(&pool, &running, options)).0;
        running.tell("lose 3");
        running.tell("hold 5");
        let output = ask(&pool, &running, options);
        let (leaked, checked) = found(&output);
        assert_eq!((output.code(), leaked), (23, before + 3), "{}", output.report());
        assert_eq!((checked["threads"].as_u64(), checked["stopped"].as_u64()), (Some(1), Some(1)), "{checked}");
        // Asked again at once it says the same. What it has let go since is leaked, too.
        assert_eq!(found(&ask(&pool, &running, options)).0, before + 3);
        running.tell("drop");
        assert_eq!(found(&ask(&pool, &running, options)).0, before + 8);
    }
    let text = ask(&pool, &running, &[]).stdout;
    assert!(text.contains("asked.c:") && text.contains(" 1 of 1 threads stopped"), "{text}");
    running.end_input();
    assert_eq!(running.finish().code(), 0);
}

#[test]
fn a_report_of_a_running_program_has_as_much_as_is_asked_for() {
    let pool = Pool::new();
    let many = compiler::compile_with_headers(
        pool.files(),
        "tests/csrc/loses_many.c",
        "loses_many",
        &["-O1", "-g", "-fno-builtin"],
    );
    let mut running = pool.program(many).arg("wait").env("POOLSCOPE_PERIOD", "1").start();
    running.wait_for_line("ready");
    for (options, leaks, frames) in [
        (&[][..], 120, 41..=41),
        (&["--max-leaks", "0"], 120, 41..=41),
        (&["--max-leaks", "3", "--max-frames", "10"], 3, 11..=11),
        (&["--max-leaks", "1", "--max-frames", "0"], 1, 121..=126),
    ] {
        let output = ask(&pool, &running, options);
        assert_eq!(output.code(), 23, "{}", output.report());
        let text = &output.stdout;
        assert_eq!(text.lines().filter(|line| line.starts_with("leak ")).count(), leaks, "{options:?}: {text}");
        let first = text.lines().skip(2).take_while(|line| !line.is_empty()).count();
        assert!(frames.contains(&first), "{options:?}: {text}");
        assert_eq!(text.contains(": 0 prints whole stacks."), first < 120, "{options:?}: {text}");
        assert!(text.contains("7,260 B in 120 blocks leaked, from 120 stacks."), "{options:?}: {text}");
    }
    for (most, expected) in [("0", 120), ("3", 3)] {
        let output = ask(&pool, &running, &["--json", "--max-leaks", most]);
        let report: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", output.report()));
        assert_eq!(report["leaks"].as_array().map(Vec::len), Some(expected), "{}", output.report());
    }
    running.end_input();
    assert_eq!(running.finish().code(), 0);
}

#[test]
fn a_program_that_lost_nothing_is_clean() {
    let pool = Pool::new();
    let mut running = start(&pool, &[]);
    running.tell("hold 100");
    for options in [&[][..], &["--snapshot"]] {
        let output = ask(&pool, &running, options);
        assert_eq!(output.code(), 0, "{}", output.report());
        assert!(output.stdout.starts_with("No leaks.\n"), "{}", output.report());
    }
}

#[test]
fn what_the_kernel_keeps_is_named_as_what_holds_a_block() {
    let pool = Pool::new();
    let program = pool.files().join("leaks_kernel");
    compiler::compile_into(&program, Path::new("tests/csrc/leaks_kernel.c"), &["-O1", "-g", "-fno-builtin"], &[]);
    for (scenario, holder) in [
        ("epoll_data", "1,337 B in 1 block held by epoll of descriptor "),
        ("timer_value", "1,337 B in 1 block held by timer 0"),
    ] {
        let mut running = pool.program(&program).args([scenario, "30"]).env("POOLSCOPE_PERIOD", "1").start();
        running.wait_for_line("ready");
        for options in [&["--why", "*leaks_kernel.c"][..], &["--why", "*leaks_kernel.c", "--snapshot"]] {
            let output = ask(&pool, &running, options);
            assert!(output.stdout.contains(holder), "{scenario}: {}", output.report());
        }
    }
}

#[test]
fn a_thousand_threads_stop_and_go_on() {
    let pool = Pool::new();
    let mut running = start(&pool, &["threads", "1000"]);
    running.tell("lose 2");
    let output = ask(&pool, &running, &["--json"]);
    let (leaked, checked) = found(&output);
    assert_eq!((output.code(), leaked), (23, 2), "{}", output.report());
    assert_eq!((checked["threads"].as_u64(), checked["stopped"].as_u64()), (Some(1001), Some(1001)), "{checked}");
    running.end_input();
    assert_eq!(running.finish().code(), 0);
}

#[test]
fn threads_on_alternate_stacks_are_stopped_also_where_a_signal_has_no_room_there() {
    for kind in ["alternate_stack", "tiny_stack"] {
        let pool = Pool::new();
        let mut running = start(&pool, &[kind]);
        let output = ask(&pool, &running, &[]);
        assert_eq!(output.code(), 0, "{kind}: {}", output.report());
        assert!(output.stdout.contains(" 2 of 2 threads stopped"), "{kind}: {}", output.report());
        running.tell("hold 1");
        running.end_input();
        assert_eq!(running.finish().code(), 0, "{kind}");
    }
}

/// Programs that can't be looked at: what kind, and a part of the reason.
const REFUSALS: &[(&str, &str)] = &[
    ("blocked", "1 thread could not be stopped, thread "),
    ("handlers", "there is no signal to stop them with"),
    ("confined", "has a filter of system calls (seccomp) that the program began without"),
];

#[test]
fn a_program_that_can_not_be_looked_at_gives_the_reason_and_goes_on() {
    for (kind, why) in REFUSALS {
        let pool = Pool::new();
        let mut running = start(&pool, &[kind]);
        let output = ask(&pool, &running, &[]);
        assert_eq!(output.code(), 24, "{kind}: {}", output.report());
        assert!(output.stderr.contains(why), "{kind}: {}", output.report());
        running.tell("hold 1");
        running.end_input();
        assert_eq!(running.finish().code(), 0, "{kind}");
    }
}

#[test]
fn a_thread_that_waits_in_the_kernel_for_a_while_is_stopped_when_it_runs_again() {
    let pool = Pool::new();
    let program = unstoppable(&pool);
    let output = pool.poolscope().args(["check", "--"]).arg(&program).args(["vfork", "6"]).limit(60).run();
    assert_eq!(output.code(), 0, "{}", output.report());
    assert!(output.stderr.contains(" 2 of 2 threads stopped"), "{}", output.report());
}

#[test]
fn a_queue_of_signals_that_is_full_for_good_is_not_waited_for() {
    let pool = Pool::new();
    let program = unstoppable(&pool);
    let output = pool.poolscope().args(["check", "--"]).arg(&program).args(["queue", "3"]).limit(60).run();
    assert_eq!(output.code(), 24, "{}", output.report());
    assert!(output.stderr.contains("3 threads could not be stopped, thread "), "{}", output.report());
}

fn unstoppable(pool: &Pool) -> PathBuf {
    let flags = ["-O1", "-g", "-fno-builtin", "-pthread"];
    compiler::compile_with_headers(pool.files(), "tests/csrc/unstoppable.c", "unstoppable", &flags)
}

#[test]
fn a_program_that_does_not_answer_is_not_waited_for_for_ever() {
    let pool = Pool::new();
    let running = start(&pool, &[]);
    running.signal(libc::SIGSTOP);
    let begun = Instant::now();
    let output = ask(&pool, &running, &["--timeout", "1"]);
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(output.code(), 24, "{}", output.report());
    assert!(output.stderr.contains("it has not answered for 1 s: it is stopped (kill -CONT "), "{}", output.report());
    running.signal(libc::SIGCONT);
    assert_eq!(ask(&pool, &running, &[]).code(), 0);
}

#[test]
fn several_who_ask_at_the_same_time_are_all_answered() {
    let pool = Pool::new();
    let mut running = start(&pool, &[]);
    running.tell("lose 3");
    let pid = running.pid().to_string();
    let begun = Instant::now();
    let askers: Vec<Running> =
        (0..6).map(|_| pool.poolscope().args(["leaks", "--json", "--timeout", "20", pid.as_str()]).start()).collect();
    for asker in askers {
        let output = asker.finish();
        assert_eq!((output.code(), found(&output).0), (23, 3), "{}", output.report());
    }
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    running.end_input();
    assert_eq!(running.finish().code(), 0);
}

#[test]
fn a_program_that_is_sampled_is_not_guessed_at() {
    let pool = Pool::new();
    let mut running = pool.program(program(&pool)).start();
    running.wait_for_line("ready");
    let output = ask(&pool, &running, &[]);
    assert_eq!(output.code(), 24, "{}", output.report());
    assert!(output.stderr.contains("not every allocation is recorded"), "{}", output.report());
    assert!(output.stderr.contains("--growth"), "{}", output.report());
}

#[test]
fn what_holds_a_block_is_told_from_the_variable_on() {
    let pool = Pool::new();
    let mut running = start(&pool, &[]);
    running.tell("chain");
    running.tell("hold 3");
    let output = ask(&pool, &running, &["--why", "make_value"]).success();
    let line = output.stdout.lines().nth(1).expect("a chain").trim();
    let line = line.replace(|c: char| c.is_ascii_digit(), "1");
    assert_eq!(
        line,
        "static chain (asked) -> 11 B from make_node (asked.c:11) + 1x11 -> this (1,111 B from make_value (asked.c:11))",
        "{}",
        output.report()
    );
    let output = ask(&pool, &running, &["--why", "asked.c"]).success();
    assert!(output.stdout.contains("4,011 B in 3 blocks held by static held (asked)\n"), "{}", output.report());
    let nothing = ask(&pool, &running, &["--why", "no_such_function"]);
    assert_eq!(nothing.code(), 2, "{}", nothing.report());
    assert!(nothing.stderr.contains("has no block from a call site like \"no_such_function\""), "{}", nothing.report());
}

#[test]
fn pointers_with_a_tag_are_known_where_their_bits_are_named() {
    let pool = Pool::new();
    let mut running = start(&pool, &[]);
    running.tell("tag");
    assert_eq!(found(&ask(&pool, &running, &["--json"])).0, 1);
    assert_eq!(found(&ask(&pool, &running, &["--json", "--tag-mask", "0xff00000000000000"])).0, 0);
}

#[test]
fn a_server_gives_the_leaks_of_a_program_as_pprof() {
    let pool = Pool::new();
    let mut running = start(&pool, &[]);
    running.tell("lose 3");
    running.tell("hold 7");
    let mut server = pool.poolscope().args(["serve", "--listen", "127.0.0.1:0", &running.pid().to_string()]).start();
    let url = server.wait_until("an address", |server| {
        let text = server.stdout() + &server.stderr();
        let at = text.find("http://")?;
        Some(text[at..].split_whitespace().next()?.trim_end_matches('/').to_owned())
    });
    let profile = pool.files().join("leak.pb.gz");
    let file = profile.to_str().expect("a path");
    Program::new("curl").args(["-sf", "-o", file, &format!("{url}/debug/pprof/leak")]).run().success();
    let rows = pprof::top(pool.files(), &profile);
    let lost = rows.iter().find(|row| row.function == "lose").expect("the function that loses blocks");
    assert_eq!(lost.flat, 3 * 1337, "{rows:?}");
    assert!(!rows.iter().any(|row| row.function == "make_value"), "{rows:?}");
}
