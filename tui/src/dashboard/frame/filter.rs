//! The line that the views are filtered by, and how much it leaves.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use crate::dashboard::state::State;
use crate::dashboard::widgets::search_line::filter_line;
use crate::dashboard::widgets::site_name::sites_count;
use crate::dashboard::widgets::table::put;
use crate::words::numbers;

/// Draws the line.
pub(crate) fn draw(state: &State, area: Rect, buf: &mut Buffer) {
    if area.height == 0 {
        return;
    }
    let theme = &state.theme;
    let area = Rect { x: area.x + 1, width: area.width.saturating_sub(2), ..area };
    filter_line(&state.filter, area, buf, theme);
    let (text, style) = match (&state.filter_trouble, &state.model, &state.read) {
        (Some(why), ..) => (why.clone(), theme.warn),
        (None, Some(model), Some(read)) => {
            let sites = || {
                let kept = numbers::grouped(model.listed().len() as u64);
                format!("{kept} of {}", sites_count(read.listed().len()))
            };
            let left = state.pane().left_by_filter(model).unwrap_or_else(sites);
            let clears = if state.filter.editing { "" } else { " · Esc clears" };
            (format!("{left}{clears}"), theme.dim)
        }
        _ => return,
    };
    put(buf, area.x, area.y, area.width, true, Line::styled(text, style));
}
