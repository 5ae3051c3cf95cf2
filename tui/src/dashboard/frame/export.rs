//! What can be exported, and what was.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph, Widget};

use crate::dashboard::input::common::EXPORTING;
use crate::dashboard::state::State;
use crate::dashboard::widgets::panel::panel;
use crate::dashboard::widgets::plain::wrapped;

/// Draws the choice over the screen.
pub(crate) fn draw(state: &State, area: Rect, buf: &mut Buffer) {
    let theme = &state.theme;
    let width = area.width.saturating_sub(4).min(76);
    let mut lines = Vec::new();
    if let Some(said) = &state.exported {
        for text in said {
            let indent = if text.starts_with(' ') { "  " } else { "" };
            let broken = wrapped(text, usize::from(width.saturating_sub(6)));
            lines.extend(broken.into_iter().map(|line| Line::styled(format!("{indent}{line}"), theme.text)));
        }
    } else {
        lines.push(Line::styled("Into the folder that poolscope was started in:", theme.text));
        lines.push(Line::default());
        for binding in EXPORTING {
            lines.push(Line::from(vec![
                Span::styled(format!("  {:<5}", binding.first_label()), theme.accent),
                Span::styled(binding.help, theme.text),
            ]));
        }
    }
    let height = (lines.len() as u16 + 2).min(area.height);
    let (x, y) = (area.x + (area.width - width) / 2, area.y + (area.height - height) / 2);
    let place = Rect { x, y, width, height };
    Clear.render(place, buf);
    let inner = panel(place, buf, theme, "Export", Line::styled("Esc close", theme.dim));
    Paragraph::new(lines).render(inner, buf);
}
