//! The titles of the views; a click on one opens it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::super::state::{State, View};

/// Where each title lies.
pub(crate) fn places(state: &State, area: Rect) -> Vec<(View, Rect)> {
    let long: u16 = state.views().iter().map(|v| title(*v, true).chars().count() as u16 + 1).sum();
    let mut x = area.x;
    let mut out = Vec::new();
    for &view in state.views() {
        let full = long < area.width || view == state.view;
        let width = title(view, full).chars().count() as u16;
        if x + width > area.right() {
            break;
        }
        out.push((view, Rect { x, width, height: 1, ..area }));
        x += width + u16::from(long < area.width);
    }
    out
}

fn title(view: View, full: bool) -> String {
    let number = view as u8 + 1;
    let name = if full { view.title() } else { view.title().split(' ').next_back().unwrap_or("") };
    format!(" {number} {name} ")
}

/// Draws the titles.
pub(crate) fn draw(state: &State, area: Rect, buf: &mut Buffer) {
    let theme = &state.theme;
    for (view, place) in places(state, area) {
        let number = format!(" {} ", view as u8 + 1);
        let name = title(view, true);
        let name = name.chars().skip(3).take(usize::from(place.width).saturating_sub(3)).collect::<String>();
        let (first, second) = if view == state.view { (theme.tab, theme.tab) } else { (theme.accent, theme.text) };
        buf.set_string(place.x, place.y, &number, first);
        buf.set_string(place.x + 3, place.y, name, second);
    }
}
