//! A titled frame. The title says what it holds, the right side what matters about it.

use ratatui::buffer::Buffer;
use ratatui::layout::{HorizontalAlignment, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Widget};

use crate::dashboard::theme::Theme;

/// Draws a frame and gives the area inside it.
pub(crate) fn panel(area: Rect, buf: &mut Buffer, theme: &Theme, title: &str, right: Line<'_>) -> Rect {
    let mut block = Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(theme.faint)
        .title_top(Line::from(Span::styled(format!(" {title} "), undimmed(theme.accent))));
    if right.width() > 0 && right.width() + title.len() + 6 < area.width as usize {
        let mut spans = vec![Span::raw(" ")];
        spans.extend(
            right.spans.iter().map(|s| Span::styled(s.content.to_string(), undimmed(right.style.patch(s.style)))),
        );
        spans.push(Span::raw(" "));
        block = block.title_top(Line::from(spans).alignment(HorizontalAlignment::Right));
    }
    let inner = inside(area);
    block.render(area, buf);
    inner
}

/// A title lies on the border and would take over that it is dim.
fn undimmed(style: Style) -> Style {
    style.remove_modifier(Modifier::DIM)
}

/// The area inside a frame: one cell of border, and one column of air on each side.
pub(crate) fn inside(area: Rect) -> Rect {
    Rect {
        x: area.x.saturating_add(2).min(area.right()),
        y: area.y.saturating_add(1).min(area.bottom()),
        width: area.width.saturating_sub(4),
        height: area.height.saturating_sub(2),
    }
}
