//! The last line: the keys that hold now, from the table of keys, or the line that is being typed, or a remark.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

use super::keys::bindings;
use crate::dashboard::state::State;

/// Draws the footer.
pub(crate) fn draw(state: &State, area: Rect, buf: &mut Buffer) {
    let theme = &state.theme;
    let note = state.note.as_ref().map(|n| format!(" {n} ")).unwrap_or_default();
    let note_width = note.chars().count() as u16;
    let room = area.width.saturating_sub(note_width);
    let mut spans = vec![Span::raw(" ")];
    let mut used = 1;
    for binding in bindings(state.context(), state.pane()).into_iter().filter(|b| b.footer) {
        let key = binding.first_label();
        let label = format!(" {}   ", binding.label);
        let width = (key.chars().count() + label.trim_end().chars().count()) as u16;
        if used + width > room {
            break;
        }
        used += width + 3;
        spans.push(Span::styled(key, theme.accent));
        spans.push(Span::styled(label, theme.dim));
    }
    Line::from(spans).render(Rect { width: room, ..area }, buf);
    if note_width > 0 && note_width < area.width {
        buf.set_string(area.right() - note_width, area.y, note, theme.warn);
    }
}
