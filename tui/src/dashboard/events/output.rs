//! The end of the file that holds what the program wrote.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use super::Event;

/// Bytes from the end of the file that are looked at.
const BYTES: u64 = 256 * 1024;
/// Lines that are kept.
const LINES: usize = 2000;

/// Lines from the end of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tail {
    /// The file.
    pub(crate) path: PathBuf,
    /// Its last lines, safe to draw.
    pub(crate) lines: VecDeque<String>,
    /// Lines of the whole file.
    pub(crate) written: usize,
}

/// Lines of a file that grows.
#[derive(Default)]
struct Counted {
    /// Bytes that were looked at.
    bytes: u64,
    /// Ends of lines among them.
    ends: usize,
    /// The last one was none.
    is_open: bool,
}

impl Counted {
    /// Counts what is new in a file of this length.
    fn lines(&mut self, file: &mut File, len: u64) -> io::Result<usize> {
        if len < self.bytes {
            *self = Counted::default();
        }
        file.seek(SeekFrom::Start(self.bytes))?;
        let mut part = vec![0; 64 * 1024];
        let mut new = file.take(len - self.bytes);
        loop {
            let read = new.read(&mut part)?;
            let Some(last) = part[..read].last() else { break };
            self.is_open = *last != b'\n';
            self.ends += part[..read].iter().filter(|byte| **byte == b'\n').count();
            self.bytes += read as u64;
        }
        Ok(self.ends + usize::from(self.is_open))
    }
}

/// Reads the end of the file.
fn read_tail(path: &Path, file: &mut File, len: u64, counted: &mut Counted) -> io::Result<Tail> {
    let written = counted.lines(file, len)?;
    let start = len.saturating_sub(BYTES);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(len - start).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let mut lines: VecDeque<String> = text.lines().map(plain).collect();
    if start > 0 {
        // The first one is most likely a part of a line.
        lines.pop_front();
    }
    while lines.len() > LINES {
        lines.pop_front();
    }
    Ok(Tail { path: path.to_owned(), written: written.max(lines.len()), lines })
}

/// A line as it would look on a terminal: no escape sequences, tabs expanded, only what follows the last carriage
/// return.
fn plain(line: &str) -> String {
    let line = line.trim_end_matches('\r');
    let line = line.rsplit('\r').next().unwrap_or(line);
    let mut out = String::with_capacity(line.len());
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\x1b' => match chars.next() {
                Some('[') => {
                    // CSI: parameters, then one final byte.
                    while chars.next().is_some_and(|c| !('@'..='~').contains(&c)) {}
                }
                Some(']') => {
                    // OSC: up to BEL or ESC \.
                    while let Some(c) = chars.next() {
                        if c == '\x07' || (c == '\x1b' && chars.next_if_eq(&'\\').is_some()) {
                            break;
                        }
                    }
                }
                _ => {}
            },
            '\t' => {
                let to = (out.chars().count() / 8 + 1) * 8;
                while out.chars().count() < to {
                    out.push(' ');
                }
            }
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

/// Sends the end of the file whenever it has grown, five times a second at most.
pub(crate) fn watch(path: PathBuf, to: Sender<Event>) -> io::Result<()> {
    let mut file = File::open(&path)?;
    thread::Builder::new().name("output".into()).spawn(move || {
        let mut seen = None;
        let mut counted = Counted::default();
        loop {
            let len = file.metadata().map_or(0, |m| m.len());
            if seen != Some(len) {
                seen = Some(len);
                if let Ok(tail) = read_tail(&path, &mut file, len, &mut counted)
                    && to.send(Event::Output(tail)).is_err()
                {
                    return;
                }
            }
            thread::sleep(Duration::from_millis(200));
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lines_are_counted_and_the_last_are_kept() {
        let path = std::env::temp_dir().join(format!("poolscope-tail-{}", std::process::id()));
        let mut text: String = (1..=5000).map(|line| format!("line {line}\n")).collect();
        let mut counted = Counted::default();
        for (more, written, last) in [("", 5000, "line 5000"), ("half", 5001, "half"), (" a line\nx\n", 5002, "x")] {
            text += more;
            std::fs::write(&path, &text).expect("a file");
            let mut file = File::open(&path).expect("a file");
            let tail = read_tail(&path, &mut file, text.len() as u64, &mut counted).expect("is read");
            assert_eq!((tail.written, tail.lines.len()), (written, LINES));
            assert_eq!(tail.lines.back().map(String::as_str), Some(last));
        }
        std::fs::remove_file(&path).expect("a file");
    }

    #[test]
    fn escape_sequences_and_progress_bars_become_plain_text() {
        assert_eq!(plain("\x1b[1;31merror\x1b[0m: x"), "error: x");
        assert_eq!(plain("10%\r50%\r100%"), "100%");
        assert_eq!(plain("100%\r"), "100%");
        assert_eq!(plain("a\tb"), "a       b");
        assert_eq!(plain("\x1b]0;title\x07shell\x1b]8;;x\x1b\\link"), "shelllink");
        assert_eq!(plain("\x1b["), "");
        assert_eq!(plain("a\u{9b}b\0c"), "abc");
    }
}
