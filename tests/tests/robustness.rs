//! Programs and readers that make it hard for each other: stacks without end, readers that stop, targets that die.

use std::time::{Duration, Instant};

use poolscope_e2e::pprof_rules::{self, Expected};
use poolscope_e2e::{Pool, Program, Running, compiler, poolscope, pprof, sample, skip};

/// A field of `/proc/PID/status` in kibibytes.
fn status_kib(pid: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).expect("has the field");
    line.split_whitespace().next().and_then(|number| number.parse().ok()).expect("is a number")
}

fn server(pool: &Pool, args: &[&str]) -> (Running, String) {
    let mut server = pool.poolscope().arg("serve").args(args).args(["--listen", "127.0.0.1:0"]).start();
    let line = server.wait_for_line("serving on http://");
    (server, line.trim_start_matches("serving on ").trim_end_matches('/').to_owned())
}

fn get(url: &str) -> String {
    Program::new("curl").args(["-sS", "--fail", url]).run().silent_success().stdout
}

#[test]
fn a_million_stacks_fill_the_table_and_not_the_reader() {
    let pool = Pool::new();
    let program =
        compiler::compile_with_headers(pool.files(), "tests/csrc/many_stacks.c", "many_stacks", &["-g", "-O1"]);
    let environment = [("POOLSCOPE_PERIOD", "64"), ("POOLSCOPE_SAMPLE_RATE", "0")];
    let mut running = environment.iter().fold(pool.program(&program).arg("20"), |p, (k, v)| p.env(k, v)).start();
    running.wait_for_line("ready 1048576");
    let pid = running.pid().to_string();
    let (server, url) = server(&pool, &[&pid]);

    let metrics = get(&format!("{url}/metrics"));
    let dropped = metrics.lines().find(|line| line.contains("record=\"stack\"")).expect("stacks are counted");
    let dropped: f64 = dropped.rsplit(' ').next().and_then(|number| number.parse().ok()).expect("is a number");
    assert!(dropped > 100_000.0, "{dropped} samples had no room for their stack");
    let profile = pool.files().join("many.pb.gz");
    let heap = format!("{url}/debug/pprof/heap");
    Program::new("curl").args(["-sS", "--fail", "-o"]).arg(&profile).arg(&heap).run().silent_success();
    let peak = status_kib(server.pid(), "VmHWM");
    assert!(peak < 256 << 10, "the reader took {peak} KiB");

    let comments = pprof::pprof(pool.files(), &["-comments"], &profile).stdout;
    assert!(comments.contains("samples lost: figures are too low"), "{comments}");
    // What found no room is not lost: it is in use, and nobody knows from where.
    let top = pprof::pprof(pool.files(), &["-top", "-sample_index=inuse_objects"], &profile).stdout;
    assert!(top.contains("[unknown stack]"), "{top}");
}

/// A program that holds a block from each of `2^depth` call paths, every one recorded.
fn many_stacks(pool: &Pool, depth: u32) -> Running {
    let program =
        compiler::compile_with_headers(pool.files(), "tests/csrc/many_stacks.c", "many_stacks", &["-g", "-O1"]);
    let mut running = pool.program(&program).arg(depth.to_string()).env("POOLSCOPE_PERIOD", "1").start();
    running.wait_for_line(&format!("ready {}", 1 << depth));
    running
}

#[test]
fn a_profile_of_a_million_stacks_with_every_block_is_written_in_bounded_memory() {
    let pool = Pool::new();
    let running = many_stacks(&pool, 20);
    let code = "import resource, subprocess, sys\nsubprocess.run(sys.argv[1:], check=True)\n\
                print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n";
    let pid = running.pid().to_string();
    let dump =
        Program::new("/usr/bin/python3").args(["-c", code]).arg(poolscope()).args(["dump", &pid, "-o", "many.pb.gz"]);
    let dump = dump.env("POOLSCOPE_DIR", pool.segment_dir()).dir(pool.files().path()).limit(300).run().success();
    let peak: u64 = dump.stdout.trim().parse().expect("KiB");
    assert!(peak < 256 << 10, "the reader took {peak} KiB");
}

#[test]
fn a_profile_that_is_written_in_parts_has_every_stack_once() {
    let pool = Pool::new();
    let running = many_stacks(&pool, 15);
    let profile = pool.files().join("many.pb.gz");
    pool.poolscope().args(["dump", &running.pid().to_string(), "-o"]).arg(&profile).run().silent_success();
    pprof_rules::check(&profile, &Expected { main: "many_stacks", shown: "inuse_space", delta: false });
    for sample_index in ["inuse_objects", "alloc_objects"] {
        let args = ["-peek", "^main$", "-nodefraction=0", "-unit=count", &format!("-sample_index={sample_index}")];
        let peek = pprof::pprof(pool.files(), &args, &profile).stdout;
        // The line of main itself has its figures, those above and below it are its callers and callees.
        let line = peek.lines().find(|line| line.ends_with("| main") && line.matches('%').count() > 1);
        let in_main: Option<f64> =
            line.and_then(|line| line.split_whitespace().nth(3)?.trim_end_matches("count").parse().ok());
        let blocks = in_main.unwrap_or_else(|| panic!("no figure of main: {peek}"));
        // Its list of them and what the C library keeps for its streams come on top; a part twice would be thousands.
        assert!((32768.0..=32780.0).contains(&blocks), "{blocks}: {peek}");
    }
}

#[test]
fn a_reader_that_stops_holds_nobody_up_and_goes_on() {
    let pool = Pool::new();
    let args = ["--clients", "2", "--rate", "0", "--seconds", "100"];
    let mut program = pool.program(sample("kv-server")).args(args).env("POOLSCOPE_PERIOD", "64K").start();
    program.wait_for_line("kv-server: pid");
    let pid = program.pid();
    let (server, url) = server(&pool, &[&pid.to_string()]);
    get(&format!("{url}/metrics"));
    // In the middle of an answer, most likely.
    let asked = std::thread::spawn({
        let url = format!("{url}/debug/pprof/heap?seconds=1");
        move || Program::new("curl").args(["-sS", "--fail", "-o", "/dev/null", &url]).run().silent_success()
    });
    std::thread::sleep(Duration::from_millis(300));
    server.signal(libc::SIGSTOP);
    let samples = |pool: &Pool| pool.segment(pid).expect("it runs").samples();
    let before = samples(&pool);
    std::thread::sleep(Duration::from_secs(2));
    let stopped = samples(&pool) - before;
    assert!(stopped > 100, "the program went on: {stopped} samples");
    server.signal(libc::SIGCONT);
    asked.join().expect("is answered");
    assert!(get(&format!("{url}/metrics")).contains("poolscope_process_running"));
}

#[test]
fn two_readers_at_once_see_the_same() {
    let pool = Pool::new();
    let program =
        compiler::compile_with_headers(pool.files(), "tests/csrc/many_stacks.c", "many_stacks", &["-g", "-O1"]);
    let mut running = pool.program(&program).arg("10").env("POOLSCOPE_PERIOD", "1").start();
    running.wait_for_line("ready 1024");
    let pid = running.pid().to_string();
    let servers = [server(&pool, &[&pid]), server(&pool, &[&pid])];
    let tops = std::thread::scope(|scope| {
        let asked = servers.each_ref().map(|(_, url)| {
            let pool = &pool;
            scope.spawn(move || {
                let mut tops = Vec::new();
                for round in 0..3 {
                    let profile =
                        pool.files().join(format!("{}-{round}.pb.gz", url.rsplit(':').next().expect("a port")));
                    let heap = format!("{url}/debug/pprof/heap");
                    Program::new("curl").args(["-sS", "--fail", "-o"]).arg(&profile).arg(heap).run().silent_success();
                    let top = pprof::pprof(pool.files(), &["-top", "-unit=B"], &profile).stdout;
                    // The first lines have the time.
                    tops.push(
                        top.lines().skip_while(|line| !line.starts_with("Showing")).collect::<Vec<_>>().join("\n"),
                    );
                }
                tops
            })
        });
        asked.map(|thread| thread.join().expect("ends"))
    });
    assert!(tops[0][0].contains("65536B"), "1,024 blocks of 64 bytes: {}", tops[0][0]);
    assert!(tops.iter().flatten().all(|top| *top == tops[0][0]), "{tops:#?}");
}

#[test]
fn a_target_that_dies_while_it_is_attached_to_is_an_answer_and_no_end() {
    let pool = Pool::new();
    let args = ["--clients", "2", "--rate", "0", "--seconds", "100"];
    for round in 0..12u64 {
        let program = pool.program(sample("kv-server")).args(args).env("POOLSCOPE_PERIOD", "16K").start();
        let pid = program.pid().to_string();
        let dumps: Vec<Running> = (0..2)
            .map(|number| {
                let output = pool.files().join(format!("{round}-{number}.pb.gz"));
                pool.poolscope().args(["dump", &pid, "-o"]).arg(output).start()
            })
            .collect();
        std::thread::sleep(Duration::from_millis(round * round));
        program.signal(libc::SIGKILL);
        let begun = Instant::now();
        program.finish();
        for dump in dumps {
            let output = dump.finish();
            let said = &output.stderr;
            assert!(!said.contains("panicked"), "{}", output.report());
            assert!(
                output.code() == 0 || (output.code() == 2 && said.starts_with("poolscope: ")),
                "{}",
                output.report()
            );
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "round {round}");
    }
}

/// A real-time thread that only yields leaves its processor to nobody of a lower priority, who may have a lock.
#[test]
fn a_real_time_thread_gets_its_blocks_beside_an_ordinary_one_on_its_processor() {
    let pool = Pool::new();
    let flags = ["-O1", "-fno-builtin", "-pthread"];
    let program = compiler::compile_with_headers(pool.files(), "tests/csrc/real_time.c", "real_time", &flags);
    for period in ["512K", "1"] {
        let run = pool.program(&program).arg("4").env("POOLSCOPE_PERIOD", period).run().success();
        if run.stdout.trim() == "no real-time thread" {
            return skip("real-time threads: this user may not make one");
        }
        let allocated = run.stdout.trim().strip_prefix("allocated ").and_then(|count| count.parse::<u32>().ok());
        assert!(allocated.is_some_and(|count| count > 50), "{}", run.report());
    }
}
