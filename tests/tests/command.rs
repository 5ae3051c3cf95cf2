//! The `poolscope` command from end to end: run, list, top, dump and flamegraph on the sample server, and its errors.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use poolscope_e2e::{Output, Pool, Program, Running, artifacts, library, sample};
use poolscope_wire::own_code::OWN_CODE;
use serde_json::Value;

/// The sample server on the pool, leaking since a moment ago.
fn server(pool: &Pool) -> Running {
    let args = ["--clients", "4", "--rate", "0", "--seconds", "100"];
    let mut server = pool.program(sample("kv-server")).args(args).env("POOLSCOPE_PERIOD", "64K").start();
    server.wait_for_line("kv-server: pid");
    server.wait_until("it leaked some", |running| {
        let segment = pool.segment(running.pid())?;
        (segment.samples() > 2000).then_some(())
    });
    server
}

#[test]
fn every_view_of_a_leaking_server_names_the_leak() {
    let pool = Pool::new();
    let mut server = server(&pool);
    let pid = server.pid().to_string();
    let command = |args: &[&str]| pool.poolscope().args(args).run().success();

    assert!(command(&["list"]).stdout.contains(&pid));
    let list: Value = serde_json::from_str(&command(&["list", "--json"]).stdout).expect("list --json is JSON");
    assert!(list.to_string().contains("kv-server"), "{list:#}");

    // The function that leaks, not the standard library's that it called. The row of a call site has no room for its
    // whole name: it stands above the tabs once its growth is two standard errors from none.
    let frame = server.wait_until("the leak stood above the tabs", |_| {
        let frame = command(&["top", &pid, "--once"]);
        frame.stdout.contains("remember_watch").then_some(frame)
    });
    assert!(frame.stdout.contains("kv-server") && frame.stdout.contains(&pid), "{}", frame.report());
    assert!(frame.stdout.lines().count() >= 20, "a full frame: {}", frame.report());
    assert!(!frame.stdout.contains('\x1b'), "plain text: {:?}", frame.stdout);

    let model: Value = serde_json::from_str(&command(&["top", &pid, "--json"]).stdout).expect("top --json is JSON");
    assert!(model.to_string().contains("remember_watch"), "{model:#}");

    let svg = pool.files().join("heap.svg");
    command(&["flamegraph", &pid, "-o", svg.to_str().unwrap()]);
    let svg = std::fs::read_to_string(svg).unwrap();
    assert!(svg.contains("<svg") && svg.contains("remember_watch"));

    let profile = pool.files().join("heap.pb.gz");
    command(&["dump", &pid, "-o", profile.to_str().unwrap()]);
    let top = poolscope_e2e::pprof::pprof(pool.files(), &["-top", "-cum", "-sample_index=inuse_space"], &profile);
    assert!(top.stdout.contains("remember_watch"), "{}", top.report());

    server.signal(libc::SIGTERM);
    server.finish().success();
}

/// Killed, it leaves its last state; everything but `top` by pid reads it still.
#[test]
fn the_heap_of_a_killed_server_can_still_be_read() {
    let pool = Pool::new();
    let server = server(&pool);
    let segment = pool.segment(server.pid()).expect("it has a segment").path;
    server.signal(libc::SIGKILL);
    assert_eq!(server.finish().status.code(), None);

    let profile = pool.files().join("heap.pb.gz");
    pool.poolscope().arg("dump").arg(&segment).arg("-o").arg(&profile).run().success();
    let top = poolscope_e2e::pprof::pprof(pool.files(), &["-top", "-cum", "-sample_index=inuse_space"], &profile);
    assert!(top.stdout.contains("remember_watch"), "{}", top.report());
    let frame = pool.poolscope().arg("top").arg(&segment).arg("--once").run().success();
    assert!(frame.stdout.contains("kv-server"), "{}", frame.report());
}

/// By `#[global_allocator]`: no preload, the same tools.
#[test]
fn a_rust_program_puts_itself_on_the_pool() {
    let pool = Pool::new();
    let program = Program::new(sample("global-allocator")).env("POOLSCOPE_DIR", pool.segment_dir());
    let mut program = program.env("POOLSCOPE_PERIOD", "64K").start();
    program.wait_for_line("global-allocator: pid");
    let model = pool.poolscope().args(["top", &program.pid().to_string(), "--json"]).run().success().stdout;
    let model: Value = serde_json::from_str(&model).expect("top --json is JSON");
    let sites = model["sites"].as_array().expect("call sites");
    assert!(sites.iter().any(|site| site["frames"].to_string().contains("index_words")), "{model:#}");
    // The pool is linked in, and its own functions are in no stack.
    let frames = sites.iter().flat_map(|site| site["frames"].as_array().expect("frames"));
    let is_own = |frame: &Value| {
        let (function, file) = (frame["function"].as_str(), frame["file"].as_str());
        OWN_CODE.iter().any(|own| {
            function.is_some_and(|path| own.has_function(path)) || file.is_some_and(|file| own.has_source(file))
        })
    };
    assert_eq!(frames.filter(|frame| is_own(frame)).count(), 0, "{model:#}");
    program.finish().silent_success();
}

/// Two containers of a program that is not on the pool otherwise: the heap is theirs alone.
#[test]
fn single_containers_on_the_pool_are_all_that_is_seen() {
    let pool = Pool::new();
    let program = Program::new(sample("containers")).env("POOLSCOPE_DIR", pool.segment_dir());
    let mut program = program.env("POOLSCOPE_PERIOD", "1").start();
    program.wait_for_line("containers: pid");
    let pid = program.pid().to_string();
    let profile = pool.files().join("heap.pb.gz");
    pool.poolscope().args(["dump", &pid, "-o"]).arg(&profile).run().success();
    let raw = poolscope_e2e::pprof::Raw::read(pool.files(), &profile);
    let in_use = |function| raw.total_under(function, "inuse_space/bytes");
    // 4096 pages of 4096 bytes, and a table with room for them.
    let cache = in_use("fill_cache");
    assert!((16 << 20..17 << 20).contains(&cache), "{cache}");
    assert_eq!(in_use("main"), cache, "nothing but the cache lies in the pool");
    assert_eq!(in_use("rest_of_the_program"), 0);

    let frame = pool.poolscope().args(["top", &pid, "--once"]).run().success();
    assert!(frame.stdout.contains("fill_cache"), "{}", frame.report());
    program.finish().silent_success();
}

#[test]
fn run_headless_passes_output_input_and_exit_code_through() {
    let pool = Pool::new();
    let script = "read line; echo \"out $line\"; echo err >&2; exit 5";
    let run = pool.poolscope().args(["run", "--headless", "--", "bash", "-c", script]).input("hello\n").run();
    assert_eq!((run.code(), run.stdout.as_str(), run.stderr.as_str()), (5, "out hello\n", "err\n"));
}

#[test]
fn run_sets_the_period() {
    let pool = Pool::new();
    let show = "cat /proc/self/environ | tr '\\0' '\\n'";
    let run = pool.poolscope().args(["run", "--headless", "--period", "64K", "--", "sh", "-c", show]).run().success();
    assert!(run.stdout.contains("POOLSCOPE_PERIOD="), "{}", run.report());
    assert!(run.stdout.lines().any(|line| line.starts_with("LD_PRELOAD=") && line.contains("libpoolscope.so")));
}

/// Headless, poolscope becomes the program: a signal that ends it is seen by whoever waits.
#[test]
fn run_tells_how_the_program_was_killed() {
    let pool = Pool::new();
    let run = pool.poolscope().args(["run", "--headless", "--", "sh", "-c", "kill -9 $$"]).run();
    assert_eq!(run.status.signal(), Some(libc::SIGKILL), "{}", run.report());
}

#[test]
fn a_command_needs_no_dashes_before_it_and_keeps_its_own_options() {
    let pool = Pool::new();
    let run =
        pool.poolscope().args(["run", "--headless", "--period", "1M", "echo", "a", "--", "--period"]).run().success();
    assert_eq!(run.stdout, "a -- --period\n");
    let check = pool.poolscope().args(["check", "--json", "echo", "--json"]).run().success();
    assert!(check.stderr.contains("--json") && check.stdout.starts_with('{'), "{}", check.report());
    let typo = refused(&pool.poolscope().args(["check", "--jsn", "echo"]).run());
    assert!(typo.contains("--jsn"), "an option that is none is no command: {typo}");
}

/// Every command that takes a process takes it by the name of its program, too: also where the program's file lies in
/// the current folder.
#[test]
fn a_process_can_be_named_by_its_program() {
    let pool = Pool::new();
    let [first, second] = ["at-work", "at-work-too"].map(|name| {
        std::fs::copy(sample("kv-server"), pool.files().join(name)).unwrap();
        let mut program = pool.program(pool.files().join(name)).args(["--clients", "2", "--seconds", "100"]).start();
        program.wait_for_line("kv-server: pid");
        program
    });
    let pid = first.pid().to_string();
    let command = |args: &[&str]| pool.poolscope().args(args).run();
    for args in [
        &["stats", "at-work"][..],
        &["dump", "at-work", "-o", "heap.pb.gz"],
        &["dump", "at-work", "--format", "csv", "-o", "-"],
        &["flamegraph", "at-work", "-o", "-"],
        &["leaks", "at-work", "--growth"],
        &["report", "at-work"],
        &["top", "at-work", "--json"],
        &["record", "at-work", "--duration", "1"],
        &["diff", "at-work", &pid],
    ] {
        let output = command(args);
        assert_eq!(output.code(), 0, "{}", output.report());
    }
    let comments = poolscope_e2e::pprof::pprof(pool.files(), &["-comments"], &pool.files().join("heap.pb.gz")).stdout;
    assert!(comments.contains(&format!("(pid {pid},")), "it is the one of exactly this name: {comments}");

    // Of two that are called so, a person has to say which.
    let mut third = pool.program(pool.files().join("at-work")).args(["--clients", "1", "--seconds", "100"]).start();
    third.wait_until("it is on the pool", |program| pool.segment(program.pid()).map(drop));
    let which = refused(&command(&["stats", "at-work"]));
    assert!(which.contains(&pid) && which.contains(&third.pid().to_string()), "{which}");

    // One that has ended is said to have, and is not recorded.
    second.signal(libc::SIGKILL);
    let ended = second.pid().to_string();
    second.finish();
    let stats = command(&["stats", "at-work-too"]);
    assert!(
        stats.code() == 0 && stats.stderr.contains(&ended) && stats.stderr.contains("has ended"),
        "{}",
        stats.report()
    );
    let refusal = refused(&command(&["record", "at-work-too"]));
    assert!(refusal.contains("poolscope record -- at-work-too"), "{refusal}");
    let nobody = refused(&command(&["dump", "nobody-here", "-o", "heap.pb.gz"]));
    assert!(nobody.contains("neither a process id, nor the name of a program"), "{nobody}");
}

/// Exit code 2 and a message of its own for each; returns the message.
#[track_caller]
fn refused(output: &Output) -> String {
    assert_eq!(output.code(), 2, "{}", output.report());
    assert!(!output.stderr.trim().is_empty());
    output.stderr.clone()
}

/// Of a process that has ended there is nothing more to read, so that nothing would be measured.
#[test]
fn what_a_dashboard_costs_on_a_process_that_ends_meanwhile_is_an_error() {
    let pool = Pool::new();
    // On a busy machine the server may be gone before the first look.
    let measured = (0..5).map(|_| {
        let server = server(&pool);
        let pid = server.pid().to_string();
        let bench = pool.poolscope().args(["bench", "dashboard", &pid, "--seconds", "4"]).start();
        std::thread::sleep(Duration::from_secs(2));
        server.signal(libc::SIGKILL);
        server.finish();
        bench.finish()
    });
    let ended = measured.into_iter().find(|output| output.code() != 0).expect("it ended after the first look");
    assert!(refused(&ended).contains("it ended meanwhile"), "{}", ended.report());
}

#[test]
fn three_wrong_pids_get_three_different_errors() {
    let pool = Pool::new();
    // Ended and waited for: nobody has this pid now.
    let ended = Program::new("/bin/true").start();
    let gone = ended.pid().to_string();
    ended.finish();
    let off_the_pool = Program::new("sleep").arg("60").start();
    let off = off_the_pool.pid().to_string();

    for command in [&["top", "--once"][..], &["dump", "-o", "x.pb.gz"], &["flamegraph", "-o", "x.svg"]] {
        let of = |pid: &str| refused(&pool.poolscope().arg(command[0]).arg(pid).args(&command[1..]).run());
        let (missing, off) = (of(&gone), of(&off));
        assert!(missing.contains(&gone), "{missing}");
        assert_ne!(missing.replace(&gone, "PID"), off.replace(&off_the_pool.pid().to_string(), "PID"));
        assert!(off.contains("poolscope run") || off.contains("LD_PRELOAD"), "what to do instead: {off}");
    }
}

/// Process 1 is root's: for anybody else it is someone else's, for root it is not on the pool.
#[test]
fn memory_that_a_process_does_not_have_is_refused_and_nothing_is_written() {
    let pool = Pool::new();
    let server = server(&pool);
    let pid = server.pid().to_string();
    let output = pool.files().join("out");
    for memory in [&["--device", "0"][..], &["--device", "3"], &["--kind", "pinned"]] {
        for command in ["dump", "flamegraph", "leaks"] {
            let mut program = pool.poolscope().args([command, &pid]).args(memory);
            if command != "leaks" {
                program = program.arg("-o").arg(&output);
            }
            let message = refused(&program.run());
            assert!(message.contains("there is no block of"), "{command} {memory:?}: {message}");
            assert!(message.contains("what is known is host memory"), "{message}");
            assert!(!output.exists(), "{command} {memory:?} wrote a file");
        }
    }
}

#[test]
fn someone_elses_process_is_an_error_of_its_own() {
    let pool = Pool::new();
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        let message = refused(&pool.poolscope().args(["top", "1", "--once"]).run());
        assert!(message.contains("belongs to"), "{message}");
        return;
    }
    // As root, a process of the user `nobody`; and poolscope as the user `daemon`, who may not read it.
    let other = Program::new("setpriv").args(["--reuid=65534", "--clear-groups", "sleep", "60"]).start();
    let pid = other.pid().to_string();
    let binary = pool.files().join("poolscope");
    artifacts::copy(&artifacts::poolscope(), &binary);
    let mut running = other;
    running.wait_until("it was sleep", |running| {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", running.pid())).unwrap_or_default();
        (name == "sleep\n").then_some(())
    });
    let top = Program::new("setpriv").args(["--reuid=1", "--clear-groups"]).arg(&binary).args(["top", &pid, "--once"]);
    let message = refused(&top.run());
    assert!(message.contains("belongs to"), "{message}");
}

#[test]
fn a_missing_library_names_the_places_looked_in() {
    let pool = Pool::new();
    let alone = pool.files().join("poolscope");
    artifacts::copy(&artifacts::poolscope(), &alone);
    let output = Program::new(&alone).args(["run", "--headless", "--", "true"]).run();
    if output.status.success() {
        panic!("a libpoolscope.so is installed on this system: this test cannot show what happens without one");
    }
    let message = refused(&output);
    assert!(
        message.contains("libpoolscope.so") && message.contains(pool.files().path().to_str().unwrap()),
        "{message}"
    );

    let wrong =
        Program::new(&alone).args(["run", "--headless", "--", "true"]).env("POOLSCOPE_LIB", "/nowhere.so").run();
    assert!(refused(&wrong).contains("/nowhere.so"));
    let right = Program::new(&alone).args(["run", "--headless", "--", "true"]).env("POOLSCOPE_LIB", library()).run();
    assert_eq!(right.code(), 0, "{}", right.report());
}

#[test]
fn every_command_has_help_with_an_example() {
    let pool = Pool::new();
    for command in ["run", "list", "top", "dump", "flamegraph", "check"] {
        let help = pool.poolscope().args([command, "--help"]).run().success().stdout;
        assert!(help.contains(&format!("poolscope {command}")), "{help}");
        assert!(help.to_lowercase().contains("example"), "{command}: {help}");
    }
}
