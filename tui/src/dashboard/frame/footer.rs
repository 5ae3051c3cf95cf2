//! The last line: the keys that hold now, from the table of keys, or a remark. A click on a key is as if it were
//! pressed.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::keys::bindings;
use crate::dashboard::input::key::Binding;
use crate::dashboard::state::State;
use crate::words::clip;

/// Where the keys lie for which there is room. The way out and the help come first, and always have it.
pub(crate) fn places(state: &State, area: Rect) -> Vec<(Binding, Rect)> {
    let room = area.right().saturating_sub(note(state).chars().count() as u16);
    let mut x = area.x + 1;
    let mut out = Vec::new();
    for binding in bindings(state.context(), state.pane()).into_iter().filter(|binding| binding.footer) {
        let width = (binding.first_label().chars().count() + 1 + binding.label.chars().count()) as u16;
        if x + width > room {
            break;
        }
        out.push((binding, Rect { x, y: area.y, width, height: 1 }));
        x += width + 3;
    }
    out
}

fn note(state: &State) -> String {
    state.note.as_ref().map(|note| format!(" {note} ")).unwrap_or_default()
}

/// Draws the footer.
pub(crate) fn draw(state: &State, area: Rect, buf: &mut Buffer) {
    let theme = &state.theme;
    for (binding, place) in places(state, area) {
        let key = binding.first_label();
        buf.set_string(place.x, place.y, &key, theme.accent);
        buf.set_string(place.x + key.chars().count() as u16 + 1, place.y, binding.label, theme.dim);
    }
    let note = clip(&note(state), area.width.into());
    let width = note.chars().count() as u16;
    buf.set_string(area.right().saturating_sub(width), area.y, note, theme.warn);
}
