//! The dashboard in a real terminal, with real keys.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::Pool;
use crate::artifacts::poolscope;

/// A terminal of 132x38 under tmux.
pub struct Terminal {
    socket: String,
}

impl Terminal {
    /// `poolscope top` with these arguments. `name` tells it from the other terminals of its test.
    pub fn top(pool: &Pool, name: &str, arguments: &str) -> Terminal {
        let terminal = Terminal::start(pool, name, &format!("top {arguments} --interval 0.25"));
        terminal.wait_for("the first reading", |screen| screen.contains("● running"));
        terminal
    }

    /// A command of poolscope's that shows the dashboard.
    pub fn start(pool: &Pool, name: &str, command: &str) -> Terminal {
        let terminal = Terminal { socket: format!("poolscope-e2e-{}-{name}", std::process::id()) };
        let command = format!(
            "cd '{}' && env -u NO_COLOR -u LC_ALL LANG=C.UTF-8 COLORTERM=truecolor TERM=xterm-256color \
             XDG_CONFIG_HOME=/nonexistent POOLSCOPE_DIR='{}' '{}' {command}",
            pool.files().path().display(),
            pool.segment_dir().display(),
            poolscope().display()
        );
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "132", "-y", "38", &command]);
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let output =
            Command::new("tmux").args(["-L", &self.socket, "-u"]).args(arguments).env("LANG", "C.UTF-8").output();
        let output = output.expect("tmux (make test installs it)");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Presses keys, by tmux's names for them.
    pub fn press(&self, keys: &[&str]) {
        keys.iter().for_each(|key| drop(self.tmux(&["send-keys", key])));
    }

    /// What it shows.
    pub fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// The screen, once it is as wanted.
    pub fn wait_for(&self, what: &str, done: impl Fn(&str) -> bool) -> String {
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
    pub fn task(&self, question: &str, keys: &[&str], answer: impl Fn(&str) -> bool) -> String {
        self.press(keys);
        let screen = self.wait_for(question, answer);
        println!("{question} {} keys: {}", keys.len(), keys.join(" "));
        // An Escape with a key behind it at once is that key with Alt, which a busy machine may make of two keys.
        for key in ["Escape", "Escape", "Escape", "1", "1"] {
            self.press(&[key]);
            std::thread::sleep(Duration::from_millis(100));
        }
        screen
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}
