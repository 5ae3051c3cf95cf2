//! Where the parts of the screen lie. Drawing and hit-testing both ask here.

use ratatui::layout::Rect;

use super::header;
use crate::dashboard::state::State;

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
