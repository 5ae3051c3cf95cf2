//! The help: every key, from the table of keys.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph, Widget};

use super::keys::{self, LEAVING_TITLE};
use crate::dashboard::state::State;
use crate::dashboard::widgets::panel::panel;

/// Columns of the keys.
const KEYS: usize = 12;

/// All lines of the help.
pub(crate) fn lines(state: &State) -> Vec<Line<'static>> {
    let theme = &state.theme;
    let mut out = Vec::new();
    for (title, bindings) in keys::help(&state.panes) {
        if title == LEAVING_TITLE && !state.owns_program {
            continue;
        }
        if !out.is_empty() {
            out.push(Line::default());
        }
        out.push(Line::styled(title, theme.accent));
        for binding in bindings {
            out.push(Line::from(vec![
                Span::styled(format!("  {:<KEYS$}", binding.key_labels()), theme.strong),
                Span::styled(binding.help, theme.text),
            ]));
        }
    }
    out
}

/// The lines that fit into the help at once.
pub(crate) fn room(area: Rect) -> u16 {
    area.height.saturating_sub(4)
}

/// Draws the help over the screen.
pub(crate) fn draw(state: &State, area: Rect, buf: &mut Buffer) {
    let theme = &state.theme;
    let lines = lines(state);
    let width = area.width.saturating_sub(4).min(90);
    let height = (lines.len() as u16 + 2).min(area.height.saturating_sub(2));
    let place = Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    // Beside it, figures would be cut.
    Clear.render(Rect { x: area.x, width: area.width, ..place }, buf);
    let last = lines.len() as u16 + 2;
    let right = if last > height { "↑ ↓ scroll · Esc close" } else { "Esc close" };
    let inner = panel(place, buf, theme, "Keys", Line::styled(right, theme.dim));
    let scroll = state.help_scroll.min((lines.len() as u16).saturating_sub(inner.height));
    Paragraph::new(lines).scroll((scroll, 0)).render(inner, buf);
}
