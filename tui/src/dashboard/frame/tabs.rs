//! The titles of the views; a click on one opens it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::dashboard::panes::{VIEWS, opener};
use crate::dashboard::state::State;

/// How much of the titles there is room for. The view that is shown always has its whole title.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Length {
    /// Whole titles, with a column between them.
    Full,
    /// So many letters of the last word of each.
    Letters(usize),
    /// The numbers, which are the keys.
    Number,
}

/// Letters of the titles, from whole words to what still tells one from the next.
const LETTERS: [usize; 4] = [10, 4, 3, 2];

/// The longest titles for which there is room.
fn length(state: &State, area: Rect) -> Length {
    let fits = |length: Length| {
        let between = usize::from(length == Length::Full);
        let widths = state.views().map(|view| title(state, view, length).chars().count() + between);
        widths.sum::<usize>() <= usize::from(area.width)
    };
    let shorter = LETTERS.into_iter().map(Length::Letters);
    std::iter::once(Length::Full).chain(shorter).find(|length| fits(*length)).unwrap_or(Length::Number)
}

/// Where each title lies.
pub(crate) fn places(state: &State, area: Rect) -> Vec<(usize, Rect)> {
    let length = length(state, area);
    let mut x = area.x;
    let mut out = Vec::new();
    for view in state.views() {
        let width = title(state, view, length).chars().count() as u16;
        if x + width > area.right() {
            break;
        }
        out.push((view, Rect { x, width, height: 1, ..area }));
        x += width + u16::from(length == Length::Full);
    }
    out
}

fn title(state: &State, view: usize, length: Length) -> String {
    let (number, name) = (opener(view), VIEWS[view].title);
    match length {
        Length::Full => format!(" {number} {} ", name),
        _ if view == state.view => format!(" {number} {} ", name),
        Length::Letters(most) => {
            let mut letters = name.split(' ').next_back().unwrap_or("").chars().take(most);
            let first = letters.next().map(|c| c.to_ascii_uppercase());
            format!(" {number} {} ", first.into_iter().chain(letters).collect::<String>())
        }
        Length::Number => format!(" {number} "),
    }
}

/// Draws the titles.
pub(crate) fn draw(state: &State, area: Rect, buf: &mut Buffer) {
    let theme = &state.theme;
    let length = length(state, area);
    for (view, place) in places(state, area) {
        let title = title(state, view, length);
        let (number, name) = title.split_at(3);
        let (first, second) = if view == state.view { (theme.tab, theme.tab) } else { (theme.accent, theme.text) };
        buf.set_string(place.x, place.y, number, first);
        buf.set_string(place.x + 3, place.y, name, second);
    }
}
