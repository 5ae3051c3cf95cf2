//! The screen: header, banner, tabs, one view, footer, and what lies over them. Every function draws a part of the
//! state into a buffer and changes nothing.

pub(crate) mod base;
pub(crate) mod chooser;
pub(crate) mod columns;
pub(crate) mod confirm;
pub(crate) mod export;
pub(crate) mod filter;
pub(crate) mod finding;
pub(crate) mod footer;
pub(crate) mod header;
pub(crate) mod help;
pub(crate) mod keys;
pub(crate) mod layout;
pub(crate) mod tabs;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Widget};

use super::panes::{Source, VIEWS};
use super::state::{Overlay, State};
use super::widgets::ascii::to_ascii;
use super::widgets::plain::wrapped;
use layout::Areas;

/// The least columns that the dashboard is drawn in.
pub(crate) const MIN_WIDTH: u16 = 60;
/// The least rows.
pub(crate) const MIN_HEIGHT: u16 = 15;

/// Draws the whole screen.
pub(crate) fn draw(state: &State, buf: &mut Buffer) {
    draw_all(state, buf);
    if state.theme.ascii {
        to_ascii(buf);
    }
}

fn draw_all(state: &State, buf: &mut Buffer) {
    let area = state.area();
    if area != buf.area {
        // The terminal has another size by now: its event is on the way, and the next frame fits.
        return;
    }
    if area.width < MIN_WIDTH || area.height < MIN_HEIGHT {
        return too_small(state, area, buf);
    }
    let areas = Areas::of(state);
    header::draw(state, areas.header, buf);
    header::draw_banners(state, areas.banner, buf);
    tabs::draw(state, areas.tabs, buf);
    filter::draw(state, areas.filter, buf);
    if state.model.is_none() && VIEWS[state.view].source == Source::Readings {
        waiting(state, areas.body, buf);
    } else {
        state.pane().draw(&state.scene(areas.body), buf);
    }
    finding::draw(state, areas.finding, buf);
    footer::draw(state, areas.footer, buf);
    match state.overlay {
        Overlay::None => {}
        Overlay::Help | Overlay::Columns => {
            if state.below == Overlay::Choose {
                chooser::draw(state, area, buf);
            }
            match state.overlay {
                Overlay::Columns => columns::draw(state, area, buf),
                _ => help::draw(state, area, buf),
            }
        }
        Overlay::Confirm | Overlay::Ending => confirm::draw(state, area, buf),
        Overlay::Choose => chooser::draw(state, area, buf),
        Overlay::Export => export::draw(state, area, buf),
        Overlay::Base | Overlay::BaseFile => base::draw(state, area, buf),
    }
}

fn waiting(state: &State, area: Rect, buf: &mut Buffer) {
    let text = match (&state.trouble, state.ended.is_some()) {
        (Some(trouble), _) => trouble.clone(),
        (None, true) => format!("{} ended before a first reading.", state.label),
        (None, false) => format!("Waiting for the first reading of {} …", state.label),
    };
    let lines = wrapped(&text, usize::from(area.width.saturating_sub(4)));
    centred(area, buf, lines.into_iter().map(|line| Line::styled(line, state.theme.dim)).collect());
}

fn too_small(state: &State, area: Rect, buf: &mut Buffer) {
    let said = [
        ("The terminal is too small.".to_owned(), state.theme.strong),
        (format!("{}x{}, and it takes {MIN_WIDTH}x{MIN_HEIGHT}", area.width, area.height), state.theme.dim),
        ("q quits".to_owned(), state.theme.dim),
    ];
    let broken = |(text, style): (String, _)| {
        wrapped(&text, area.width.into()).into_iter().map(move |line| Line::styled(line, style))
    };
    centred(area, buf, said.into_iter().flat_map(broken).collect());
}

fn centred(area: Rect, buf: &mut Buffer, lines: Vec<Line<'_>>) {
    let height = (lines.len() as u16).min(area.height);
    let y = area.y + (area.height - height) / 2;
    Paragraph::new(lines).centered().render(Rect { y, height, ..area }, buf);
}
