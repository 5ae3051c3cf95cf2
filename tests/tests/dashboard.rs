//! Ten questions that people have, asked of the dashboard in a real terminal with real keys. Each test of a question
//! says how many keys its answer took; one session serves several of them.

use std::process::Command;
use std::time::{Duration, Instant};

use poolscope_e2e::artifacts::poolscope;
use poolscope_e2e::{Pool, Running, sample};

/// The dashboard in a terminal of its own.
struct Terminal {
    socket: String,
}

impl Terminal {
    /// `poolscope top` on a process, in a terminal of 132x38.
    fn top(pool: &Pool, name: &str, pid: u32) -> Terminal {
        let terminal = Terminal { socket: format!("poolscope-e2e-{}-{name}", std::process::id()) };
        let command = format!(
            "cd '{}' && env -u NO_COLOR -u LC_ALL LANG=C.UTF-8 COLORTERM=truecolor TERM=xterm-256color \
             XDG_CONFIG_HOME=/nonexistent POOLSCOPE_DIR='{}' '{}' top {pid} --interval 0.25",
            pool.files().path().display(),
            pool.segment_dir().display(),
            poolscope().display()
        );
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "132", "-y", "38", &command]);
        terminal.wait_for("the first reading", |screen| screen.contains("● running"));
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let output =
            Command::new("tmux").args(["-L", &self.socket, "-u"]).args(arguments).env("LANG", "C.UTF-8").output();
        let output = output.expect("tmux (make test installs it)");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    fn wait_for(&self, what: &str, done: impl Fn(&str) -> bool) -> String {
        let begin = Instant::now();
        loop {
            let screen = self.screen();
            if done(&screen) {
                return screen;
            }
            assert!(begin.elapsed() < Duration::from_secs(30), "no {what} on:\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Presses keys, waits for the answer, and says how many keys it took. Then everything is as before.
    fn task(&self, question: &str, keys: &[&str], answer: impl Fn(&str) -> bool) -> String {
        keys.iter().for_each(|key| drop(self.tmux(&["send-keys", key])));
        let screen = self.wait_for(question, answer);
        println!("{question} {} keys: {}", keys.len(), keys.join(" "));
        for key in ["Escape", "Escape", "Escape", "1"] {
            self.tmux(&["send-keys", key]);
            // An Escape with a key behind it at once is that key with Alt.
            std::thread::sleep(Duration::from_millis(60));
        }
        screen
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// The selected row of a table, which is the first one.
fn first_row(screen: &str) -> &str {
    screen.lines().find(|line| line.contains('▶')).unwrap_or_default()
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
    let terminal = Terminal::top(&pool, "server", server.pid());

    let leaks = |screen: &str| first_row(screen).contains("remember_watch") && first_row(screen).contains('▲');
    terminal.task("Which function leaks?", &[], leaks);
    let screen = terminal.task("Growth or plateau?", &[], |screen| screen.contains("/min ▲"));
    assert!(screen.contains("GROWING"), "{screen}");
    terminal.task("Why is RSS more than live?", &["t"], |screen| {
        ["thread caches", "free pages", "not the pool"].iter().all(|part| screen.contains(part))
            && screen.contains("Free blocks that threads keep for their next allocations.")
    });
    terminal.tmux(&["send-keys", "t"]);
    terminal.task("What changed in the last five minutes?", &["D", "5"], |screen| {
        screen.contains("Compared with") && screen.contains(" ago: +") && {
            let row = first_row(screen);
            row.contains("remember_watch") && row.contains(" +")
        }
    });
    terminal.task("Which thread allocates most, and from where?", &["5", "Enter"], |screen| {
        screen.contains("filter thread:^") && first_row(screen).contains("kv_server::")
    });
    terminal.task("Who allocates temporary garbage?", &["3", "t"], |screen| {
        screen.contains("Freed▾") && first_row(screen).contains("kv_server::server::handle_request")
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
    let terminal = Terminal::top(&pool, "training", training.pid());
    terminal.task("Which tensors are there at the peak of the device?", &["6", "P"], |screen| {
        screen.contains("At the peak, ") && screen.contains("Who holds it") && screen.contains("make_optimizer_state")
    });
    drop(terminal);
    training.signal(libc::SIGKILL);
    training.finish();
}
