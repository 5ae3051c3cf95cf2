//! The real binary in a real terminal, under tmux, with real keys and signals.

mod support;

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use support::{Folder, some_library, stdout, write_segment};

/// A tmux server of our own with one session.
struct Terminal {
    socket: String,
}

impl Terminal {
    /// Starts a shell that answers `$ `, in a terminal of 120x36.
    fn start(name: &str, folder: &Path) -> Terminal {
        let terminal = Terminal { socket: format!("poolscope-{}-{name}", std::process::id()) };
        let shell = format!(
            "env -u NO_COLOR PS1='$ ' ENV= LANG=C.UTF-8 COLORTERM=truecolor POOLSCOPE_DIR='{}' POOLSCOPE_LIB='{}' sh -i",
            folder.display(),
            some_library().display()
        );
        let started = terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "36", &shell]);
        assert!(started.status.success(), "tmux: {}", support::stderr(&started));
        terminal.wait_for("$");
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> Output {
        Command::new("tmux")
            .args(["-L", &self.socket, "-u"])
            .args(arguments)
            .env("LANG", "C.UTF-8")
            .output()
            .expect("tmux (make test installs it)")
    }

    fn keys(&self, keys: &[&str]) {
        assert!(self.tmux(&[&["send-keys"], keys].concat()).status.success());
    }

    fn screen(&self) -> String {
        stdout(&self.tmux(&["capture-pane", "-p"]))
    }

    /// Alternate screen, cursor shown, mouse taken.
    fn modes(&self) -> String {
        stdout(&self.tmux(&["display-message", "-p", "#{alternate_on} #{cursor_flag} #{mouse_any_flag}"])).trim().into()
    }

    fn wait(&self, what: &str, done: impl Fn(&Terminal) -> bool) {
        let begin = Instant::now();
        while !done(self) {
            assert!(begin.elapsed() < Duration::from_secs(20), "no {what} on:\n{}", self.screen());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn wait_for(&self, text: &str) {
        self.wait(text, |t| t.screen().contains(text));
    }

    /// Runs the binary.
    fn run(&self, arguments: &str) {
        self.keys(&[&format!("{} {arguments}; echo code $?", env!("CARGO_BIN_EXE_poolscope")), "Enter"]);
    }

    /// The process in the foreground whose name is poolscope.
    fn poolscope_pid(&self) -> String {
        let tty = stdout(&self.tmux(&["display-message", "-p", "#{pane_tty}"]));
        let processes = Command::new("ps").args(["-o", "pid=,comm=", "-t", tty.trim()]).output().unwrap();
        let line = stdout(&processes).lines().find(|l| l.ends_with(" poolscope")).expect("poolscope runs").to_owned();
        line.split_whitespace().next().unwrap().to_owned()
    }

    fn is_restored(&self) -> bool {
        self.modes() == "0 1 0"
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

fn top(name: &str) -> (Folder, Terminal) {
    let folder = Folder::new(name);
    let segment = write_segment(&folder.0, 4_194_305);
    let terminal = Terminal::start(name, &folder.0);
    terminal.run(&format!("top {}", segment.display()));
    terminal.wait_for("Largest call sites");
    (folder, terminal)
}

#[test]
fn keys_lead_through_the_views_and_q_restores_the_terminal() {
    let (_folder, terminal) = top("keys");
    assert_eq!(terminal.modes(), "1 0 1");
    assert!(terminal.screen().contains("100 MiB"));
    terminal.keys(&["3"]);
    terminal.wait_for("▶  96.0 MiB");
    terminal.keys(&["/"]);
    terminal.keys(&["-l", "0x3000"]);
    terminal.keys(&["Enter"]);
    terminal.wait_for("1 of 2 sites");
    terminal.keys(&["Enter"]);
    terminal.wait_for("bytes in use");
    terminal.keys(&["m"]);
    terminal.wait_for("objects in use");
    terminal.keys(&["?"]);
    terminal.wait_for("Freeze the picture");
    terminal.keys(&["Escape"]);
    terminal.wait("closed help", |t| !t.screen().contains("Freeze the picture"));
    terminal.keys(&["Space"]);
    terminal.wait_for("Paused");
    terminal.keys(&["q"]);
    terminal.wait_for("code 0");
    assert!(terminal.is_restored(), "{}", terminal.modes());
}

#[test]
fn signals_restore_the_terminal() {
    for (signal, code) in [("TERM", 143), ("HUP", 129), ("INT", 130)] {
        let (_folder, terminal) = top(signal);
        let pid = terminal.poolscope_pid();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
        terminal.wait_for(&format!("code {code}"));
        assert!(terminal.is_restored(), "{signal}: {}", terminal.modes());
        // Raw mode is off: the line is echoed and edited by the terminal.
        terminal.keys(&["echo cooked", "Enter"]);
        terminal.wait_for("\ncooked");
    }
}

#[cfg(feature = "test-panic")]
#[test]
fn a_panic_restores_the_terminal_and_can_be_read() {
    let folder = Folder::new("panic");
    let segment = write_segment(&folder.0, 4_194_305);
    let terminal = Terminal::start("panic", &folder.0);
    // A backtrace would push the message off the screen.
    terminal.keys(&["export RUST_BACKTRACE=0 POOLSCOPE_TEST_PANIC=1", "Enter"]);
    terminal.run(&format!("top {}", segment.display()));
    terminal.wait_for("asked for by POOLSCOPE_TEST_PANIC");
    terminal.wait_for("code 134");
    assert!(terminal.is_restored(), "{}", terminal.modes());
}

#[test]
fn a_terminal_that_goes_away_takes_the_program_along() {
    let folder = Folder::new("gone");
    let terminal = Terminal::start("gone", &folder.0);
    let script = "echo $$ > pid; exec sleep 1000";
    terminal.keys(&[&format!("cd '{}'", folder.0.display()), "Enter"]);
    terminal.run(&format!("run --output out.log -- sh -c '{script}'"));
    terminal.wait("dashboard", |t| t.modes().starts_with("1 "));
    let pid = || std::fs::read_to_string(folder.0.join("pid")).unwrap_or_default();
    terminal.wait("pid", |_| pid().ends_with('\n'));
    let pid = pid();
    drop(terminal);
    let begin = Instant::now();
    while Path::new(&format!("/proc/{}", pid.trim())).exists() {
        assert!(begin.elapsed() < Duration::from_secs(10), "process {pid} was left behind");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn ctrl_z_stops_and_fg_resumes() {
    let (_folder, terminal) = top("suspend");
    terminal.keys(&["C-z"]);
    terminal.wait("shell", Terminal::is_restored);
    terminal.wait_for("Stopped");
    terminal.keys(&["fg", "Enter"]);
    terminal.wait_for("Largest call sites");
    assert_eq!(terminal.modes(), "1 0 1");
    terminal.keys(&["q"]);
    terminal.wait("shell", Terminal::is_restored);
}

#[test]
fn a_resize_is_followed() {
    let (_folder, terminal) = top("resize");
    terminal.tmux(&["resize-window", "-x", "50", "-y", "12"]);
    terminal.wait_for("too small");
    terminal.tmux(&["resize-window", "-x", "80", "-y", "24"]);
    terminal.wait_for("Largest call sites");
    terminal.keys(&["q"]);
    terminal.wait("shell", Terminal::is_restored);
}

#[test]
fn run_keeps_the_output_and_passes_the_code_on() {
    let folder = Folder::new("run");
    let terminal = Terminal::start("run", &folder.0);
    let log = folder.0.join("out.log");
    let (output, script) = (format!("--output '{}'", log.display()), "echo hello from it; sleep 1; exit 7");
    terminal.run(&format!("run {output} -- sh -c '{script}'"));
    terminal.wait("dashboard", |t| t.modes().starts_with("1 "));
    terminal.keys(&["0"]);
    terminal.wait_for("hello from it");
    terminal.wait_for("exited with code 7 before a first reading");
    terminal.keys(&["q"]);
    terminal.wait_for("code 7");
    assert!(terminal.screen().contains("exited with code 7"));
    assert!(terminal.screen().contains("out.log"));
    assert_eq!(std::fs::read_to_string(log).unwrap(), "hello from it\n");
}

#[test]
fn quitting_while_the_program_runs_asks_and_can_end_it() {
    let folder = Folder::new("ask");
    let terminal = Terminal::start("ask", &folder.0);
    terminal.run(&format!("run --output '{}' -- sleep 1000", folder.0.join("out.log").display()));
    terminal.wait("dashboard", |t| t.modes().starts_with("1 "));
    terminal.keys(&["q"]);
    terminal.wait_for("is still running");
    terminal.keys(&["Escape"]);
    terminal.wait("closed question", |t| !t.screen().contains("is still running"));
    terminal.keys(&["q"]);
    terminal.wait_for("is still running");
    terminal.keys(&["q"]);
    terminal.wait_for("code 143");
    assert!(terminal.is_restored());
}
