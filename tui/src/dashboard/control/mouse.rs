//! What the mouse does. Views find what was drawn under it by the same functions that drew it.

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Position;

use super::dispatch::{answer, in_pane, open, scroll_help};
use crate::dashboard::frame::layout::Areas;
use crate::dashboard::frame::tabs;
use crate::dashboard::input::common::Motion;
use crate::dashboard::state::{Overlay, State};

/// Handles a click or the wheel; whether anything may have changed.
pub(crate) fn mouse(state: &mut State, event: &MouseEvent) -> bool {
    let at = Position::new(event.column, event.row);
    match event.kind {
        MouseEventKind::ScrollUp => wheel(state, Motion::WheelUp, at),
        MouseEventKind::ScrollDown => wheel(state, Motion::WheelDown, at),
        MouseEventKind::Down(button) => match state.overlay {
            Overlay::None => click(state, button, at),
            Overlay::Help if button == MouseButton::Left => state.overlay = Overlay::None,
            _ => return false,
        },
        _ => return false,
    }
    true
}

fn wheel(state: &mut State, motion: Motion, at: Position) {
    match state.overlay {
        Overlay::Help => scroll_help(state, motion),
        _ => in_pane(state, |pane, scene| pane.wheel(motion, at, scene)),
    }
}

fn click(state: &mut State, button: MouseButton, at: Position) {
    state.note = None;
    let areas = Areas::of(state);
    if areas.tabs.contains(at) && button == MouseButton::Left {
        let tab = tabs::places(state, areas.tabs).into_iter().find(|(_, place)| place.contains(at));
        if let Some((view, _)) = tab {
            open(state, view);
        }
        return;
    }
    if let Some(reply) = in_pane(state, |pane, scene| pane.click(button, at, scene)) {
        answer(state, reply);
    }
}
