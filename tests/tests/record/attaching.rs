//! Recorders of processes that run already: they come and go, are killed, and go on with a file.

use poolscope_e2e::pprof_rules::{self, Expected};
use poolscope_e2e::{Pool, Program};
use serde_json::Value;

use crate::harness::{
    FILE, assert_as_said, assert_nothing_lost, attach, attach_to_file, by_function, leave_to, number, record, report,
    steps, take_step, traced, wait_until_read,
};

#[test]
fn recording_is_turned_on_and_off_in_a_process_that_runs() {
    let pool = Pool::new();
    let (mut target, mut step) = (steps(&pool), 0);
    let started = (0..3).map(|_| {
        let first = step;
        let recorder = attach(&pool, &mut target, &["--lossless"], &mut step);
        for _ in 0..5 {
            take_step(&mut target, &mut step);
        }
        recorder.signal(libc::SIGINT);
        let output = recorder.finish();
        assert_eq!(output.code(), 0, "{}", output.report());
        assert!(output.stderr.contains("stopped by a signal"), "{}", output.report());
        let report = report(&pool, &[]);
        assert_nothing_lost(&report);
        let [allocs, _, frees] = by_function(&report)["step"];
        let most = u64::from(step - first) * 1000;
        assert!((5000..=most).contains(&allocs) && frees <= allocs, "{allocs} allocations, {frees} frees, {most}");
        assert!(
            report["cautions"]
                .as_array()
                .unwrap()
                .iter()
                .any(|text| { text.as_str().unwrap().contains("before the recording began") })
        );
        allocs
    });
    assert_eq!(started.count(), 3);
    take_step(&mut target, &mut step);
    target.send("end\n");
    assert_eq!(target.finish().code(), 0);
    assert_eq!(std::fs::read_dir(pool.segment_dir()).unwrap().count(), 1, "only the segment is left");
}

#[test]
fn a_recorder_that_is_killed_leaves_a_file_that_can_be_read_and_a_program_that_goes_on() {
    let pool = Pool::new();
    let (mut target, mut step) = (steps(&pool), 0);
    let recorder = attach(&pool, &mut target, &["--lossless", "--ring", "64K"], &mut step);
    let begun = std::time::Instant::now();
    while begun.elapsed() < std::time::Duration::from_millis(1500) {
        take_step(&mut target, &mut step);
    }
    // Kills it.
    drop(recorder);
    // The ring is full after a few steps, and nobody empties it: the program finds out.
    for _ in 0..50 {
        take_step(&mut target, &mut step);
    }
    let report = report(&pool, &[]);
    assert_eq!(report["finished"].as_bool(), Some(false));
    assert!(by_function(&report)["step"][0] >= 1000, "what was written is there");
    let text = pool.poolscope().args(["report", FILE]).run();
    assert!(text.stdout.contains("the recording was not finished"), "{}", text.report());
    // It can be recorded again.
    let recorder = attach(&pool, &mut target, &[], &mut step);
    recorder.signal(libc::SIGTERM);
    assert_eq!(recorder.finish().code(), 0);
    target.send("end\n");
    assert_eq!(target.finish().code(), 0);
}

#[test]
fn another_run_is_appended_and_every_command_reads_both() {
    let pool = Pool::new();
    let traced = traced(&pool);
    let calls = [traced.to_str().unwrap(), "calls"];
    // As in a loop: the first one finds no file.
    let output = record(&pool, &["--lossless", "--append"], &calls);
    assert_eq!(output.code(), 0, "{}", output.report());
    let one = report(&pool, &[]);
    std::fs::copy(pool.files().join(FILE), pool.files().join("one.rec")).unwrap();
    let output = record(&pool, &["--lossless", "--append"], &calls);
    assert_eq!(output.code(), 0, "{}", output.report());
    let output = record(&pool, &["--lossless", "--append"], &["env", "A=1", calls[0], "fork"]);
    assert_eq!(output.code(), 0, "{}", output.report());
    assert!(output.stderr.contains("the recording begins anew"), "{}", output.report());

    let all = report(&pool, &[]);
    assert_nothing_lost(&all);
    let parts = all["parts"].as_array().expect("parts");
    let figures: Vec<[u64; 3]> =
        parts.iter().map(|part| ["from_us", "to_us", "pid"].map(|key| number(part, &[key]))).collect();
    assert!(
        figures.len() == 3 && figures.windows(2).all(|pair| pair[0][1] <= pair[1][0] && pair[0][2] != pair[1][2]),
        "{figures:?}"
    );
    let said = |of: &Value| by_function(of)["with_calloc"];
    assert_eq!(said(&all), said(&one).map(|figure| 2 * figure));
    let sites = |of: &Value| {
        of["sites"]
            .as_array()
            .expect("sites")
            .iter()
            .filter(|site| site["frames"][0]["function"] == "with_realloc")
            .count()
    };
    assert_eq!(sites(&all), sites(&one), "the same call path is one site, wherever the program was loaded");
    assert_eq!(number(&all, &["in_use", "objects"]), number(&parts[2], &["in_use", "objects"]));
    let first = report(&pool, &["--to", &(figures[0][1] as f64 / 1e6).to_string()]);
    assert_eq!((first["parts"].as_array().map(Vec::len), number(&first, &["pid"])), (Some(1), figures[0][2]));

    let run = |args: &[&str]| {
        let output = pool.poolscope().args(args).run();
        assert_eq!(output.code(), 0, "{}", output.report());
        output.stdout
    };
    run(&["dump", FILE, "--allocs", "-o", "all.pb.gz"]);
    pprof_rules::check(
        &pool.files().join("all.pb.gz"),
        &Expected { main: "traced", shown: "alloc_space", delta: false },
    );
    run(&["flamegraph", FILE, "--metric", "alloc_space", "-o", "all.svg"]);
    assert!(std::fs::read_to_string(pool.files().join("all.svg")).unwrap().contains("with_large"));
    let changes: Value =
        serde_json::from_str(&run(&["diff", "one.rec", FILE, "--metric", "alloc_objects", "--json"])).unwrap();
    let changed = serde_json::to_string(&changes).unwrap();
    assert!(changed.contains("with_calloc") && !changed.contains("[traced+"), "{changed}");
    let text = run(&["report", FILE]);
    assert!(text.contains("in 3 parts") && text.contains("at its end"), "{text}");
    run(&["report", FILE, "--html", "page.html"]);
    assert!(std::fs::read_to_string(pool.files().join("page.html")).unwrap().contains("<h2>Parts</h2>"));
}

#[test]
fn a_process_is_recorded_on_after_its_recorder_was_killed_in_the_middle_of_a_block() {
    let pool = Pool::new();
    let (mut target, mut step) = (steps(&pool), 0);
    let mut recorder = attach(&pool, &mut target, &["--lossless"], &mut step);
    let file = pool.files().join(FILE);
    let len = || std::fs::metadata(&file).unwrap().len();
    for what in ["a block was written", "another was written"] {
        let before = len();
        recorder.wait_until(what, |_| {
            take_step(&mut target, &mut step);
            (len() > before + 2048).then_some(())
        });
    }
    // Kills it.
    drop(recorder);
    let whole = len();
    std::fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(whole - 7).unwrap();
    let first = report(&pool, &[]);
    assert_eq!(first["finished"].as_bool(), Some(false));

    let from = step;
    let recorder = attach_to_file(&pool, &mut target, &["--lossless", "--append"], &mut step);
    for _ in 0..5 {
        take_step(&mut target, &mut step);
    }
    recorder.signal(libc::SIGINT);
    let output = recorder.finish();
    assert_eq!(output.code(), 0, "{}", output.report());
    assert!(output.stderr.contains("of a block that is not whole were cut off"), "{}", output.report());
    let both = report(&pool, &[]);
    assert_nothing_lost(&both);
    let parts = both["parts"].as_array().expect("parts");
    assert_eq!(
        (parts.len(), parts[0]["pid"].as_u64(), parts[1]["pid"].as_u64()),
        (2, first["pid"].as_u64(), first["pid"].as_u64())
    );
    assert_eq!(number(&parts[0], &["allocated", "objects"]), number(&first, &["allocated", "objects"]));
    let appended = number(&parts[1], &["allocated", "objects"]);
    assert!((5000..=u64::from(step - from) * 1000 + 100).contains(&appended), "{appended}");
    assert_eq!(by_function(&both)["step"][0], by_function(&first)["step"][0] + appended);
    let cautions = both["cautions"].to_string();
    assert!(cautions.contains("the recording of part 1 was not finished"), "{cautions}");
    target.send("end\n");
    assert_eq!(target.finish().code(), 0);
}

/// How often a process is woken, in the next three seconds.
fn wakes_a_second(pid: u32) -> f64 {
    let switches = || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let statuses = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).unwrap());
        let of = |status: &str| -> u64 {
            let lines = status.lines().filter(|line| line.contains("ctxt_switches:"));
            lines.map(|line| line.rsplit('\t').next().unwrap().parse::<u64>().unwrap()).sum()
        };
        statuses.map(|status| of(&status)).sum::<u64>()
    };
    let (begun, before) = (std::time::Instant::now(), switches());
    std::thread::sleep(std::time::Duration::from_secs(3));
    (switches() - before) as f64 / begun.elapsed().as_secs_f64()
}

#[test]
fn a_recorder_that_no_program_answers_sleeps_and_hears_the_answer() {
    let pool = Pool::new();
    let (mut target, mut step) = (steps(&pool), 0);
    take_step(&mut target, &mut step);
    let recorder = pool.poolscope().args(["record", "--lossless", "-o", FILE]).arg(target.pid().to_string()).start();
    std::thread::sleep(std::time::Duration::from_millis(500));
    let wakes = wakes_a_second(recorder.pid());
    assert!(wakes < 25.0, "{wakes} wake-ups a second");
    let from = step;
    for _ in 0..50 {
        take_step(&mut target, &mut step);
    }
    recorder.signal(libc::SIGINT);
    assert_eq!(recorder.finish().code(), 0);
    let report = report(&pool, &[]);
    assert_nothing_lost(&report);
    assert!(by_function(&report)["step"][0] >= u64::from(step - from) * 1000 / 2);
}

#[test]
fn the_recorder_of_an_idle_program_sleeps_and_hears_it_when_it_goes_on() {
    let pool = Pool::new();
    let (mut target, mut step) = (steps(&pool), 0);
    let recorder = attach(&pool, &mut target, &["--lossless"], &mut step);
    // What it has to do at the start is over.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let wakes = wakes_a_second(recorder.pid());
    assert!(wakes < 25.0, "{wakes} wake-ups a second");
    let from = step;
    for _ in 0..50 {
        take_step(&mut target, &mut step);
    }
    recorder.signal(libc::SIGINT);
    assert_eq!(recorder.finish().code(), 0);
    let report = report(&pool, &[]);
    assert_nothing_lost(&report);
    assert!(by_function(&report)["step"][0] >= u64::from(step - from) * 1000);
}

#[test]
fn a_second_recorder_is_refused_and_the_first_one_goes_on() {
    let pool = Pool::new();
    let (mut target, mut step) = (steps(&pool), 0);
    let first = attach(&pool, &mut target, &[], &mut step);
    let second = pool.poolscope().args(["record", &target.pid().to_string(), "-o", "second.rec"]).run();
    assert!(second.code() == 2 && second.stderr.contains("being recorded already"), "{}", second.report());
    take_step(&mut target, &mut step);
    first.signal(libc::SIGINT);
    assert_eq!(first.finish().code(), 0);
    assert_nothing_lost(&report(&pool, &[]));
}

#[test]
fn a_recorder_that_sleeps_costs_events_which_are_counted() {
    let pool = Pool::new();
    let (mut target, mut step) = (steps(&pool), 0);
    let mut recorder = attach(&pool, &mut target, &["--ring", "64K"], &mut step);
    // A recorder that is short of time loses some, too: it gets the time it needs while it does not sleep.
    let before = wait_until_read(&pool, &mut recorder);
    recorder.signal(libc::SIGSTOP);
    let first = step;
    // Longer than the program waits before it asks whether the recorder lives.
    let begun = std::time::Instant::now();
    while begun.elapsed() < std::time::Duration::from_millis(2500) {
        take_step(&mut target, &mut step);
    }
    let slept = u64::from(step - first) * 1000;
    recorder.signal(libc::SIGCONT);
    for _ in 0..20 {
        wait_until_read(&pool, &mut recorder);
        take_step(&mut target, &mut step);
    }
    recorder.signal(libc::SIGINT);
    let output = recorder.finish();
    assert_eq!(output.code(), 0, "{}", output.report());
    let report = report(&pool, &[]);
    let lost = &report["lost"]["threads"][0];
    let (allocs, frees) = (number(lost, &["allocs"]) - before, number(lost, &["frees"]));
    assert!(allocs > slept / 4 && frees > slept / 4 && allocs <= slept, "{lost}, {slept} while it slept");
    assert!(report["cautions"][0].as_str().unwrap().contains("figures are too low"), "{}", report["cautions"]);
    // What came afterwards is there.
    assert!(by_function(&report)["step"][0] > 10_000);
    assert!(output.stderr.contains("lost of thread"), "{}", output.report());
}

#[test]
fn a_program_that_is_killed_is_recorded_up_to_there() {
    let pool = Pool::new();
    let traced = traced(&pool);
    let mut recorder = pool.poolscope().args(["record", "-o", FILE, "--"]).arg(traced).arg("spin").start();
    recorder.wait_for_line("spinning");
    let pid = recorder.pid();
    let child: i32 = recorder.wait_until("the program is a child", |_| {
        std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?.trim().parse().ok()
    });
    std::thread::sleep(std::time::Duration::from_millis(300));
    // SAFETY: the child of the recorder, which has not waited for it.
    unsafe { libc::kill(child, libc::SIGKILL) };
    let output = recorder.finish();
    assert_eq!(output.code(), 128 + 9, "{}", output.report());
    assert!(pool.files().join(FILE).exists(), "{}", output.report());
    let report = report(&pool, &[]);
    assert_eq!(report["finished"].as_bool(), Some(true));
    assert!(by_function(&report)["step"][0] > 1000);
    let left: Vec<_> =
        std::fs::read_dir(pool.segment_dir()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().ends_with(".trace")), "{left:?}");
}

/// Numbers of processes come again, and segments of killed ones stay.
#[test]
fn a_segment_that_an_earlier_process_of_the_same_number_left_is_not_taken_for_the_commands() {
    let pool = Pool::new();
    let traced = traced(&pool);
    let dead = pool.program(&traced).arg("calls").start();
    let pid = dead.pid();
    dead.finish().success();
    let left = pool.segment(pid).expect("its segment stays");
    // The next few thousand numbers.
    for number in pid + 1..pid + 4000 {
        leave_to(&pool, &left, number);
    }
    let output = record(&pool, &["--lossless"], &[traced.to_str().unwrap(), "calls"]);
    assert_eq!(output.code(), 0, "{}", output.report());
    assert_as_said(&report(&pool, &[]), &output.stdout);
}

#[test]
fn a_process_without_the_pool_is_not_taken_for_an_earlier_one_of_its_number() {
    let pool = Pool::new();
    let dead = pool.program(traced(&pool)).arg("calls").start();
    let pid = dead.pid();
    dead.finish().success();
    let left = pool.segment(pid).expect("its segment stays");
    let sleeper = Program::new("sleep").arg("100").start();
    let path = leave_to(&pool, &left, sleeper.pid());
    let output = pool.poolscope().args(["record", &sleeper.pid().to_string()]).run();
    let says = format!("left {}: name that file to read it", path.display());
    assert!(
        output.code() == 2 && output.stderr.contains("does not run on the pool") && output.stderr.contains(&says),
        "{}",
        output.report()
    );
}

#[test]
fn a_forked_child_is_not_recorded_and_an_exec_begins_anew() {
    let pool = Pool::new();
    let traced = traced(&pool);
    let output = record(&pool, &["--lossless"], &[traced.to_str().unwrap(), "fork"]);
    assert_eq!(output.code(), 0, "{}", output.report());
    let parent = report(&pool, &[]);
    assert_nothing_lost(&parent);
    assert_as_said(&parent, &output.stdout);
    assert!(!by_function(&parent).contains_key("of_the_child"));

    let output = record(&pool, &["--lossless"], &["env", "A=1", traced.to_str().unwrap(), "calls"]);
    assert_eq!(output.code(), 0, "{}", output.report());
    let after = report(&pool, &[]);
    assert_nothing_lost(&after);
    assert!(after["exe"].as_str().unwrap().ends_with("traced"), "{}", after["exe"]);
    assert_as_said(&after, &output.stdout);
}

/// A script that starts the program which somebody means has hardly any allocations itself.
#[test]
fn who_records_a_launcher_hears_what_it_started() {
    let pool = Pool::new();
    let child = "import os, time; held = bytearray(b'a') * (64 << 20); print(os.getpid()); time.sleep(1)";
    let output = record(&pool, &[], &["sh", "-c", &format!("/usr/bin/python3 -c \"{child}\"; :")]);
    assert_eq!(output.code(), 0, "{}", output.report());
    let said = format!("python3 ({}), which it started, is not recorded and had ", output.stdout.trim());
    let line = output.stderr.lines().find_map(|line| line.split_once(&said)).expect(&output.stderr).1;
    let mib: f64 = line.split_once(" MiB of memory, more than itself").expect(line).0.parse().expect("a number");
    assert!((64.0..100.0).contains(&mib), "{mib} MiB");
    // One that starts smaller ones is meant itself.
    let child = "import subprocess; held = list(range(1000000)); subprocess.run(['sleep', '0.5'])";
    let output = record(&pool, &[], &["/usr/bin/python3", "-c", child]);
    assert!(output.code() == 0 && !output.stderr.contains("which it started"), "{}", output.report());
}

/// A shell that allocates, and becomes `sleep` once it is told to.
fn shell_that_becomes(pool: &Pool, what: &str) -> poolscope_e2e::Running {
    let script =
        format!("echo ready; while read -r -t 0.02 || [ $? -gt 128 ]; do x=$x$x{{1..99}}; x=; done; exec {what}");
    let mut shell = pool.program("bash").args(["-c", &script]).start();
    shell.wait_for_line("ready");
    shell
}

/// It has no reader from then on; the recording has what came before, and says why it ended.
#[test]
fn a_process_that_becomes_another_by_exec_ends_its_recording() {
    for what in ["env -u LD_PRELOAD sleep 1000", "sleep 1000"] {
        let pool = Pool::new();
        let mut shell = shell_that_becomes(&pool, what);
        let mut recorder = pool.poolscope().args(["record", &shell.pid().to_string(), "-o", FILE]).start();
        let file = pool.files().join(FILE);
        recorder.wait_until("events are in the file", |_| {
            std::fs::metadata(&file).is_ok_and(|file| file.len() > 0).then_some(())
        });
        shell.end_input();
        let output = recorder.finish();
        assert_eq!(output.code(), 0, "{}", output.report());
        assert!(output.stderr.contains("the program became another one by exec; "), "{}", output.report());
        let report = report(&pool, &[]);
        assert_eq!(report["ended"], "the program became another one by exec");
        assert!(number(&report, &["allocated", "objects"]) > 0);
        assert!(std::fs::exists(format!("/proc/{}/exe", shell.pid())).unwrap(), "it still runs");
        shell.signal(libc::SIGKILL);
        shell.finish();
    }
}

/// As scripts do that find out which program is meant. Each waits for the recorder, which has noticed nothing yet: it
/// took a second each time.
#[test]
fn a_command_that_becomes_another_a_dozen_times_is_hardly_held_up() {
    const TIMES: u32 = 12;
    let pool = Pool::new();
    let script =
        "x=$(for i in {1..20}; do echo $i; done); [ $1 -gt 0 ] || exec true; exec bash -c \"$0\" \"$0\" $(($1-1))";
    let begun = std::time::Instant::now();
    let output = record(&pool, &[], &["bash", "-c", script, script, &TIMES.to_string()]);
    let took = begun.elapsed();
    assert_eq!(output.code(), 0, "{}", output.report());
    let anew = output.stderr.matches("the recording begins anew").count() as u32;
    assert!(anew >= TIMES, "{anew}: {}", output.report());
    assert!(took < std::time::Duration::from_millis(500) * TIMES, "{took:?} for {TIMES} programs");
}
