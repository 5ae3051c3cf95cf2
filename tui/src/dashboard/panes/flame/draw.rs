//! How the flamegraph and what is said below it are drawn.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::Flame;
use crate::dashboard::model::Model;
use crate::dashboard::model::flame_tree::{FlameTree, format_value};
use crate::dashboard::panes::Scene;
use crate::dashboard::widgets::flame::FlameGraph;
use crate::dashboard::widgets::panel::{inside, panel};
use crate::dashboard::widgets::search_line::search_line;
use crate::dashboard::widgets::table::put;
use crate::words::{clip, numbers};

/// Lines below the cells.
const FOOT: u16 = 3;

/// Where the cells lie.
pub(super) fn cells_area(body: Rect) -> Rect {
    let inner = inside(body);
    Rect { height: inner.height.saturating_sub(FOOT), ..inner }
}

impl Flame {
    /// The graph, for drawing and hit-testing.
    pub(super) fn graph<'a>(&'a self, model: &'a Model) -> FlameGraph<'a> {
        FlameGraph {
            tree: &model.flame,
            metric: self.state.metric,
            zoom: self.state.zoom,
            selected: self.state.selected,
            pattern: self.search.pattern(),
        }
    }

    /// Draws the view.
    pub(super) fn draw_in(&self, scene: &Scene<'_>, buf: &mut Buffer) {
        let Some(model) = scene.model else { return };
        let (theme, flame) = (scene.theme, &self.state);
        let tree = &*model.flame;
        let total = tree.value(FlameTree::ROOT, flame.metric);
        let right = Line::from(vec![
            Span::styled(flame.metric.describe(), theme.text),
            Span::styled(format!(" · {}", format_value(flame.metric, total)), theme.strong),
        ]);
        let inner = panel(scene.body, buf, theme, "Flamegraph", right);
        let cells = cells_area(scene.body);
        if total <= 0.0 {
            buf.set_string(inner.x, inner.y, "Nothing sampled yet.", theme.dim);
            return;
        }
        self.graph(model).draw(cells, buf, theme);

        let y = cells.bottom();
        let node = tree.node(flame.selected);
        let value = tree.value(flame.selected, flame.metric);
        let zoomed = tree.value(flame.zoom, flame.metric);
        let mut figures = format!("{}  {} of all", format_value(flame.metric, value), numbers::percent(value, total));
        if flame.zoom != FlameTree::ROOT && tree.is_within(flame.selected, flame.zoom) {
            figures += &format!("  {} of the zoom", numbers::percent(value, zoomed));
        }
        let width = usize::from(inner.width);
        let room = width.saturating_sub(figures.chars().count() + 2);
        for x in inner.left()..inner.right() {
            buf.set_string(x, y, "─", theme.faint);
        }
        buf.set_string(inner.x, y + 1, clip(&node.name, room), theme.strong);
        put(buf, inner.x, y + 1, inner.width, true, Line::styled(figures, theme.live));
        let place = match (node.place.is_empty(), node.module.is_empty()) {
            (true, _) => node.module.clone(),
            (false, false) if node.place != node.module => format!("{}  in {}", node.place, node.module),
            _ => node.place.clone(),
        };
        if self.search.is_shown() {
            let area = Rect { y: y + 2, height: 1, ..inner };
            search_line("search", &self.search, area, buf, theme);
            if let Some(pattern) = self.search.pattern() {
                let (value, count) = flame.matched(tree, pattern);
                let text = match count {
                    0 => match flame.matched_anywhere(tree, pattern).1 {
                        0 => "no match".to_owned(),
                        others => {
                            format!("none in the zoom, {} outside: n goes there", numbers::grouped(others as u64))
                        }
                    },
                    _ => format!(
                        "{} in {} {}: {}  n next",
                        format_value(flame.metric, value),
                        numbers::grouped(count as u64),
                        if count == 1 { "function" } else { "functions" },
                        numbers::percent(value, zoomed)
                    ),
                };
                put(buf, inner.x, y + 2, inner.width, true, Line::styled(text, theme.warn));
            }
        } else {
            buf.set_string(inner.x, y + 2, clip(&place, width), theme.dim);
        }
    }
}
