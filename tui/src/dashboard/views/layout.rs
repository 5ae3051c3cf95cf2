//! Where the parts of the screen lie. Drawing and hit-testing both ask here.

use ratatui::layout::Rect;

use super::super::state::{State, View};
use super::super::widgets::panel::inside;
use super::{classes, header, sites, threads};

/// The parts of the screen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Areas {
    /// Process and figures.
    pub(crate) header: Rect,
    /// Warnings, one a line; empty if there are none.
    pub(crate) banner: Rect,
    /// Titles of the views.
    pub(crate) tabs: Rect,
    /// The view.
    pub(crate) body: Rect,
    /// Keys.
    pub(crate) footer: Rect,
}

impl Areas {
    /// For the state's size.
    pub(crate) fn of(state: &State) -> Areas {
        let area = state.area();
        let mut y = area.y;
        let mut take = |rows: u16| {
            let rows = rows.min(area.bottom() - y);
            let part = Rect { y, height: rows, ..area };
            y += rows;
            part
        };
        let header = take(header::height(area.height));
        let banner = take(header::banners(state).len() as u16);
        let tabs = take(1);
        let left = area.height.saturating_sub(header.height + banner.height + tabs.height + 1);
        let body = take(left);
        let footer = take(1);
        Areas { header, banner, tabs, body, footer }
    }
}

/// Where the rows of the view's table lie, with the line of titles.
pub(crate) fn table_area(state: &State) -> Option<Rect> {
    let body = Areas::of(state).body;
    match state.view {
        View::Classes => Some(classes::table_area(body)),
        View::Sites => Some(sites::areas(state, body).table),
        View::Threads => Some(threads::table_area(body)),
        _ => None,
    }
}

/// Frames that the stack of the call site has room for, beside the line that says how many there are.
pub(crate) fn stack_room(state: &State) -> usize {
    let body = Areas::of(state).body;
    usize::from(inside(sites::areas(state, body).detail).height.saturating_sub(1))
}

/// Where the cells of the flamegraph lie.
pub(crate) fn flame_area(state: &State) -> Rect {
    let inner = inside(Areas::of(state).body);
    Rect { height: inner.height.saturating_sub(super::flame::FOOT), ..inner }
}
