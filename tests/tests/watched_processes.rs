//! Which process the dashboard is on: what a program becomes by exec, what it started, and the next one of its name.

use std::process::Command;
use std::time::{Duration, Instant};

use poolscope_e2e::{Pool, Program, Running, artifacts, compiler, sample};

/// The command in a terminal of its own, under tmux.
struct Dashboard {
    socket: String,
}

impl Dashboard {
    fn start(pool: &Pool, name: &str, arguments: &str) -> Dashboard {
        let dashboard = Dashboard { socket: format!("poolscope-watched-{}-{name}", std::process::id()) };
        let run = format!(
            "env -u NO_COLOR LANG=C.UTF-8 POOLSCOPE_DIR='{}' '{}' {arguments}; sleep 60",
            pool.segment_dir().display(),
            artifacts::poolscope().display()
        );
        let size = ["-f", "/dev/null", "new-session", "-d", "-x", "160", "-y", "40"];
        dashboard.tmux(&[&size[..], &[&run]].concat());
        dashboard
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("tmux");
        let output = command.args(["-L", &self.socket, "-u"]).args(arguments).env("LANG", "C.UTF-8").output();
        String::from_utf8_lossy(&output.expect("tmux (make test installs it)").stdout).into_owned()
    }

    /// Waits until a text is on the screen; gives the line that it is in.
    #[track_caller]
    fn wait_for(&self, text: &str) -> String {
        self.wait_for_line(text, |line| line.contains(text))
    }

    /// Waits until there is such a line.
    #[track_caller]
    fn wait_for_line(&self, what: &str, is_it: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.tmux(&["capture-pane", "-p"]);
            if let Some(line) = screen.lines().find(|line| is_it(line)) {
                return line.to_owned();
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "no {what:?} on:\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

fn server(pool: &Pool) -> Running {
    let mut server = pool.program(sample("kv-server")).args(["--clients", "2", "--seconds", "100"]).start();
    server.wait_for_line("kv-server: pid");
    server
}

fn end(running: Running) {
    running.signal(libc::SIGKILL);
    running.finish();
}

#[test]
fn a_server_that_is_restarted_is_followed_by_its_name() {
    let pool = Pool::new();
    let dashboard = Dashboard::start(&pool, "name", "top kv-server --follow-name --interval 0.2");
    for _ in 0..2 {
        let server = server(&pool);
        let line = dashboard.wait_for(&format!("pid {}", server.pid()));
        assert!(line.contains("kv-server") && line.contains("running"), "{line}");
        end(server);
    }
    dashboard.wait_for("This is the last reading");
}

/// A shell that becomes the server: the header says what runs, and not what was started.
#[test]
fn what_a_program_becomes_is_what_is_watched() {
    let pool = Pool::new();
    let server = sample("kv-server");
    let script = format!("exec {} --clients 2 --seconds 100", server.display());
    let dashboard = Dashboard::start(&pool, "exec", &format!("run --interval 0.2 -- bash -c '{script}'"));
    let line = dashboard.wait_for_line("header of the server", |line| line.trim().starts_with("kv-server --clients 2"));
    assert!(line.contains("running") && line.contains("pid "), "{line}");
    let process = pool.segments().into_iter().find(|segment| segment.executable().ends_with("kv-server"));
    let pid = process.expect("its segment").header.pid;
    Program::new("kill").args(["-9", &pid.to_string()]).run().success();
}

/// A program that is over before anybody could look: what it had in use as it ended is shown all the same.
#[test]
fn a_program_that_ends_at_once_is_shown_as_it_ended() {
    let pool = Pool::new();
    let program = compiler::compile(pool.files(), "leak.c", "leak", &["-O1", "-g"]);
    let run = format!("run --period 1 --interval 5 -- '{}' 3000", program.display());
    let dashboard = Dashboard::start(&pool, "end", &run);
    dashboard.wait_for("exited with code 0. This is the last reading");
    let row = dashboard.wait_for("lose_blocks");
    assert!(row.contains("2.93 MiB") && row.contains("100.0%"), "3,000 blocks of 1 KiB: {row}");
}

/// A shell with two servers: what they have is not the shell's, and it is said where it is.
#[test]
fn processes_that_a_program_started_stand_under_its_name() {
    let pool = Pool::new();
    let server = sample("kv-server").display().to_string();
    let server = format!("{server} --clients 2 --rate 0 --seconds 100");
    let script = format!("{server} & {server} & echo started; wait");
    let mut shell = pool.program("bash").args(["-c", &script]).env("POOLSCOPE_PERIOD", "64K").start();
    shell.wait_for_line("started");
    let servers: Vec<u32> = shell.wait_until("both leak", |_| {
        let segments = pool.segments().into_iter().filter(|segment| segment.executable().ends_with("kv-server"));
        let segments = segments.filter(|segment| segment.samples() > 1000);
        let pids: Vec<u32> = segments.map(|segment| segment.header.pid).collect();
        (pids.len() == 2).then_some(pids)
    });
    let once = pool.poolscope().args(["top", &shell.pid().to_string(), "--once", "--size", "160x40"]).run();
    let screen = once.silent_success().stdout;
    let line = screen.lines().find(|line| line.contains("It started")).unwrap_or_else(|| panic!("{screen}"));
    for pid in &servers {
        assert!(line.contains(&format!("● kv-server {pid} ")), "{line}");
    }
    let all = pool.poolscope().args(["top", "--all", "--once"]).run().silent_success().stdout;
    for pid in servers.iter().chain([&shell.pid()]) {
        assert!(all.lines().any(|line| line.trim_start().starts_with(&format!("{pid} "))), "{pid}: {all}");
    }
    // A line of the source has one row for both, with how many have it.
    let sites = all.lines().filter(|line| line.contains("remember_watch"));
    let both: Vec<bool> = sites.map(|line| line.contains(" 2  kv_server")).collect();
    assert!(!both.is_empty() && both.iter().all(|both| *both), "{all}");
    for pid in &servers {
        Program::new("kill").args(["-9", &pid.to_string()]).run().success();
    }
    shell.finish();
}

/// What a program had started is gone with it: the line of them, and the finding.
#[test]
fn a_program_that_has_ended_has_no_processes_any_more() {
    let pool = Pool::new();
    let dashboard = Dashboard::start(&pool, "ended", "run --interval 0.2 -- sh -c 'sleep 3; true'");
    // Between its fork and its exec the child bears the shell's name.
    dashboard.wait_for_line("child by name", |line| line.contains("It started") && line.contains("sleep"));
    dashboard.wait_for("exited with code 0");
    let screen = dashboard.tmux(&["capture-pane", "-p"]);
    assert!(!screen.contains("It started"), "{screen}");
}
