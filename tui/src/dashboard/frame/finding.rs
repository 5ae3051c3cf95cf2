//! The most important finding in a line, and how many others there are.

use poolscope_profiler::findings::Severity;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::dashboard::state::State;
use crate::words::clip;
use crate::words::name::with_shorter_names;

/// Draws the line.
pub(crate) fn draw(state: &State, area: Rect, buf: &mut Buffer) {
    let theme = &state.theme;
    let findings = state.model.as_ref().map_or(&[][..], |model| &model.findings);
    let Some(first) = findings.first().filter(|_| area.height > 0) else { return };
    let style = theme.severity(first.severity);
    let more = match findings.len() {
        1 => " ! shows it ".to_owned(),
        count => format!(" ! shows {} more ", count - 1),
    };
    let room = usize::from(area.width).saturating_sub(more.chars().count() + 4);
    let mark = if first.severity == Severity::Note { "●" } else { "▲" };
    buf.set_string(area.x + 1, area.y, mark, style);
    buf.set_string(area.x + 3, area.y, clip(&with_shorter_names(&first.sentence, room), room), style);
    buf.set_string(area.right().saturating_sub(more.chars().count() as u16), area.y, more, theme.accent);
}
