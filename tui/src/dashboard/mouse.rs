//! What the mouse does: it finds what was drawn under it by the same functions that drew it.

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};

use super::keys::Action;
use super::state::{Overlay, State, View};
use super::update::{Effect, apply, go, select_row, sort_by, vertical};
use super::views::{self, layout};
use super::widgets::panel::inside;

/// Rows that the wheel moves by.
const WHEEL: isize = 3;

/// Handles a click or the wheel; whether anything may have changed, and what the loop has to do.
pub(crate) fn mouse(state: &mut State, event: &MouseEvent) -> (bool, Option<Effect>) {
    match event.kind {
        MouseEventKind::ScrollUp => vertical(state, -WHEEL, None),
        MouseEventKind::ScrollDown => vertical(state, WHEEL, None),
        MouseEventKind::Down(MouseButton::Left) if state.overlay == Overlay::None => {
            return (true, click(state, event.column, event.row));
        }
        MouseEventKind::Down(MouseButton::Left) if state.overlay == Overlay::Help => state.overlay = Overlay::None,
        MouseEventKind::Down(MouseButton::Right) if state.view == View::Flame => {
            return (true, apply(state, Action::Back));
        }
        _ => return (false, None),
    }
    (true, None)
}

fn click(state: &mut State, x: u16, y: u16) -> Option<Effect> {
    state.note = None;
    let areas = layout::Areas::of(state);
    if areas.tabs.contains((x, y).into()) {
        let tab = views::tabs::places(state, areas.tabs).into_iter().find(|(_, p)| p.contains((x, y).into()));
        if let Some((view, _)) = tab {
            go(state, view);
        }
        return None;
    }
    match state.view {
        View::Overview => {
            let list = inside(views::overview::parts(state, areas.body).sites);
            let rows = state.model.as_ref().map_or(0, |m| State::top_sites(m).len());
            let row = views::overview::sites_table(state, rows).row_at(list, x, y)?;
            if state.top_selected == row {
                return apply(state, Action::Enter);
            }
            state.top_selected = row;
        }
        View::Classes | View::Sites | View::Threads => {
            let area = layout::table_area(state)?;
            let table = match state.view {
                View::Classes => views::classes::table(state),
                View::Sites => views::sites::table(state),
                _ => views::threads::table(state),
            };
            if let Some(column) = table.title_at(area, x, y) {
                sort_by(state, column);
            } else if let Some(row) = table.row_at(area, x, y) {
                select_row(state, row);
            }
        }
        View::Flame => {
            let model = state.model.clone()?;
            let node = views::flame::graph(state, &model).node_at(layout::flame_area(state), x, y)?;
            if state.flame.selected == node {
                return apply(state, Action::Enter);
            }
            state.flame.select(&model.flame, node);
        }
        View::Gpu => {
            let rows = state.model.as_ref().map_or(0, |m| m.devices.len());
            let list = inside(views::gpu::devices_area(areas.body, rows));
            state.device_selected = views::gpu::table(state, rows).row_at(list, x, y)?;
        }
        View::Output => {}
    }
    None
}
