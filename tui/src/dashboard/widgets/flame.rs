//! Where the cells of a flamegraph lie, and how they are drawn. The root is on top; callees hang below.

use std::hash::{DefaultHasher, Hash, Hasher};

use poolscope_profiler::Metric;
use poolscope_profiler::symbols::function_name::short;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::dashboard::input::find::Pattern;
use crate::dashboard::model::flame_path::{Label, RUNTIME};
use crate::dashboard::model::flame_tree::{FlameTree, format_change};
use crate::dashboard::theme::Theme;

use super::split::{Part, split};
use crate::words::name::clip_name;
use crate::words::{clip, numbers};

/// A cell: a node, or what was too thin below one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    /// Steps from the root.
    pub(crate) row: u16,
    /// Columns from the left.
    pub(crate) x: u16,
    /// Columns, at least one.
    pub(crate) width: u16,
    /// The node.
    pub(crate) what: What,
}

/// What a cell stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A node.
    Node(usize),
    /// So many nodes.
    More(usize),
}

/// The cells of a tree that is zoomed into one node: its ancestors over the whole width, then itself, then below.
pub(crate) fn lay_out(tree: &FlameTree, metric: Metric, zoom: usize, width: u16) -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut at = zoom;
    while at != FlameTree::ROOT {
        at = tree.node(at).parent;
        cells.push(Cell { row: tree.node(at).depth as u16, x: 0, width, what: What::Node(at) });
    }
    cells.reverse();
    let mut queue = std::collections::VecDeque::from([(zoom, 0u16, width)]);
    while let Some((at, x, width)) = queue.pop_front() {
        if width == 0 {
            continue;
        }
        let node = tree.node(at);
        cells.push(Cell { row: node.depth as u16, x, width, what: What::Node(at) });
        let values: Vec<f64> = node.children.iter().map(|&c| tree.width(c, metric)).collect();
        let mut left = x;
        for (part, columns) in split(&values, tree.width(at, metric), width) {
            match part {
                Part::Child(index) => queue.push_back((node.children[index], left, columns)),
                Part::More(count) => {
                    cells.push(Cell { row: node.depth as u16 + 1, x: left, width: columns, what: What::More(count) })
                }
            }
            left += columns;
        }
    }
    cells
}

/// Rows above the zoom that are drawn.
const ABOVE: u16 = 3;

/// What the colours of cells mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Colour {
    /// Each function keeps one, and it means nothing else.
    #[default]
    Function,
    /// The executable or library that the function is in.
    Module,
    /// What grows.
    Growth,
}

impl Colour {
    /// The one after this in the switch.
    pub(crate) fn next(self) -> Colour {
        match self {
            Colour::Function => Colour::Module,
            Colour::Module => Colour::Growth,
            Colour::Growth => Colour::Function,
        }
    }
}

/// What a flamegraph shows.
pub(crate) struct FlameGraph<'a> {
    /// The tree.
    pub(crate) tree: &'a FlameTree,
    /// The figure.
    pub(crate) metric: Metric,
    /// The node that takes the whole width.
    pub(crate) zoom: usize,
    /// The selected node.
    pub(crate) selected: usize,
    /// What is searched for.
    pub(crate) pattern: Option<&'a Pattern>,
    /// What the colours mean; of changes they always say what grew and what shrank.
    pub(crate) colour: Colour,
    /// The modules there are, the largest first: each has a colour.
    pub(crate) modules: &'a [String],
}

/// Whether a search finds a function.
pub(crate) fn is_match(pattern: &Pattern, label: &Label) -> bool {
    pattern.matches(&label.name) || pattern.matches(&label.place) || pattern.matches(&label.module)
}

impl FlameGraph<'_> {
    /// The first row that is drawn, so that the selected one is visible. Of what lies above the zoom, as many rows as
    /// say where it is.
    pub(crate) fn first_row(&self, height: u16) -> u16 {
        let depth = |node| self.tree.node(node).depth as u16;
        let zoomed = depth(self.zoom).saturating_sub(ABOVE).min(depth(self.selected));
        zoomed.max((depth(self.selected) + 2).saturating_sub(height))
    }

    /// The node under a point.
    pub(crate) fn node_at(&self, area: Rect, x: u16, y: u16) -> Option<usize> {
        if !area.contains((x, y).into()) {
            return None;
        }
        let (x, row) = (x - area.x, y - area.y + self.first_row(area.height));
        lay_out(self.tree, self.metric, self.zoom, area.width).into_iter().find_map(|c| match c.what {
            What::Node(node) if c.row == row && (c.x..c.x + c.width).contains(&x) => Some(node),
            _ => None,
        })
    }

    /// Draws the cells.
    pub(crate) fn draw(&self, area: Rect, buf: &mut Buffer, theme: &Theme) {
        let first = self.first_row(area.height);
        let mut deepest = 0;
        for cell in lay_out(self.tree, self.metric, self.zoom, area.width) {
            deepest = deepest.max(cell.row);
            let Some(line) = cell.row.checked_sub(first).filter(|&line| line < area.height) else { continue };
            let (x, y, width) = (area.x + cell.x, area.y + line, usize::from(cell.width));
            let (text, style) = match cell.what {
                What::More(count) => (clip(&format!("┆{count} more"), width), theme.dim),
                What::Node(at) => {
                    let node = self.tree.node(at);
                    let found = self.pattern.is_some_and(|p| is_match(p, self.tree.label(at)));
                    let style = if at == self.selected {
                        theme.strong.patch(theme.selected).add_modifier(ratatui::style::Modifier::REVERSED)
                    } else if found {
                        theme.found
                    } else if node.depth < self.tree.node(self.zoom).depth {
                        theme.flame_above
                    } else {
                        self.style(theme, at)
                    };
                    (self.label(at, width), style)
                }
            };
            buf.set_string(x, y, format!("{text:<width$}"), style);
        }
        if deepest >= first + area.height {
            let note = format!(" {} deeper ▾ ", deepest + 1 - first - area.height);
            let x = area.right().saturating_sub(note.chars().count() as u16);
            buf.set_string(x, area.bottom() - 1, note, theme.flame_above);
        }
        if first > 0 {
            let note = format!(" {first} above ▴ ");
            let x = area.right().saturating_sub(note.chars().count() as u16);
            buf.set_string(x, area.y, note, theme.flame_above);
        }
    }

    /// `▏name 12.3%`: the left edge keeps neighbours apart whatever their colours.
    fn label(&self, at: usize, width: usize) -> String {
        if width < 4 {
            return clip("▏", width);
        }
        let name = short(self.tree.name(at));
        let value = self.tree.value(at, self.metric);
        let figure = if self.tree.is_change {
            format_change(self.metric, value)
        } else {
            numbers::percent(value, self.tree.value(FlameTree::ROOT, self.metric))
        };
        let mark = if self.tree.node(at).inlined { "↳" } else { "" };
        let long = format!("▏{mark}{name}  {figure}");
        if long.chars().count() <= width {
            long
        } else {
            format!("▏{mark}{}", clip_name(&name, width - 1 - mark.chars().count()))
        }
    }

    /// The colour of a cell.
    fn style(&self, theme: &Theme, at: usize) -> Style {
        let label = self.tree.label(at);
        if self.tree.is_change {
            let (value, moved) = (self.tree.value(at, self.metric), self.tree.width(at, self.metric));
            return of_change(theme, value / moved.max(f64::MIN_POSITIVE));
        }
        match self.colour {
            _ if label.name == RUNTIME => theme.flame_above,
            Colour::Growth => {
                let slope = self.tree.slope(at);
                let whole = self.tree.slope(FlameTree::ROOT).per_minute();
                match (slope.grows(), slope.is_clear()) {
                    (true, _) if slope.per_minute() * 2.0 > whole => theme.grew[1],
                    (true, _) => theme.grew[0],
                    (false, true) if slope.per_minute() < 0.0 => theme.shrank[0],
                    _ => theme.level,
                }
            }
            Colour::Module => {
                let place = self.modules.iter().position(|module| *module == label.module);
                place.map_or(theme.level, |place| module_style(theme, place))
            }
            Colour::Function => {
                let mut hasher = DefaultHasher::new();
                label.name.hash(&mut hasher);
                theme.flame[hasher.finish() as usize % theme.flame.len()]
            }
        }
    }
}

/// The colour of a module, by its place among them.
pub(crate) fn module_style(theme: &Theme, place: usize) -> Style {
    // Neighbours in the list are far apart among the colours.
    theme.flame[place * 5 % theme.flame.len()]
}

/// The colour of a change, which is such a share of all that grew and shrank.
fn of_change(theme: &Theme, share: f64) -> Style {
    match share {
        share if share > 0.5 => theme.grew[1],
        share if share > 0.0 => theme.grew[0],
        share if share < -0.5 => theme.shrank[1],
        share if share < 0.0 => theme.shrank[0],
        _ => theme.level,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_of_a_row_do_not_overlap_and_lie_under_their_parents() {
        let tree = FlameTree::clone(crate::dashboard::model::fixture::model().flame.as_ref().expect("a tree"));
        for width in [1, 7, 60, 116, 196] {
            let cells = lay_out(&tree, Metric::InUseBytes, FlameTree::ROOT, width);
            for cell in &cells {
                assert!(cell.x + cell.width <= width);
                let What::Node(at) = cell.what else { continue };
                if at != FlameTree::ROOT {
                    let parent = cells.iter().find(|c| c.what == What::Node(tree.node(at).parent)).unwrap();
                    assert!(parent.x <= cell.x && cell.x + cell.width <= parent.x + parent.width);
                }
            }
            for (i, a) in cells.iter().enumerate() {
                for b in &cells[i + 1..] {
                    assert!(a.row != b.row || a.x + a.width <= b.x || b.x + b.width <= a.x);
                }
            }
        }
    }

    #[test]
    fn zooming_gives_the_node_the_whole_width() {
        let tree = FlameTree::clone(crate::dashboard::model::fixture::model().flame.as_ref().expect("a tree"));
        let zoom = (0..tree.len()).find(|&at| tree.name(at) == "kv::store::Store::put").unwrap();
        let cells = lay_out(&tree, Metric::InUseBytes, zoom, 100);
        let cell = cells.iter().find(|c| c.what == What::Node(zoom)).unwrap();
        assert_eq!((cell.x, cell.width), (0, 100));
    }
}
