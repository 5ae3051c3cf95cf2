//! Which columns of the table are shown.

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph, Widget};

use crate::dashboard::state::State;
use crate::dashboard::widgets::panel::{inside, panel};

fn place(state: &State) -> Rect {
    let area = state.area();
    let rows = state.table().map_or(0, |rows| rows.columns.len()) as u16;
    let (width, height) = (34.min(area.width), (rows + 2).min(area.height));
    Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height }
}

/// The row of the list under a point.
pub(crate) fn row_at(state: &State, at: Position) -> Option<usize> {
    let inner = inside(place(state));
    let count = state.table()?.columns.len();
    inner.contains(at).then(|| usize::from(at.y - inner.y)).filter(|&row| row < count)
}

/// Draws the list over the screen.
pub(crate) fn draw(state: &State, area: Rect, buf: &mut Buffer) {
    let Some(rows) = state.table() else { return };
    let (theme, place) = (&state.theme, place(state));
    // Beside it, figures would be cut.
    Clear.render(Rect { x: area.x, width: area.width, ..place }, buf);
    let inner = panel(place, buf, theme, "Columns", Line::styled("Esc close", theme.dim));
    let lines = rows.columns.iter().enumerate().map(|(at, column)| {
        let mark = if rows.hidden.has(at) { "[ ] " } else { "[x] " };
        let title = if column.title.is_empty() { "(bar)" } else { column.title };
        let row = Line::from(vec![Span::styled(mark, theme.accent), Span::styled(title, theme.text)]);
        if at == state.column_selected { row.patch_style(theme.selected) } else { row }
    });
    Paragraph::new(lines.collect::<Vec<_>>()).render(inner, buf);
}
