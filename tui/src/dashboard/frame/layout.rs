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
    /// The filter; empty if there is none.
    pub(crate) filter: Rect,
    /// The view.
    pub(crate) body: Rect,
    /// The most important finding; empty if there is none, or no room for it.
    pub(crate) finding: Rect,
    /// Keys.
    pub(crate) footer: Rect,
}

/// Rows from which on a finding has a line of its own.
const ROOMY: u16 = 20;

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
        let filter = take(u16::from(state.filter.is_shown()));
        let says = state.model.as_ref().is_some_and(|model| !model.findings.is_empty());
        let finding = u16::from(says && area.height >= ROOMY);
        let left =
            area.height.saturating_sub(header.height + banner.height + tabs.height + filter.height + finding + 1);
        let body = take(left);
        let finding = take(finding);
        let footer = take(1);
        Areas { header, banner, tabs, filter, body, finding, footer }
    }
}
