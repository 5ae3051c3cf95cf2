//! What can be exported, and what was.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph, Widget};

use crate::dashboard::input::common::EXPORTING;
use crate::dashboard::state::State;
use crate::dashboard::widgets::panel::{inside, panel};
use crate::dashboard::widgets::plain::wrapped;

/// Columns of the box.
fn width(area: Rect) -> u16 {
    area.width.saturating_sub(4).min(76)
}

/// Where the box lies, with so many lines.
fn place(area: Rect, lines: usize) -> Rect {
    let (width, height) = (width(area), (lines as u16 + 2).min(area.height));
    Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height }
}

/// Lines above the choice.
const ABOVE: usize = 2;

/// The row of the choice under a point.
pub(crate) fn row_at(state: &State, x: u16, y: u16) -> Option<usize> {
    let inner = inside(place(state.area(), ABOVE + EXPORTING.len()));
    let is_there = state.exported.is_none() && inner.contains((x, y).into());
    let row = usize::from(y.checked_sub(inner.y)?).checked_sub(ABOVE)?;
    (is_there && row < EXPORTING.len()).then_some(row)
}

/// Draws the choice over the screen.
pub(crate) fn draw(state: &State, area: Rect, buf: &mut Buffer) {
    let theme = &state.theme;
    let width = width(area);
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
    let place = place(area, lines.len());
    Clear.render(place, buf);
    let inner = panel(place, buf, theme, "Export", Line::styled("Esc close", theme.dim));
    Paragraph::new(lines).render(inner, buf);
}
