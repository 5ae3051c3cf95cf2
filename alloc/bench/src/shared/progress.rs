//! What goes on, for whoever waits.

use std::io::{IsTerminal, Write};

/// Shows it in the last line of a terminal, in place of what stood there.
pub fn progress(line: &str) {
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        let _ = write!(terminal, "\r\x1b[K{line}").and_then(|()| terminal.flush());
    }
}
