//! How the flamegraph and what is said below it are drawn.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use unicode_width::UnicodeWidthStr;

use super::Flame;
use crate::dashboard::model::flame_tree::{FlameTree, format_change, format_value};
use crate::dashboard::panes::Scene;
use crate::dashboard::theme::Theme;
use crate::dashboard::widgets::flame::{Colour, FlameGraph, module_style};
use crate::dashboard::widgets::panel::{inside, panel};
use crate::dashboard::widgets::search_line::search_line;
use crate::dashboard::widgets::table::put;
use crate::words::name::clip_name;
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
    pub(super) fn graph(&self) -> FlameGraph<'_> {
        FlameGraph {
            tree: &self.tree,
            metric: self.state.metric,
            zoom: self.state.zoom,
            selected: self.state.selected,
            pattern: self.search.pattern(),
            colour: self.colour,
            modules: &self.modules,
        }
    }

    /// Draws the view.
    pub(super) fn draw_in(&self, scene: &Scene<'_>, buf: &mut Buffer) {
        let (theme, flame, tree) = (scene.theme, &self.state, &*self.tree);
        let total = tree.value(FlameTree::ROOT, flame.metric);
        let (what, figure) = match tree.is_change {
            true => (format!("change of {}", flame.metric.describe()), format_change(flame.metric, total)),
            false => (flame.metric.describe().to_owned(), format_value(flame.metric, total)),
        };
        let right =
            Line::from(vec![Span::styled(what, theme.text), Span::styled(format!(" · {figure}"), theme.strong)]);
        let title = if self.shape.inverted { "Flamegraph, inverted" } else { "Flamegraph" };
        let inner = panel(scene.body, buf, theme, title, right);
        let cells = cells_area(scene.body);
        if tree.width(FlameTree::ROOT, flame.metric) <= 0.0 {
            let nothing = if tree.is_change { "Nothing has changed." } else { "Nothing sampled yet." };
            buf.set_string(inner.x, inner.y, nothing, theme.dim);
            return;
        }
        self.graph().draw(cells, buf, theme);
        let below = Rect { y: cells.bottom(), height: inner.bottom() - cells.bottom(), ..inner };
        self.draw_legend(theme, Rect { height: 1, ..below }, buf);
        self.draw_selected(theme, total, Rect { y: below.y + 1, height: 1, ..below }, buf);
        let last = Rect { y: below.y + 2, height: 1, ..below };
        if self.search.is_shown() {
            self.draw_search(theme, last, buf);
        } else {
            let label = tree.label(flame.selected);
            let place = match (label.place.is_empty(), label.module.is_empty()) {
                (true, _) => label.module.clone(),
                (false, false) if label.place != label.module => format!("{}  in {}", label.place, label.module),
                _ => label.place.clone(),
            };
            buf.set_string(last.x, last.y, clip(&place, last.width.into()), theme.dim);
        }
    }

    /// What the colours mean, and what is not shown, on the line below the cells.
    fn draw_legend(&self, theme: &Theme, line: Rect, buf: &mut Buffer) {
        for x in line.left()..line.right() {
            buf.set_string(x, line.y, "─", theme.faint);
        }
        let mut parts: Vec<(Option<Style>, String)> = Vec::new();
        if self.tree.is_change {
            parts.push((Some(theme.grew[1]), "grew".into()));
            parts.push((Some(theme.shrank[1]), "shrank".into()));
            parts.push((None, "as wide as what changed".into()));
        } else {
            match self.colour {
                Colour::Function => {}
                Colour::Growth => {
                    parts.push((Some(theme.grew[1]), "grows most".into()));
                    parts.push((Some(theme.grew[0]), "grows".into()));
                    parts.push((Some(theme.shrank[0]), "shrinks".into()));
                    parts.push((Some(theme.level), "level, or not known".into()));
                }
                Colour::Module => {
                    let modules = self.modules.iter().enumerate().take(theme.flame.len());
                    parts.extend(modules.map(|(at, name)| (Some(module_style(theme, at)), name.clone())));
                }
            }
        }
        if !self.hidden.is_empty() {
            parts.push((None, format!("hidden: {} (X shows)", self.hidden.join(", "))));
        }
        let mut x = line.x;
        for (style, text) in parts {
            let width = text.width() as u16 + if style.is_some() { 4 } else { 1 };
            if x + width + 1 > line.right() {
                return;
            }
            buf.set_string(x, line.y, " ", theme.text);
            x += 1;
            if let Some(style) = style {
                buf.set_string(x, line.y, "  ", style);
                x += 2;
                buf.set_string(x, line.y, " ", theme.text);
                x += 1;
            }
            buf.set_string(x, line.y, &text, theme.dim);
            x += text.width() as u16;
            buf.set_string(x, line.y, " ", theme.text);
        }
    }

    fn draw_selected(&self, theme: &Theme, total: f64, line: Rect, buf: &mut Buffer) {
        let (flame, tree) = (&self.state, &*self.tree);
        let value = tree.value(flame.selected, flame.metric);
        let mut figures = match tree.is_change {
            true => format_change(flame.metric, value),
            false => format!("{}  {} of all", format_value(flame.metric, value), numbers::percent(value, total)),
        };
        if !tree.is_change && flame.zoom != FlameTree::ROOT && tree.is_within(flame.selected, flame.zoom) {
            let zoomed = tree.value(flame.zoom, flame.metric);
            figures += &format!("  {} of the zoom", numbers::percent(value, zoomed));
        }
        let room = usize::from(line.width).saturating_sub(figures.chars().count() + 2);
        buf.set_string(line.x, line.y, clip_name(tree.name(flame.selected), room), theme.strong);
        put(buf, line.x, line.y, line.width, true, Line::styled(figures, theme.live));
    }

    fn draw_search(&self, theme: &Theme, line: Rect, buf: &mut Buffer) {
        let (flame, tree) = (&self.state, &*self.tree);
        search_line("search", &self.search, line, buf, theme);
        let Some(pattern) = self.search.pattern() else { return };
        let (value, count) = flame.matched(tree, pattern);
        let text = match count {
            0 => match flame.matched_anywhere(tree, pattern).1 {
                0 => "no match".to_owned(),
                others => format!("none in the zoom, {} outside: n goes there", numbers::grouped(others as u64)),
            },
            _ => format!(
                "{} in {} {}: {}  n next",
                format_value(flame.metric, value),
                numbers::grouped(count as u64),
                if count == 1 { "function" } else { "functions" },
                numbers::percent(value, tree.value(flame.zoom, flame.metric))
            ),
        };
        put(buf, line.x, line.y, line.width, true, Line::styled(text, theme.warn));
    }
}
