//! The question that quitting asks while a program that `run` started still runs, and the wait for its end.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph, Widget};

use super::keys::bindings;
use crate::dashboard::state::{Context, Overlay, State};
use crate::dashboard::widgets::panel::panel;

/// Draws the question over the screen.
pub(crate) fn draw(state: &State, area: Rect, buf: &mut Buffer) {
    let theme = &state.theme;
    let mut lines = Vec::new();
    if state.overlay == Overlay::Ending {
        lines.push(Line::styled(format!("{} was sent SIGTERM; waiting for it to end …", state.label), theme.text));
    } else {
        lines.push(Line::styled(format!("{} is still running.", state.label), theme.text));
    }
    lines.push(Line::default());
    for binding in bindings(Context::Leaving, state.pane()) {
        let key = binding.first_label();
        lines.push(Line::from(vec![
            Span::styled(format!("  {key:<5}"), theme.accent),
            Span::styled(binding.label, theme.text),
        ]));
    }
    let width = (lines.iter().map(Line::width).max().unwrap_or(0) as u16 + 4).clamp(40, area.width.saturating_sub(4));
    let height = lines.len() as u16 + 2;
    let place = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + area.height.saturating_sub(height) / 2,
        width,
        height,
    }
    .intersection(area);
    Clear.render(place, buf);
    let inner = panel(place, buf, theme, "Quit", Line::default());
    Paragraph::new(lines).render(inner, buf);
}
