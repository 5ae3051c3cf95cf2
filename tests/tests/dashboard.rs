//! Ten questions that people have, asked of the dashboard in a real terminal with real keys. Each test of a question
//! says how many keys its answer took; one session serves several of them.

use poolscope_e2e::terminal::Terminal;
use poolscope_e2e::{Pool, Running, compiler, sample};

/// The selected row of a table, which is the first one.
fn first_row(screen: &str) -> &str {
    screen.lines().find(|line| line.contains('▶')).unwrap_or_default()
}

/// Over how many seconds the leak has grown, as the line says that names it.
fn leak_has_grown_for(screen: &str) -> Option<f64> {
    let said = screen.lines().find(|line| line.contains("remember_watch (audit.rs:41) grows by "))?;
    said.split_once("over the last ")?.1.split_once(" s")?.0.parse().ok()
}

fn server(pool: &Pool) -> Running {
    let args = ["--clients", "4", "--keys", "500", "--rate", "4000", "--seconds", "100"];
    let mut server = pool.program(sample("kv-server")).args(args).env("POOLSCOPE_PERIOD", "16K").start();
    server.wait_for_line("kv-server: pid");
    server
}

#[test]
fn a_leaking_server_answers_nine_questions() {
    let pool = Pool::new();
    let server = server(&pool);
    let yesterday = pool.files().join("yesterday.pb.gz");
    let pid = server.pid().to_string();
    pool.poolscope().args(["dump", &pid, "-o"]).arg(&yesterday).run().success();
    let terminal = Terminal::top(&pool, "server", &server.pid().to_string());

    let leaks = |screen: &str| first_row(screen).contains("remember_watch") && first_row(screen).contains('▲');
    let screen =
        terminal.task("Which function leaks?", &[], |screen| leaks(screen) && leak_has_grown_for(screen).is_some());
    let seconds = leak_has_grown_for(&screen).expect("it is said");
    assert!(seconds <= 15.0, "seconds until the leak is on top, and why is said: {screen}");
    let screen = terminal.task("Growth or plateau?", &[], |screen| screen.contains("/min ▲"));
    assert!(screen.contains("GROWING"), "{screen}");
    terminal.task("Why is RSS more than live?", &["t"], |screen| {
        ["thread caches", "free pages", "not the pool"].iter().all(|part| screen.contains(part))
            && screen.contains("Free blocks that threads keep for their next allocations.")
    });
    terminal.press(&["t"]);
    terminal.task("What changed in the last five minutes?", &["D", "5"], |screen| {
        screen.contains("Compared with") && screen.contains(" ago: +") && {
            let row = first_row(screen);
            row.contains("remember_watch") && row.contains(" +")
        }
    });
    terminal.task("Which thread allocates most, and from where?", &["5", "Enter"], |screen| {
        let asks = ["remember_watch", "protocol::parse", "handle_request"];
        screen.contains("filter thread:^") && asks.iter().any(|function| first_row(screen).contains(function))
    });
    terminal.task("Who allocates temporary garbage?", &["3", "t"], |screen| {
        let asks = ["handle_request:", "handle_request server.rs"];
        screen.contains("Freed▾") && asks.iter().any(|function| first_row(screen).contains(function))
    });
    let exported = terminal.task("Export what I see.", &["e", "t"], |screen| screen.contains("Wrote "));
    assert!(exported.contains("--once --view overview"), "the command that gives the same: {exported}");
    let files = std::fs::read_dir(pool.files().path()).expect("the folder is readable");
    let texts = files.flatten().filter(|file| file.path().extension().is_some_and(|end| end == "txt"));
    let text = std::fs::read_to_string(texts.last().expect("a text").path()).expect("the text is readable");
    assert!(text.contains("remember_watch"), "{text}");
    let path = yesterday.display().to_string();
    terminal.task("Compare with yesterday's run.", &["D", "f", &path, "Enter"], |screen| {
        screen.contains("yesterday.pb.gz: +") && first_row(screen).contains("remember_watch")
    });
    let workers: Vec<Running> =
        (0..2).map(|_| pool.program(sample("kv-server")).args(["--seconds", "100"]).start()).collect();
    terminal.task("Watch three workers.", &["o"], |screen| {
        let all = workers.iter().chain([&server]);
        all.map(|worker| format!(" {} ", worker.pid())).all(|pid| {
            screen.lines().any(|line| line.contains(&pid) && line.contains("kv-server") && line.contains("iB "))
        })
    });
    for worker in workers {
        worker.signal(libc::SIGTERM);
        worker.finish().success();
    }

    server.signal(libc::SIGTERM);
    drop(terminal);
    server.finish().success();
}

#[test]
fn the_tensors_at_the_peak_of_a_device_are_two_keys_away() {
    let pool = Pool::new();
    let args = ["--devices", "1", "--steps", "100000", "--step-ms", "5"];
    let mut training = pool.program(sample("gpu-training")).args(args).start();
    training.wait_until("it samples", |running| (pool.segment(running.pid())?.samples() > 20).then_some(()));
    let terminal = Terminal::top(&pool, "training", &training.pid().to_string());
    terminal.task("Which tensors are there at the peak of the device?", &["6", "P"], |screen| {
        screen.contains("At the peak, ") && screen.contains("Who holds it") && screen.contains("make_optimizer_state")
    });
    drop(terminal);
    training.signal(libc::SIGKILL);
    training.finish();
}

/// The program says where its blocks lie: the map's cursor says the same of them, and who asked for them.
#[test]
fn who_holds_a_piece_of_a_devices_memory_is_two_keys_away() {
    let pool = Pool::new();
    let program = pool.files().join("gpu_map");
    compiler::compile_with_gpu(&program, "gpu_map.c", &["-O1", "-g"]);
    let program = pool.program(program).env("POOLSCOPE_GPU_DEVICE", "sim:268435456").env("POOLSCOPE_PERIOD", "1");
    let mut running = program.start();
    let address = |line: String| line.split(' ').next_back().expect("an address").trim().to_owned();
    let weights = address(running.wait_for_line("hold_weights"));
    let activations = address(running.wait_for_line("hold_activations"));
    let terminal = Terminal::top(&pool, "map", &running.pid().to_string());
    let says = |screen: &str, parts: [&str; 3]| parts.iter().all(|part| screen.contains(part));
    // Before the first reading there is no map.
    terminal.wait_for("the device", |screen| screen.contains("DEVICE 0"));
    terminal.task("Who holds this piece of the device, and on which stream?", &["6", "m"], |screen| {
        says(screen, [&format!("at {weights}"), "on the default stream", "hold_weights"])
    });
    // 64 MiB are 32 cells of 2 MiB, of which each has a character.
    let keys = ["6", "m"].into_iter().chain(std::iter::repeat_n("l", 32)).collect::<Vec<_>>();
    terminal.task("And behind it?", &keys, |screen| {
        says(screen, [&format!("at {activations}"), "on the default stream", "hold_activations"])
    });
    drop(terminal);
    running.end_input();
    running.finish().success();
}

/// 3 blocks of 1,337 bytes are lost, and 5 are held: what the program was told is what the screen says.
#[test]
fn what_a_program_has_lost_is_two_keys_away_and_nothing_of_a_killed_one_is_leaked() {
    let pool = Pool::new();
    let flags = ["-O1", "-g", "-fno-builtin", "-pthread"];
    let program = compiler::compile_with_headers(pool.files(), "tests/csrc/asked.c", "asked", &flags);
    let mut running = pool.program(program).env("POOLSCOPE_PERIOD", "1").start();
    running.wait_for_line("ready");
    running.send("lose 3\nhold 5\n");
    running.wait_until("both", |running| (running.stdout().lines().count() > 2).then_some(()));
    let terminal = Terminal::top(&pool, "leaks", &running.pid().to_string());

    terminal.press(&["9"]);
    terminal.wait_for("what is in use", |screen| {
        let has =
            |function: &str, bytes: &str| screen.lines().any(|line| line.contains(function) && line.contains(bytes));
        screen.contains("Nobody has looked what of this the program can't reach any more")
            && has(" lose ", "3.92 KiB")
            && has(" main ", "6.53 KiB")
    });
    // Named by its caller, the function that lost them is no name any more.
    let of_main =
        |screen: &str| screen.lines().filter(|line| line.contains("KiB") && line.contains(" main asked.c:")).count();
    let before = of_main(&terminal.task("Who has what?", &["3"], |screen| screen.contains(" lose asked.c:")));
    terminal
        .task("Who called that?", &["3", "Home", "Down", "Down", "Down", "x"], |screen| of_main(screen) == before + 1);
    terminal.task("Who has what?", &["3", "X"], |screen| screen.contains(" lose asked.c:"));
    let lost = terminal.task("What has it lost?", &["9", "l"], |screen| screen.contains("leaked: nothing"));
    let rows: Vec<&str> = lost.lines().filter(|line| line.contains("directly")).collect();
    let row = rows.iter().find(|line| line.contains(" lose ")).unwrap_or_else(|| panic!("{lost}"));
    assert!(row.contains("3.92 KiB") && row.contains(" 3 "), "{row}");
    assert!(!rows.iter().any(|line| line.contains("6.53 KiB")), "what it holds is not lost: {lost}");

    let pid = running.pid().to_string();
    running.signal(libc::SIGKILL);
    running.finish();
    let killed = pool.poolscope().args(["top", &pid, "--once", "--view", "leaks"]).run().silent_success().stdout;
    let view = killed.split_once("╭ Leaks").expect("the view").1;
    assert!(view.contains("It was killed, and had this in use") && view.contains("3.92 KiB"), "{killed}");
    assert!(!view.contains("leaked"), "{killed}");
}

/// Nobody watched it while it ran: the ages of what it had in use tell who grew.
#[test]
fn a_server_that_was_killed_says_who_grew() {
    let pool = Pool::new();
    let server = server(&pool);
    let pid = server.pid().to_string();
    std::thread::sleep(std::time::Duration::from_secs(5));
    let top = |view: &str| pool.poolscope().args(["top", &pid, "--once", "--view", view]).run().silent_success().stdout;
    let said = "remember_watch (audit.rs:41) grows by ";
    assert!(top("findings").contains(said), "at first sight: {}", top("findings"));
    let terminal = Terminal::top(&pool, "killed", &pid);
    let named = |screen: &str| screen.lines().any(|line| line.contains(&pid) && line.contains(" kv-server  "));
    let threads = |screen: &str| screen.split_once("╭ Threads").is_some_and(|(_, rows)| named(rows));
    terminal.press(&["5"]);
    terminal.wait_for("the threads that it has", threads);
    server.signal(libc::SIGKILL);
    server.finish();
    // What was known of it is not forgotten as it goes.
    terminal.wait_for("the threads that it had", |screen| screen.contains(" is gone: ") && threads(screen));
    let killed = top("findings");
    assert!(killed.contains("remember_watch (audit.rs:41) grew by "), "{killed}");
    let words = killed.split(['│', '\n']).map(str::trim).collect::<Vec<_>>().join(" ");
    assert!(
        words.split_whitespace().collect::<Vec<_>>().join(" ").contains(" before the end; nothing of it"),
        "{killed}"
    );
}
