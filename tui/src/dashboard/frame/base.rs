//! What the present can be compared with.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph, Widget};

use crate::dashboard::input::common::COMPARING;
use crate::dashboard::state::{Overlay, State};
use crate::dashboard::widgets::panel::{inside, panel};

/// Where the choice lies.
pub(crate) fn place(area: Rect) -> Rect {
    let (width, height) = (area.width.saturating_sub(4).min(70), (COMPARING.len() as u16 + 2).min(area.height));
    let (x, y) = (area.x + (area.width - width) / 2, area.y + (area.height - height) / 2);
    Rect { x, y, width, height }
}

/// The row of the choice under a point.
pub(crate) fn row_at(area: Rect, x: u16, y: u16) -> Option<usize> {
    let inner = inside(place(area));
    inner.contains((x, y).into()).then(|| usize::from(y - inner.y)).filter(|&row| row < COMPARING.len())
}

/// Draws the choice over the screen, or the name of the file that is typed.
pub(crate) fn draw(state: &State, area: Rect, buf: &mut Buffer) {
    let theme = &state.theme;
    let place = place(area);
    Clear.render(Rect { x: area.x, width: area.width, ..place }, buf);
    let inner = panel(place, buf, theme, "Compare", Line::styled("Esc close", theme.dim));
    let lines: Vec<Line<'_>> = if state.overlay == Overlay::BaseFile {
        let (before, after) = state.base_file.parts();
        let mut rest = after.chars();
        let under = rest.next().unwrap_or(' ').to_string();
        let typed = Line::from(vec![
            Span::styled(before, theme.strong),
            Span::styled(under, theme.strong.add_modifier(Modifier::REVERSED)),
            Span::styled(rest.collect::<String>(), theme.strong),
        ]);
        vec![Line::styled("The file, as poolscope dump writes it:", theme.text), Line::default(), typed]
    } else {
        let row = |binding: &crate::dashboard::input::key::Binding<_>| {
            Line::from(vec![
                Span::styled(format!("{:<4}", binding.first_label()), theme.accent),
                Span::styled(binding.help, theme.text),
            ])
        };
        COMPARING.iter().map(row).collect()
    };
    Paragraph::new(lines).render(inner, buf);
}
