//! Where the flamegraph is: metric, zoom, selection. Zoom and selection are kept as paths of names, so that
//! they survive a new reading.

use poolscope_profiler::Metric;

use crate::dashboard::input::find::Pattern;
use crate::dashboard::model::flame_tree::{FlameTree, next_metric};
use crate::dashboard::widgets::flame::{What, is_match, lay_out};

/// The state of the flamegraph.
#[derive(Debug)]
pub(crate) struct FlameState {
    /// The figure.
    pub(crate) metric: Metric,
    /// The node that takes the whole width.
    pub(crate) zoom: usize,
    /// The selected node.
    pub(crate) selected: usize,
    zoom_path: Vec<String>,
    selected_path: Vec<String>,
}

/// A step to another cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// To the caller.
    Up,
    /// To the widest callee.
    Down,
    /// To the neighbour in the row.
    Left,
    /// To the neighbour in the row.
    Right,
}

impl FlameState {
    /// Nothing zoomed, nothing searched for.
    pub(crate) fn new(metric: Metric) -> FlameState {
        FlameState {
            metric,
            zoom: FlameTree::ROOT,
            selected: FlameTree::ROOT,
            zoom_path: Vec::new(),
            selected_path: Vec::new(),
        }
    }

    /// Finds zoom and selection in a new tree.
    pub(crate) fn replace(&mut self, tree: &FlameTree) {
        self.zoom = tree.find(&self.zoom_path);
        self.selected = tree.find(&self.selected_path);
    }

    /// Selects a node.
    pub(crate) fn select(&mut self, tree: &FlameTree, node: usize) {
        self.selected = node;
        self.selected_path = tree.path(node);
    }

    /// Zooms into a node, which is selected too.
    pub(crate) fn zoom_to(&mut self, tree: &FlameTree, node: usize) {
        self.zoom = node;
        self.zoom_path = tree.path(node);
        self.select(tree, node);
    }

    /// Zooms out by one; whether there was anything to leave.
    pub(crate) fn zoom_out(&mut self, tree: &FlameTree) -> bool {
        if self.zoom == FlameTree::ROOT {
            return false;
        }
        let parent = tree.node(self.zoom).parent;
        self.zoom = parent;
        self.zoom_path = tree.path(parent);
        true
    }

    /// The next metric.
    pub(crate) fn switch_metric(&mut self) {
        self.metric = next_metric(self.metric);
    }

    /// Moves the selection among the cells that are drawn in `width` columns.
    pub(crate) fn step(&mut self, tree: &FlameTree, width: u16, step: Step) {
        let cells = lay_out(tree, self.metric, self.zoom, width);
        let nodes = |row: usize| {
            cells.iter().filter_map(move |c| match c.what {
                What::Node(at) if usize::from(c.row) == row => Some((at, c.x, c.width)),
                _ => None,
            })
        };
        let depth = tree.node(self.selected).depth;
        let to = match step {
            Step::Up => Some(tree.node(self.selected).parent),
            Step::Down => nodes(depth + 1)
                .filter(|&(at, ..)| tree.node(at).parent == self.selected)
                .max_by_key(|c| c.2)
                .map(|c| c.0),
            Step::Left | Step::Right => {
                let row: Vec<usize> = nodes(depth).map(|c| c.0).collect();
                row.iter().position(|&at| at == self.selected).and_then(|place| {
                    let place = if step == Step::Left { place.checked_sub(1)? } else { place + 1 };
                    row.get(place).copied()
                })
            }
        };
        if let Some(to) = to {
            self.select(tree, to);
        }
    }

    /// Selects the next match, or the one before; zooms out to its parent if its cell is too thin to be drawn.
    pub(crate) fn go_to_match(&mut self, tree: &FlameTree, pattern: &Pattern, width: u16, forward: bool) -> bool {
        let functions = tree.functions(|label| is_match(pattern, label));
        let mut order = Vec::new();
        let mut stack = vec![FlameTree::ROOT];
        while let Some(at) = stack.pop() {
            if tree.width(at, self.metric) > 0.0 {
                order.push(at);
                stack.extend(tree.node(at).children.iter().rev());
            }
        }
        let here = order.iter().position(|&at| at == self.selected).unwrap_or(0);
        let count = order.len();
        let found = (1..=count)
            .map(|by| if forward { (here + by) % count } else { (here + count - by) % count })
            .map(|place| order[place])
            .find(|&at| tree.is_one_of(at, &functions));
        let Some(found) = found else { return false };
        self.select(tree, found);
        let drawn = |zoom| lay_out(tree, self.metric, zoom, width).iter().any(|c| c.what == What::Node(found));
        // What lies above the zoom is drawn, too, and is no part of it.
        if !tree.is_within(found, self.zoom) || !drawn(self.zoom) {
            let mut zoom = FlameTree::ROOT;
            if !drawn(zoom) {
                zoom = tree.node(found).parent;
                if !drawn(zoom) {
                    zoom = found;
                }
            }
            self.zoom = zoom;
            self.zoom_path = tree.path(zoom);
        }
        true
    }

    /// The value of all matches within the zoom, each path counted once, and how many functions match.
    pub(crate) fn matched(&self, tree: &FlameTree, pattern: &Pattern) -> (f64, usize) {
        self.matched_below(tree, pattern, self.zoom)
    }

    /// The same of all there is.
    pub(crate) fn matched_anywhere(&self, tree: &FlameTree, pattern: &Pattern) -> (f64, usize) {
        self.matched_below(tree, pattern, FlameTree::ROOT)
    }

    fn matched_below(&self, tree: &FlameTree, pattern: &Pattern, from: usize) -> (f64, usize) {
        let functions = tree.functions(|label| is_match(pattern, label));
        let (mut value, mut count) = (0.0, 0);
        let mut stack = vec![(from, false)];
        while let Some((at, within)) = stack.pop() {
            let node = tree.node(at);
            let found = tree.is_one_of(at, &functions);
            if found {
                count += 1;
                if !within {
                    value += tree.value(at, self.metric);
                }
            }
            stack.extend(node.children.iter().map(|&c| (c, within || found)));
        }
        (value, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::model::fixture;
    use crate::dashboard::model::flame_path::USUAL;

    fn tree() -> FlameTree {
        FlameTree::clone(fixture::model().flame.as_ref().expect("a tree"))
    }

    fn node(tree: &FlameTree, name: &str) -> usize {
        (0..tree.len()).find(|&at| tree.name(at) == name).unwrap()
    }

    #[test]
    fn zoom_and_selection_survive_a_new_reading_that_moved_everything() {
        let tree = tree();
        let mut state = FlameState::new(Metric::InUseBytes);
        state.zoom_to(&tree, node(&tree, "kv::server::handle"));
        state.select(&tree, node(&tree, "kv::store::Store::put"));
        let model = fixture::model();
        let mut sites = model.sites.clone();
        sites.reverse();
        let next = FlameTree::of(&model.profile, &sites, &model.runtime, USUAL);
        state.replace(&next);
        assert_eq!(next.name(state.zoom), "kv::server::handle");
        assert_eq!(next.name(state.selected), "kv::store::Store::put");
    }

    #[test]
    fn a_match_counts_once_a_path() {
        let tree = tree();
        let state = FlameState::new(Metric::InUseBytes);
        let (value, count) = state.matched(&tree, &Pattern::new("kv::server").unwrap());
        assert!(count >= 2);
        assert!(value <= tree.value(FlameTree::ROOT, Metric::InUseBytes));
    }

    #[test]
    fn the_next_match_is_visible() {
        let tree = tree();
        let mut state = FlameState::new(Metric::InUseBytes);
        let pattern = Pattern::new("SSL_CTX|Logger").unwrap();
        for _ in 0..40 {
            assert!(state.go_to_match(&tree, &pattern, 60, true));
            let cells = lay_out(&tree, state.metric, state.zoom, 60);
            assert!(cells.iter().any(|c| c.what == What::Node(state.selected)));
        }
    }

    #[test]
    fn a_match_outside_of_the_zoom_leaves_the_zoom() {
        let tree = tree();
        let mut state = FlameState::new(Metric::InUseBytes);
        state.zoom_to(&tree, node(&tree, "kv::store::Store::put"));
        let pattern = Pattern::new("kv::server::worker").unwrap();
        assert_eq!(state.matched(&tree, &pattern).1, 0);
        assert!(state.matched_anywhere(&tree, &pattern).1 > 0);
        assert!(state.go_to_match(&tree, &pattern, 100, true));
        assert_eq!(tree.name(state.selected), "kv::server::worker");
        assert!(tree.is_within(state.selected, state.zoom));
    }

    #[test]
    fn steps_stay_among_what_is_drawn() {
        let tree = tree();
        let mut state = FlameState::new(Metric::InUseBytes);
        for step in [Step::Down, Step::Right, Step::Down, Step::Left, Step::Up, Step::Right, Step::Right, Step::Down] {
            state.step(&tree, 80, step);
            let cells = lay_out(&tree, state.metric, state.zoom, 80);
            assert!(cells.iter().any(|c| c.what == What::Node(state.selected)));
        }
    }
}
