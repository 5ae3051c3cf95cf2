//! A profile as a tree of calls, for the dashboard's own flamegraph.

use std::collections::HashMap;

use crate::profile::{Metric, Profile};

/// The name of the root.
pub const ROOT_NAME: &str = "all";

/// Every call path of a profile, its figures added up.
#[derive(Clone, Debug)]
pub struct CallTree {
    /// What the values are.
    pub metric: Metric,
    /// The nodes; the root is the first, and a parent comes before its children.
    pub nodes: Vec<CallNode>,
}

/// A function on one call path.
#[derive(Clone, Debug, PartialEq)]
pub struct CallNode {
    /// Demangled name.
    pub name: String,
    /// Index of its caller; none for the root.
    pub parent: Option<usize>,
    /// Indices of the functions it calls, largest first.
    pub children: Vec<usize>,
    /// Number of callers above it; 0 for the root.
    pub depth: usize,
    /// The value of this path and everything it calls.
    pub total: f64,
    /// The value of this path alone.
    pub self_value: f64,
}

impl CallTree {
    /// Adds up a profile; sites whose value is 0 are left out.
    pub fn new(profile: &Profile, metric: Metric) -> Self {
        let mut nodes = vec![CallNode::new(ROOT_NAME, None, 0)];
        let mut index: HashMap<(usize, &str), usize> = HashMap::new();
        for site in &profile.sites {
            let value = metric.of(site);
            if value <= 0.0 {
                continue;
            }
            let mut at = 0;
            nodes[0].total += value;
            for frame in profile.frames(site).rev() {
                at = *index.entry((at, frame.name.as_str())).or_insert_with(|| {
                    let new = nodes.len();
                    let depth = nodes[at].depth + 1;
                    nodes.push(CallNode::new(&frame.name, Some(at), depth));
                    nodes[at].children.push(new);
                    new
                });
                nodes[at].total += value;
            }
            nodes[at].self_value += value;
        }
        let totals: Vec<f64> = nodes.iter().map(|node| node.total).collect();
        for node in &mut nodes {
            node.children.sort_by(|&a, &b| totals[b].total_cmp(&totals[a]).then(a.cmp(&b)));
        }
        Self { metric, nodes }
    }

    /// The root.
    pub fn root(&self) -> &CallNode {
        &self.nodes[0]
    }

    /// The nodes from the root to `index`, both included.
    pub fn path_to(&self, index: usize) -> Vec<usize> {
        let mut path = vec![index];
        let mut at = index;
        while let Some(parent) = self.nodes[at].parent {
            path.push(parent);
            at = parent;
        }
        path.reverse();
        path
    }

    /// Number of rows that a flamegraph of this tree has, with the root's.
    pub fn height(&self) -> usize {
        self.nodes.iter().map(|node| node.depth).max().unwrap_or(0) + 1
    }
}

impl CallNode {
    fn new(name: &str, parent: Option<usize>, depth: usize) -> Self {
        Self { name: name.to_owned(), parent, children: Vec::new(), depth, total: 0.0, self_value: 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::profile;

    #[test]
    fn shared_callers_add_up_and_children_are_sorted() {
        let tree =
            CallTree::new(&profile(&[("main;a;x", 10.0), ("main;b", 30.0), ("main;a", 5.0)]), Metric::InUseBytes);
        let shown: Vec<_> = tree.nodes.iter().map(|n| (n.name.as_str(), n.depth, n.total, n.self_value)).collect();
        assert_eq!(
            shown,
            [
                ("all", 0, 45.0, 0.0),
                ("main", 1, 45.0, 0.0),
                ("a", 2, 15.0, 5.0),
                ("x", 3, 10.0, 10.0),
                ("b", 2, 30.0, 30.0)
            ]
        );
        assert_eq!(tree.nodes[1].children, [4, 2]);
        assert_eq!(tree.path_to(3), [0, 1, 2, 3]);
        assert_eq!(tree.height(), 4);
    }

    #[test]
    fn an_empty_profile_is_a_root_alone() {
        let tree = CallTree::new(&Profile::default(), Metric::AllocatedObjects);
        assert_eq!((tree.nodes.len(), tree.height(), tree.root().total), (1, 1, 0.0));
    }
}
