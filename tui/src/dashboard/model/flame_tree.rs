//! The call tree that the flamegraph draws: one node for each distinct path of functions from the root.
//!
//! Nodes live in one vector; children are sorted by name, so that a live refresh doesn't make cells jump about.

use std::collections::HashMap;

use poolscope_profiler::model::profile::{Metric, Profile, Site};

use super::site::frames_of;
use crate::words::{file_name, numbers};

/// A value of a metric as text.
pub(crate) fn format_value(metric: Metric, value: f64) -> String {
    if metric.is_bytes() { numbers::bytes(value) } else { numbers::scaled(value) }
}

/// The metric after this one in the switch.
pub(crate) fn next_metric(metric: Metric) -> Metric {
    Metric::ALL[(metric as usize + 1) % Metric::ALL.len()]
}

/// What stands for frames that nobody knows.
fn stand_ins(site: &Site) -> Option<&'static str> {
    if site.locations.is_empty() {
        Some("(no stack)")
    } else if site.incomplete {
        Some("(outer frames missing)")
    } else {
        None
    }
}

/// The path of a call site from below the root.
pub(crate) fn path_of(profile: &Profile, site: &Site) -> Vec<String> {
    let outer = stand_ins(site).map(str::to_owned);
    outer.into_iter().chain(frames_of(profile, site).rev().map(|f| f.name)).collect()
}

/// A function reached by one path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    /// Function.
    pub(crate) name: String,
    /// File and line where it was seen first, or the module.
    pub(crate) place: String,
    /// The module's file name.
    pub(crate) module: String,
    /// Was inlined into its parent.
    pub(crate) inlined: bool,
    /// Index of the parent; the root is its own.
    pub(crate) parent: usize,
    /// Steps from the root.
    pub(crate) depth: usize,
    /// By name.
    pub(crate) children: Vec<usize>,
    /// With all below it, indexed by [`Metric`].
    pub(crate) total: [f64; 4],
}

/// The tree; node 0 is the root.
#[derive(Clone, Debug)]
pub(crate) struct FlameTree {
    nodes: Vec<Node>,
}

impl Default for FlameTree {
    fn default() -> Self {
        FlameTree { nodes: vec![Node { name: "all".into(), ..Node::default() }] }
    }
}

impl FlameTree {
    /// The root's index.
    pub(crate) const ROOT: usize = 0;

    /// Merges the call sites of a profile, outermost frames first.
    pub(crate) fn of(profile: &Profile) -> FlameTree {
        let mut tree = FlameTree::default();
        let mut index: HashMap<(usize, String), usize> = HashMap::new();
        for site in &profile.sites {
            let value = Metric::ALL.map(|m| m.of(site)).map(|v| if v.is_finite() { v.max(0.0) } else { 0.0 });
            let mut at = FlameTree::ROOT;
            tree.add(at, &value);
            if let Some(stand_in) = stand_ins(site) {
                at = tree.child(&mut index, at, stand_in.to_owned(), |_| {});
                tree.add(at, &value);
            }
            for frame in frames_of(profile, site).rev() {
                at = tree.child(&mut index, at, frame.name.clone(), |node| {
                    node.place = frame.place();
                    node.module = frame.module.map(|m| file_name(m).to_owned()).unwrap_or_default();
                    node.inlined = frame.frame.inlined;
                });
                tree.add(at, &value);
            }
        }
        for at in 0..tree.nodes.len() {
            let mut children = std::mem::take(&mut tree.nodes[at].children);
            children.sort_by(|&a, &b| tree.nodes[a].name.cmp(&tree.nodes[b].name));
            tree.nodes[at].children = children;
        }
        tree
    }

    fn add(&mut self, at: usize, value: &[f64; 4]) {
        for (total, v) in self.nodes[at].total.iter_mut().zip(value) {
            *total += v;
        }
    }

    fn child(
        &mut self,
        index: &mut HashMap<(usize, String), usize>,
        parent: usize,
        name: String,
        fill: impl FnOnce(&mut Node),
    ) -> usize {
        if let Some(&at) = index.get(&(parent, name.clone())) {
            return at;
        }
        let at = self.nodes.len();
        let depth = self.nodes[parent].depth + 1;
        let mut node = Node { name: name.clone(), parent, depth, ..Node::default() };
        fill(&mut node);
        self.nodes.push(node);
        self.nodes[parent].children.push(at);
        index.insert((parent, name), at);
        at
    }

    /// A node; the root for an index of another tree.
    pub(crate) fn node(&self, at: usize) -> &Node {
        self.nodes.get(at).unwrap_or(&self.nodes[FlameTree::ROOT])
    }

    /// All nodes, parents before children.
    #[cfg(test)]
    pub(crate) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// A node's value.
    pub(crate) fn value(&self, at: usize, metric: Metric) -> f64 {
        self.node(at).total[metric as usize]
    }

    /// Whether a node is another one, or lies below it.
    pub(crate) fn is_within(&self, mut at: usize, above: usize) -> bool {
        let depth = self.node(above).depth;
        while self.node(at).depth > depth {
            at = self.node(at).parent;
        }
        at == above
    }

    /// Names from below the root to the node.
    pub(crate) fn path(&self, mut at: usize) -> Vec<String> {
        let mut path = Vec::new();
        while at != FlameTree::ROOT {
            path.push(self.node(at).name.clone());
            at = self.node(at).parent;
        }
        path.reverse();
        path
    }

    /// The deepest node on a path of names; in a tree that lost a part of it, the last that is left.
    pub(crate) fn find(&self, path: &[String]) -> usize {
        let mut at = FlameTree::ROOT;
        for name in path {
            match self.node(at).children.iter().find(|&&c| self.node(c).name == *name) {
                Some(&child) => at = child,
                None => break,
            }
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_holds_at_least_what_its_children_hold() {
        let tree = FlameTree::of(&crate::dashboard::model::fixture::profile());
        for (at, node) in tree.nodes().iter().enumerate() {
            for metric in Metric::ALL {
                let below: f64 = node.children.iter().map(|&c| tree.value(c, metric)).sum();
                assert!(below <= tree.value(at, metric) * (1.0 + 1e-9));
            }
        }
    }

    #[test]
    fn a_path_finds_its_node_again_and_a_lost_one_its_nearest_ancestor() {
        let tree = FlameTree::of(&crate::dashboard::model::fixture::profile());
        for at in 0..tree.nodes().len() {
            assert_eq!(tree.find(&tree.path(at)), at);
        }
        let mut path = tree.path(tree.nodes().len() - 1);
        path.push("gone".into());
        assert_eq!(tree.find(&path), tree.nodes().len() - 1);
    }
}
