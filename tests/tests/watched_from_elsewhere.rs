//! `poolscope top URL`: a process that is watched through `poolscope serve`. What it shows is compared with what the
//! program was told to allocate.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use poolscope_e2e::terminal::Terminal;
use poolscope_e2e::{Output, Pool, Running, compiler};

/// Bytes of each block of the program.
const SIZE: u64 = 1337;

/// A program that does what it is told, with every allocation recorded.
fn start(pool: &Pool) -> Running {
    let flags = ["-O1", "-g", "-fno-builtin", "-pthread"];
    let program = compiler::compile_with_headers(pool.files(), "tests/csrc/asked.c", "asked", &flags);
    let mut running = pool.program(program).env("POOLSCOPE_PERIOD", "1").start();
    running.wait_for_line("ready");
    running
}

/// A server, and its URL.
fn serve(pool: &Pool, arguments: &[&str], listen: &str) -> (Running, String) {
    let mut server = pool.poolscope().arg("serve").args(arguments).args(["--listen", listen]).start();
    let line = server.wait_for_line("serving on http://");
    (server, line.trim_start_matches("serving on ").trim_end_matches('/').to_owned())
}

fn top(pool: &Pool, arguments: &[&str]) -> Output {
    pool.poolscope().arg("top").args(arguments).run()
}

/// Bytes and blocks in use of a function's call sites, by what is printed as CSV.
fn in_use(csv: &str, function: &str) -> Vec<(u64, u64)> {
    let fields = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let named = fields.filter(|fields| fields.get(7).is_some_and(|name| name.trim_matches('"') == function));
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{text} is no number: {csv}"));
    named.map(|fields| (number(fields[0]), number(fields[1]))).collect()
}

#[test]
fn a_server_hands_out_the_figures_that_the_program_has() {
    let pool = Pool::new();
    let mut program = start(&pool);
    let token = pool.files().write("token", "s3cret\n");
    // What others can read is warned of.
    std::fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).unwrap();
    let token = token.to_str().expect("is text");
    let (_server, url) = serve(&pool, &[&program.pid().to_string(), "--token-file", token], "127.0.0.1:0");
    for blocks in [1000, 3000] {
        program.tell("drop");
        program.tell(&format!("hold {blocks}"));
        let csv = top(&pool, &[&url, "--token-file", token, "--csv"]).silent_success().stdout;
        let there = in_use(&csv, "main").into_iter().map(|(_, blocks)| blocks).max().unwrap_or_default();
        // Those that it let go are lost: it frees none.
        let held = if blocks == 1000 { 1000 } else { 4000 };
        assert_eq!(there, held, "{csv}");
        assert!(in_use(&csv, "main").contains(&(held * SIZE, held)), "{csv}");
    }
    let with_token = format!("{url}/?token=s3cret&pid={}", program.pid());
    let screen = top(&pool, &[&with_token, "--once", "--view", "sites"]).silent_success().stdout;
    assert!(screen.contains("asked") && screen.contains("5.10 MiB"), "{screen}");

    // What is wrong is said, with what to do.
    let failed = |arguments: &[&str], words: &str| {
        let output = top(&pool, arguments);
        assert_eq!(output.code(), 2, "{}", output.report());
        assert!(output.stderr.contains(words), "{words}: {}", output.report());
    };
    failed(&[&url, "--once"], "wants a token: name the file that poolscope serve has, by --token-file");
    failed(&[&format!("{url}/?token=guess"), "--once"], "has another token than the one that was given");
    failed(&[&format!("{url}/?token=s3cret&pid=1"), "--once"], "process 1 is not served here");
    failed(&[&url.replace("http", "https"), "--once"], "ssh -L 6060:127.0.0.1:6060 HOST");
    failed(&["asked", "--token-file", token, "--once"], "a token is for a server: name its URL");
    let closed = TcpListener::bind("127.0.0.1:0").expect("binds").local_addr().expect("has one");
    failed(&[&format!("http://{closed}"), "--once"], "does not answer: Connection refused");
}

#[test]
fn a_server_of_another_kind_or_version_is_named_so() {
    let pool = Pool::new();
    let other_version = [b"poolread".to_vec(), 77u32.to_le_bytes().to_vec(), vec![0; 8]].concat();
    for (head, body, words) in [
        ("404 Not Found\r\nContent-Type: text/html", b"<h1>Not here</h1>".to_vec(), "it is no poolscope serve"),
        ("404 Not Found\r\nContent-Type: text/plain", b"there is nothing here: /".to_vec(), "of an older version"),
        ("200 OK\r\nContent-Type: text/html", b"<h1>Welcome</h1>".to_vec(), "it sends no readings of a process"),
        ("200 OK", other_version, "its readings are of version 77 "),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
        let url = format!("http://{}", listener.local_addr().expect("has one"));
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("somebody asks");
            let _ = stream.read(&mut [0; 1024]);
            let head = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            stream.write_all(&[head.into_bytes(), body].concat()).expect("is sent");
        });
        let output = top(&pool, &[&url, "--once"]);
        server.join().expect("it answered");
        assert!(output.code() == 2 && output.stderr.contains(words), "{words}: {}", output.report());
    }
}

#[test]
fn a_dashboard_outlives_its_server_and_finds_leaks_through_it() {
    let pool = Pool::new();
    let mut program = start(&pool);
    let pid = program.pid().to_string();
    let (server, url) = serve(&pool, &[&pid], "127.0.0.1:0");
    let terminal = Terminal::top(&pool, "elsewhere", &url);
    assert!(terminal.screen().contains(&format!("by {url}")));

    server.signal(libc::SIGTERM);
    server.finish();
    terminal.wait_for("word of the server's end", |screen| screen.contains("Cannot read: ") && screen.contains(&url));
    let (_server, again) = serve(&pool, &[&pid], url.trim_start_matches("http://"));
    assert_eq!(again, url);
    terminal.wait_for("readings again", |screen| !screen.contains("Cannot read"));

    program.tell("lose 30");
    terminal.press(&["9", "l"]);
    let lost = terminal.wait_for("what was lost", |screen| screen.contains("are leaked"));
    let row = lost.lines().find(|line| line.contains("directly") && line.contains("lose")).expect("a row");
    // 30 blocks of 1,337 bytes.
    assert!(row.contains("39.2 KiB") && row.contains(" 30 "), "{row}");
}

/// The dashboard runs where another program is on the pool, which no server has readings of.
#[test]
fn the_processes_to_choose_from_are_those_that_the_server_serves() {
    let (there, here) = (Pool::new(), Pool::new());
    let (one, two, local) = (start(&there), start(&there), start(&here));
    let lists = |screen: &str, program: &Running| {
        let pid = format!(" {} ", program.pid());
        screen.lines().any(|line| line.contains(&pid) && line.contains("asked") && line.contains("iB "))
    };

    let (_alone, url) = serve(&there, &[&one.pid().to_string()], "127.0.0.1:0");
    let terminal = Terminal::top(&here, "alone", &url);
    terminal.press(&["o"]);
    let screen = terminal.wait_for("the served process", |screen| lists(screen, &one));
    assert!(screen.contains("The server serves this process alone"), "{screen}");
    assert!(!lists(&screen, &two) && !lists(&screen, &local), "{screen}");
    drop(terminal);

    let (_all, url) = serve(&there, &["--all"], "127.0.0.1:0");
    let terminal = Terminal::start(&here, "all", &format!("top {url} --interval 0.25"));
    let screen = terminal.wait_for("both", |screen| lists(screen, &one) && lists(screen, &two));
    assert!(!screen.contains("alone") && !lists(&screen, &local), "{screen}");
    let selected = |screen: &str, program: &Running| {
        screen.lines().any(|line| line.contains('▶') && line.contains(&format!(" {} ", program.pid())))
    };
    // The largest comes first: which one that is, is not told.
    let first = terminal.wait_for("a selected one", |screen| selected(screen, &one) || selected(screen, &two));
    terminal.press(if selected(&first, &two) { &["Home"] } else { &["End"] });
    terminal.wait_for("the second one selected", |screen| selected(screen, &two));
    terminal.press(&["Enter"]);
    let by = format!("pid {} by {url}/?pid={}", two.pid(), two.pid());
    terminal.wait_for("readings of it", |screen| screen.contains(&by) && screen.contains("● running"));
    terminal.press(&["o"]);
    terminal.wait_for("both again", |screen| lists(screen, &one) && lists(screen, &two));
}

/// The kernel moves the clocks of such a process, and of what it says of one (time_namespaces(7)).
#[test]
fn a_process_in_a_time_namespace_is_read_and_recorded_as_any_other() {
    for moved in ["864000", "-60"] {
        let pool = Pool::new();
        let into = ["-T", "--monotonic", moved, "--boottime", moved, "--fork", "--kill-child"];
        let probe = poolscope_e2e::Program::new("unshare").args(into).arg("true").run();
        if probe.code() != 0 {
            poolscope_e2e::skip(&format!("no time namespace can be made here ({})", probe.stderr.trim()));
            continue;
        }
        let flags = ["-O1", "-g", "-fno-builtin", "-pthread"];
        let asked = compiler::compile_with_headers(pool.files(), "tests/csrc/asked.c", "asked", &flags);
        let mut program = pool.program("unshare").args(into).arg(&asked).env("POOLSCOPE_PERIOD", "1").start();
        program.wait_for_line("ready");
        let is_it = |segment: &poolscope_e2e::Segment| segment.executable().ends_with("/asked");
        let pid = pool.segments().iter().find(|segment| is_it(segment)).expect("it has a segment").header.pid;
        let list = pool.json(&["list", "--json"]);
        let states: Vec<_> = list["processes"].as_array().expect("is a list").iter().map(|one| &one["state"]).collect();
        assert!(states.iter().all(|state| *state == "running"), "{moved}: {list}");

        let pid = pid.to_string();
        let recorder = pool.poolscope().args(["record", &pid, "-o", "moved.rec", "--duration", "1.5", "--lossless"]);
        let recorder = recorder.start();
        for _ in 0..10 {
            program.tell("hold 100");
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        let recorded = recorder.finish();
        assert_eq!(recorded.code(), 0, "{moved}: {}", recorded.report());
        let report = pool.poolscope().args(["report", "moved.rec"]).run().success().stdout;
        let (said, _) = report.split_once('\n').expect("has lines");
        assert!(said.contains("recorded for ") && said.ends_with("s"), "{moved}: {report}");
        assert!(report.contains("main"), "{moved}: {report}");

        let peak = &pool.json(&["stats", &pid, "--json"])["process"]["peak"];
        let (after, bytes) = (peak["after_seconds"].as_f64(), peak["in_use_bytes"].as_f64());
        assert!(after.is_some_and(|after| after < 60.0), "{moved}: {peak}");
        assert!(bytes.is_some_and(|bytes| bytes >= (500 * SIZE) as f64), "{moved}: {peak}");
    }
}
