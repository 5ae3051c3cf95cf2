//! The help: every key, from the table of keys. What is typed narrows it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph, Widget};

use super::keys::{self, HelpSection, LEAVING_TITLE};
use crate::dashboard::input::key::Binding;
use crate::dashboard::state::State;
use crate::dashboard::widgets::panel::panel;
use crate::dashboard::widgets::plain::wrapped;
use crate::dashboard::widgets::table::put;

/// Columns of the keys.
const KEYS: usize = 12;
/// Columns of the frame, with a blank on each side.
const FRAME: usize = 4;

/// The parts of the help that what was typed leaves.
fn sections(state: &State) -> Vec<HelpSection> {
    let mut sections = keys::help(&state.panes);
    sections.retain(|(title, _)| *title != LEAVING_TITLE || state.owns_program);
    let words = state.help_filter.text();
    let words: Vec<&str> = words.split_whitespace().collect();
    let left = |is_meant: &dyn Fn(&Binding, &str) -> bool| -> Vec<HelpSection> {
        let part = |(title, bindings): &HelpSection| {
            let kept: Vec<Binding> = bindings.iter().filter(|binding| is_meant(binding, title)).copied().collect();
            (!kept.is_empty()).then_some((*title, kept))
        };
        sections.iter().filter_map(part).collect()
    };
    // A letter alone is a key, if there is one; so is the name of a key.
    if let [key] = words[..] {
        let has_key = |binding: &Binding, _: &str| binding.keys().iter().any(|known| known.label() == key);
        let found = left(&has_key);
        if !found.is_empty() {
            return found;
        }
    }
    left(&|binding, title| {
        let text = format!("{} {} {} {title}", binding.key_labels(), binding.label, binding.help).to_lowercase();
        words.iter().all(|word| text.contains(&word.to_lowercase()))
    })
}

/// All lines of the help that are left.
pub(crate) fn lines(state: &State) -> Vec<Line<'static>> {
    let theme = &state.theme;
    let room = usize::from(width(state.area())).saturating_sub(FRAME + 2 + KEYS);
    let mut out = Vec::new();
    for (title, bindings) in sections(state) {
        if !out.is_empty() {
            out.push(Line::default());
        }
        out.push(Line::styled(title, theme.accent));
        for binding in bindings {
            let mut keys = binding.key_labels();
            for part in wrapped(binding.help, room) {
                let keys = std::mem::take(&mut keys);
                out.push(Line::from(vec![
                    Span::styled(format!("  {keys:<KEYS$}"), theme.strong),
                    Span::styled(part, theme.text),
                ]));
            }
        }
    }
    if out.is_empty() {
        out.push(Line::styled("No key is about that. Esc shows all.", theme.dim));
    }
    out
}

/// The lines that fit into the help at once, below what is typed.
pub(crate) fn room(area: Rect) -> u16 {
    area.height.saturating_sub(5)
}

/// Its columns, with its frame.
fn width(area: Rect) -> u16 {
    area.width.saturating_sub(4).min(90)
}

/// Draws the help over the screen.
pub(crate) fn draw(state: &State, area: Rect, buf: &mut Buffer) {
    let theme = &state.theme;
    let lines = lines(state);
    let width = width(area);
    // It stays where it is while it is narrowed.
    let height = room(area) + 3;
    let place = Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    // Beside it, figures would be cut.
    Clear.render(Rect { x: area.x, width: area.width, ..place }, buf);
    let right = if lines.len() > usize::from(room(area)) { "↑ ↓ scroll · Esc close" } else { "Esc close" };
    let inner = panel(place, buf, theme, "Keys", Line::styled(right, theme.dim));
    put(buf, inner.x, inner.y, inner.width, false, typed(state));
    let list = Rect { y: inner.y + 1, height: inner.height.saturating_sub(1), ..inner };
    let scroll = state.help_scroll.min((lines.len() as u16).saturating_sub(list.height));
    Paragraph::new(lines).scroll((scroll, 0)).render(list, buf);
}

/// What is typed, with its cursor.
fn typed(state: &State) -> Line<'static> {
    let theme = &state.theme;
    let (before, after) = state.help_filter.parts();
    let mut rest = after.chars();
    let under = rest.next().unwrap_or(' ').to_string();
    let mut spans = vec![
        Span::styled("only ", theme.dim),
        Span::styled(before, theme.strong),
        Span::styled(under, theme.strong.add_modifier(Modifier::REVERSED)),
        Span::styled(rest.collect::<String>(), theme.strong),
    ];
    if state.help_filter.is_empty() {
        spans.push(Span::styled(" type a word, or a key", theme.faint));
    }
    Line::from(spans)
}
