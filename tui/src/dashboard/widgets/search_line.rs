//! The line that a view is searched or filtered by.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};

use super::table::put;
use crate::dashboard::input::search::Search;
use crate::dashboard::theme::Theme;

/// Draws the line, with its cursor while it is typed.
pub(crate) fn search_line(label: &str, search: &Search, area: Rect, buf: &mut Buffer, theme: &Theme) {
    let mut spans = typed(label, search, theme);
    if search.is_literal() {
        spans.push(Span::styled("  (no regex: taken as it stands)", theme.warn));
    }
    put(buf, area.x, area.y, area.width, false, Line::from(spans));
}

/// The same of the filter of all views.
pub(crate) fn filter_line(search: &Search, area: Rect, buf: &mut Buffer, theme: &Theme) {
    put(buf, area.x, area.y, area.width, false, Line::from(typed("filter", search, theme)));
}

fn typed(label: &str, search: &Search, theme: &Theme) -> Vec<Span<'static>> {
    let (before, after) = search.line().parts();
    let mut spans = vec![Span::styled(format!("{label} "), theme.dim), Span::styled(before, theme.strong)];
    if search.editing {
        let mut rest = after.chars();
        let under = rest.next().unwrap_or(' ').to_string();
        spans.push(Span::styled(under, theme.strong.add_modifier(Modifier::REVERSED)));
        spans.push(Span::styled(rest.collect::<String>(), theme.strong));
    } else {
        spans.push(Span::styled(after, theme.strong));
    }
    spans
}
