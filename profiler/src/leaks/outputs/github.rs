//! Annotations of a workflow at GitHub: one command a line on standard output, which its runner reads.

use std::fmt::Write as _;

use super::{Run, headline, place};

impl Run<'_> {
    /// The annotations. Files below `workspace` are named from there, as the runner wants it.
    pub fn to_github(&self, workspace: Option<&str>) -> String {
        let mut text = String::new();
        for outcome in &self.outcomes {
            for leak in outcome.leaks() {
                let message = message(&format!("{}\n{}", headline(leak), leak.to_text()));
                let Some((_, file, line)) = place(leak) else {
                    let _ = writeln!(text, "::error title=Leak::{message}");
                    continue;
                };
                let below = workspace.and_then(|folder| file.strip_prefix(folder)?.strip_prefix('/'));
                let file = property(below.unwrap_or(file));
                let _ = writeln!(text, "::error file={file},line={line},title=Leak::{message}");
            }
            if let Some(why) = &outcome.not_checked {
                let why = message(&format!("{} (pid {}): {why}", outcome.command, outcome.pid));
                let _ = writeln!(text, "::error title=Not checked::{why}");
            }
        }
        text
    }
}

fn message(text: &str) -> String {
    text.trim_end().replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    message(text).replace(':', "%3A").replace(',', "%2C")
}
