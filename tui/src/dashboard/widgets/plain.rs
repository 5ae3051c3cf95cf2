//! Text: of a drawn buffer, and in lines.

use ratatui::buffer::Buffer;
use unicode_width::UnicodeWidthStr;

use crate::words::name::clip_name;

/// The symbols of a buffer, line by line, without blanks at their ends.
pub(crate) fn text_of(buffer: &Buffer) -> String {
    let area = buffer.area;
    let mut out = String::new();
    for y in area.top()..area.bottom() {
        let mut line = String::new();
        let mut covered = 0;
        for x in area.left()..area.right() {
            let symbol = buffer[(x, y)].symbol();
            // A wide character covers the cell after it.
            if covered == 0 {
                line.push_str(symbol);
                covered = symbol.width().max(1);
            }
            covered -= 1;
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// A text in lines of at most so many columns, cut between words. A name that is wider than a line is cut.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.width() + 1 + word.width() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(clip_name(word, width)),
        }
    }
    lines
}
