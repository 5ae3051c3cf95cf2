//! One frame as text, without a terminal.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::{Rect, Size};

use super::feed::{Read, Source, Watched};
use super::model::Model;
use super::state::{State, View};
use super::theme::{Theme, ThemeChoice};
use super::views;

/// Reads twice, `interval` apart, so that rates exist; a dead process is read once.
pub(crate) fn read(watched: Watched, interval: Duration) -> Result<Model, String> {
    let mut source = Source::new(watched);
    let mut first = None;
    loop {
        match source.read()? {
            Read::Model(model) => {
                let dead = model.snapshot.process.state != poolscope_profiler::model::snapshot::ProcessState::Running;
                if dead || first.is_some() {
                    return Ok(*model);
                }
                first = Some(model);
            }
            Read::NotYet => {}
        }
        std::thread::sleep(interval);
    }
}

/// A frame of a view as lines of text.
pub(crate) fn frame(model: Model, view: View, size: Size, interval: Duration) -> String {
    let theme = Theme::choose(ThemeChoice::Mono, |_| None);
    let mut state = State::new(String::new(), theme, size, interval);
    state.view = view;
    state.take_reading(std::sync::Arc::new(model));
    let mut buffer = Buffer::empty(Rect::new(0, 0, size.width, size.height));
    views::draw(&state, &mut buffer);
    text_of(&buffer)
}

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
                covered = unicode_width::UnicodeWidthStr::width(symbol).max(1);
            }
            covered -= 1;
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}
