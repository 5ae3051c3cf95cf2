//! A call site in a line.

use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use crate::dashboard::model::site::SiteText;
use crate::dashboard::theme::Theme;
use crate::words::name::{clip_name, without_path};
use crate::words::numbers;

/// `function file:line ‹ caller ‹ caller`, as much of it as there is room for. Rows of one function differ by its
/// caller: that goes before the place, and loses the outer parts of its path before its name is cut.
pub(crate) fn name_line(text: &SiteText, width: usize, theme: &Theme) -> Line<'static> {
    let function = clip_name(&text.function, width);
    let mut left = width.saturating_sub(function.width());
    let mut spans = vec![Span::styled(function, theme.text)];
    // A closure's name tells no row from another.
    let caller = text.callers.first().map(|caller| without_path(caller, 0)).filter(|caller| !caller.starts_with('{'));
    let caller = caller.map_or(0, |caller| CALLED_BY.width() + caller.width());
    if let Some(place) = &text.place
        && left > place.width()
        && (left > place.width() + caller || caller > left)
    {
        left -= place.width() + 1;
        spans.push(Span::styled(format!(" {place}"), theme.dim));
    }
    for caller in &text.callers {
        let own = without_path(caller, 0).width();
        // A part of a closure's name tells nothing.
        let least = if caller.starts_with('{') { own } else { own.min(LEAST_CALLER) };
        if left < CALLED_BY.width() + least {
            break;
        }
        let part = format!("{CALLED_BY}{}", clip_name(caller, left - CALLED_BY.width()));
        left -= part.width();
        spans.push(Span::styled(part, theme.dim));
    }
    Line::from(spans)
}

/// Columns below which a caller's own name is not cut.
const LEAST_CALLER: usize = 8;

/// Between a function and its caller.
const CALLED_BY: &str = " ‹ ";

/// `1 site`, `1,234 sites`.
pub(crate) fn sites_count(count: usize) -> String {
    format!("{} {}", numbers::grouped(count as u64), if count == 1 { "site" } else { "sites" })
}
