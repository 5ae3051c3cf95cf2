//! The flamegraph, and below it what is selected and what the search found.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::super::flame_tree::{FlameTree, format_value};
use super::super::model::Model;
use super::super::state::State;
use super::super::widgets::flame::FlameGraph;
use super::super::widgets::panel::panel;
use super::super::widgets::table::put;
use crate::words::{clip, numbers};

/// Lines below the cells.
pub(crate) const FOOT: u16 = 3;

/// The graph of the state, for drawing and hit-testing.
pub(crate) fn graph<'a>(state: &'a State, model: &'a Model) -> FlameGraph<'a> {
    FlameGraph {
        tree: &model.flame,
        metric: state.flame.metric,
        zoom: state.flame.zoom,
        selected: state.flame.selected,
        pattern: state.flame.pattern.as_ref(),
    }
}

/// Draws the view.
pub(crate) fn draw(state: &State, model: &Model, body: Rect, buf: &mut Buffer) {
    let theme = &state.theme;
    let flame = &state.flame;
    let tree = &*model.flame;
    let total = tree.value(FlameTree::ROOT, flame.metric);
    let right = Line::from(vec![
        Span::styled(flame.metric.describe(), theme.text),
        Span::styled(format!(" · {}", format_value(flame.metric, total)), theme.strong),
    ]);
    let inner = panel(body, buf, theme, "Flamegraph", right);
    let cells = super::layout::flame_area(state);
    if total <= 0.0 {
        buf.set_string(inner.x, inner.y, "Nothing sampled yet.", theme.dim);
        return;
    }
    graph(state, model).draw(cells, buf, theme);

    let y = cells.bottom();
    let node = tree.node(flame.selected);
    let value = tree.value(flame.selected, flame.metric);
    let zoomed = tree.value(flame.zoom, flame.metric);
    let mut figures = format!("{}  {} of all", format_value(flame.metric, value), numbers::percent(value, total));
    if flame.zoom != FlameTree::ROOT {
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
    let editing = state.editing;
    if editing || !flame.search.is_empty() {
        let area = Rect { y: y + 2, height: 1, ..inner };
        let literal = flame.pattern.as_ref().is_some_and(|p| p.literal);
        super::sites::edit_line("search", &flame.search, editing, literal, area, buf, theme);
        if let Some((value, count)) = flame.matched(tree) {
            let text = match count {
                0 => "no match".to_owned(),
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
