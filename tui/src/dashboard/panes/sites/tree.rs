//! Call sites as a tree that is opened step by step: from callers to callees, or the other way.

use std::collections::HashSet;

use poolscope_profiler::Metric;

use super::groups::Group;
use crate::dashboard::model::Model;
use crate::dashboard::model::flame_path::Shape;
use crate::dashboard::model::flame_tree::FlameTree;

/// A tree and which of its nodes are open.
#[derive(Debug, Default)]
pub(super) struct SiteTree {
    tree: FlameTree,
    /// By their paths from the root.
    open: HashSet<Vec<String>>,
    /// Paths that the user closed, of those that are open by themselves.
    closed: HashSet<Vec<String>>,
}

impl SiteTree {
    /// Takes what is shown; gives its rows.
    pub(super) fn follow(&mut self, model: &Model, inverted: bool) -> Vec<Group> {
        let shape = Shape { folded: true, inverted };
        self.tree = FlameTree::of(&model.profile, &model.sites, &model.runtime, shape);
        let mut rows = Vec::new();
        self.walk(FlameTree::ROOT, &mut Vec::new(), &mut rows);
        rows
    }

    fn walk(&self, at: usize, path: &mut Vec<String>, rows: &mut Vec<Group>) {
        let mut children = self.tree.node(at).children.clone();
        children.retain(|&child| self.tree.width(child, Metric::InUseBytes) > 0.0);
        children.sort_by(|&a, &b| {
            self.tree.width(b, Metric::InUseBytes).total_cmp(&self.tree.width(a, Metric::InUseBytes))
        });
        let whole = self.tree.width(at, Metric::InUseBytes);
        for child in children {
            path.push(self.tree.name(child).to_owned());
            let has_callees = !self.tree.node(child).children.is_empty();
            // What has nearly all is open.
            let most = self.tree.width(child, Metric::InUseBytes) > 0.9 * whole;
            let open = self.open.contains(path) || (most && !self.closed.contains(path));
            rows.push(self.row(child, has_callees.then_some(open)));
            if has_callees && open {
                self.walk(child, path, rows);
            }
            path.pop();
        }
    }

    fn row(&self, node: usize, open: Option<bool>) -> Group {
        let figures = Metric::ALL.map(|metric| self.tree.value(node, metric));
        let change = self.tree.is_change.then_some(figures);
        Group {
            name: self.tree.name(node).to_owned(),
            with_callees: figures[0],
            figures,
            change,
            slope: self.tree.slope(node),
            depth: self.tree.node(node).depth - 1,
            node,
            open,
            ..Group::default()
        }
    }

    /// The path to a row.
    pub(super) fn path(&self, row: &Group) -> Vec<String> {
        self.tree.path(row.node)
    }

    /// Opens or closes a row; whether that changed anything.
    pub(super) fn set_open(&mut self, row: &Group, open: bool) -> bool {
        if row.open.is_none_or(|is_open| is_open == open) {
            return false;
        }
        let path = self.path(row);
        if open {
            self.closed.remove(&path);
            self.open.insert(path)
        } else {
            self.open.remove(&path);
            self.closed.insert(path)
        }
    }
}
