//! What the mouse does. Views find what was drawn under it by the same functions that drew it.

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Position;

use super::dispatch::{Effect, answer, compare, in_pane, key, open, scroll_help, toggle_column};
use crate::dashboard::frame::layout::Areas;
use crate::dashboard::frame::{base, chooser, columns, export, footer, header, tabs};
use crate::dashboard::input::common::{COMPARING, EXPORTING, Motion};
use crate::dashboard::panes::{Clicked, Reply, Subject};
use crate::dashboard::state::{Overlay, State};

/// What came of it.
pub(crate) enum Moused {
    /// Nothing that can be seen.
    Nothing,
    /// Something may have changed.
    Changed,
    /// Something for the loop to do.
    Effect(Effect),
}

/// A click on a key of the footer is as if it were pressed.
fn press(state: &mut State, at: Position) -> Option<Moused> {
    let footer = Areas::of(state).footer;
    let pressed = footer::places(state, footer).into_iter().find(|(_, place)| place.contains(at));
    let event = pressed?.0.keys().first()?.event();
    Some(key(state, &event).map_or(Moused::Changed, Moused::Effect))
}

/// Handles a click or the wheel.
pub(crate) fn mouse(state: &mut State, event: &MouseEvent) -> Moused {
    let at = Position::new(event.column, event.row);
    match event.kind {
        MouseEventKind::ScrollUp => wheel(state, Motion::WheelUp, at),
        MouseEventKind::ScrollDown => wheel(state, Motion::WheelDown, at),
        MouseEventKind::Down(MouseButton::Left) if Areas::of(state).footer.contains(at) => {
            return press(state, at).unwrap_or(Moused::Nothing);
        }
        MouseEventKind::Down(button) => match state.overlay {
            Overlay::None => return click(state, button, at),
            Overlay::Help if button == MouseButton::Left => state.overlay = state.below,
            Overlay::Choose if button == MouseButton::Left => return choose(state, at),
            Overlay::Columns if button == MouseButton::Left => match columns::row_at(state, at) {
                Some(row) => {
                    state.column_selected = row;
                    toggle_column(state);
                }
                None => state.overlay = state.below,
            },
            Overlay::Base if button == MouseButton::Left => match base::row_at(state.area(), at.x, at.y) {
                Some(row) => compare(state, COMPARING[row].action),
                None => state.overlay = Overlay::None,
            },
            Overlay::Export if button == MouseButton::Left => {
                let row = export::row_at(state, at.x, at.y);
                let event = row.and_then(|row| EXPORTING[row].keys().first()).map(|key| key.event());
                match event {
                    Some(event) => return key(state, &event).map_or(Moused::Changed, Moused::Effect),
                    None => state.overlay = Overlay::None,
                }
            }
            _ => return Moused::Nothing,
        },
        MouseEventKind::Drag(MouseButton::Left) | MouseEventKind::Up(MouseButton::Left)
            if state.overlay == Overlay::None =>
        {
            let ends = matches!(event.kind, MouseEventKind::Up(_));
            let reply = in_pane(state, |pane, scene| pane.drag(at, ends, scene));
            return match reply.map(|reply| answer(state, reply)) {
                Some(Some(effect)) => Moused::Effect(effect),
                Some(None) => Moused::Changed,
                None => Moused::Nothing,
            };
        }
        _ => return Moused::Nothing,
    }
    Moused::Changed
}

/// A click on a process selects it; one on the selected one watches it.
fn choose(state: &mut State, at: Position) -> Moused {
    let list = chooser::list_area(state);
    let selected = state.selected_process().map(|row| row.pid);
    match state.process_rows.click(at, list) {
        None => return Moused::Nothing,
        Some(Clicked::Title) => state.order_processes(selected),
        Some(Clicked::Row) => {}
        Some(Clicked::Again) => {
            return state.choose().map_or(Moused::Changed, |watched| Moused::Effect(Effect::Watch(watched)));
        }
    }
    Moused::Changed
}

fn wheel(state: &mut State, motion: Motion, at: Position) {
    match state.overlay {
        Overlay::Help => scroll_help(state, motion),
        Overlay::Choose => {
            state.process_rows.go(motion);
        }
        _ => in_pane(state, |pane, scene| pane.wheel(motion, at, scene)),
    }
}

fn click(state: &mut State, button: MouseButton, at: Position) -> Moused {
    state.note = None;
    let areas = Areas::of(state);
    if areas.tabs.contains(at) && button == MouseButton::Left {
        let tab = tabs::places(state, areas.tabs).into_iter().find(|(_, place)| place.contains(at));
        if let Some((view, _)) = tab {
            open(state, view);
        }
        return Moused::Changed;
    }
    let shows = match () {
        () if areas.finding.contains(at) => Some(Subject::View("findings")),
        () if areas.banner.contains(at) && header::is_of_family(state, at.y - areas.banner.y) => {
            Some(Subject::Processes)
        }
        () => None,
    };
    if let Some(subject) = shows {
        return answer(state, Reply::Show(subject)).map_or(Moused::Changed, Moused::Effect);
    }
    let reply = in_pane(state, |pane, scene| pane.click(button, at, scene));
    match reply.and_then(|reply| answer(state, reply)) {
        Some(effect) => Moused::Effect(effect),
        None => Moused::Changed,
    }
}
