//! The call tree that the flamegraph draws: one node for each distinct path of functions from the root.
//!
//! Nodes live in one vector; children are sorted by name, so that a live refresh doesn't make cells jump about. What a
//! function is called is kept once, however many paths it is on.

use std::collections::HashMap;

use poolscope_profiler::model::growth::Slope;
use poolscope_profiler::model::profile::{Metric, Profile, Site};

use super::runtime::Runtime;
use super::site::SiteRow;
use crate::words::{file_name, numbers, printable};

/// A value of a metric as text.
pub(crate) fn format_value(metric: Metric, value: f64) -> String {
    if metric.is_bytes() { numbers::bytes(value) } else { numbers::scaled(value) }
}

/// The same of a change: with its sign.
pub(crate) fn format_change(metric: Metric, value: f64) -> String {
    let sign = if value > 0.0 { "+" } else { "" };
    format!("{sign}{}", format_value(metric, value))
}

/// The metric after this one in the switch.
pub(crate) fn next_metric(metric: Metric) -> Metric {
    Metric::ALL[(metric as usize + 1) % Metric::ALL.len()]
}

/// What stands for frames that nobody knows.
fn stand_in(site: &Site) -> Option<&'static str> {
    if site.locations.is_empty() {
        Some("(no stack)")
    } else if site.incomplete {
        Some("(outer frames missing)")
    } else {
        None
    }
}

/// What stands for frames of the runtime, however many follow each other.
pub(crate) const RUNTIME: &str = "[runtime]";

/// How stacks become paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Functions of a language's runtime that follow each other are one, and those that the function calls which names
    /// the call site are left out.
    pub(crate) folded: bool,
    /// From the function that asked for memory to its callers, not from the outermost to the innermost.
    pub(crate) inverted: bool,
}

/// As it is drawn at first.
pub(crate) const USUAL: Shape = Shape { folded: true, inverted: false };

/// What a function is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Label {
    /// Function.
    pub(crate) name: String,
    /// File and line where it was seen first, or the module.
    pub(crate) place: String,
    /// The module's file name.
    pub(crate) module: String,
}

/// The names of a profile's functions, each once.
#[derive(Debug, Default)]
struct Labels {
    all: Vec<Label>,
    index: HashMap<String, u32>,
    /// Of each location, innermost first; empty as long as nobody asked.
    of: Vec<Vec<u32>>,
}

/// A function on a path.
#[derive(Clone, Copy, Debug)]
struct Step {
    label: u32,
    inlined: bool,
    runtime: bool,
    /// Its place in the stack, innermost first.
    depth: usize,
}

impl Labels {
    fn number(&mut self, name: &str, fill: impl FnOnce(&mut Label)) -> u32 {
        if let Some(&known) = self.index.get(name) {
            return known;
        }
        let number = self.all.len() as u32;
        let mut label = Label { name: name.to_owned(), ..Label::default() };
        fill(&mut label);
        self.all.push(label);
        self.index.insert(name.to_owned(), number);
        number
    }

    fn of_location(&mut self, profile: &Profile, at: usize) {
        if self.of.len() <= at {
            self.of.resize(profile.locations.len().max(at + 1), Vec::new());
        }
        let Some(location) = profile.locations.get(at).filter(|_| self.of[at].is_empty()) else { return };
        let module = profile.module(location).map(|module| printable(file_name(&module.path))).unwrap_or_default();
        let labels = location.frames.iter().map(|frame| {
            self.number(&printable(&frame.name), |label| {
                label.place = frame.source().map_or_else(|| module.clone(), |source| printable(&source));
                label.module.clone_from(&module);
            })
        });
        self.of[at] = labels.collect();
    }

    /// The path of a call site from below the root.
    fn path(&mut self, profile: &Profile, site: &Site, runtime: &Runtime, shape: Shape, out: &mut Vec<Step>) {
        out.clear();
        for &at in site.locations.iter() {
            self.of_location(profile, at);
            for (frame, &label) in self.of[at].iter().enumerate() {
                let inlined = profile.locations[at].frames[frame].inlined;
                out.push(Step { label, inlined, runtime: runtime.has(at, frame), depth: out.len() });
            }
        }
        if shape.folded
            && let Some(own) = out.iter().position(|step| !step.runtime)
        {
            out.drain(..own);
            let folded = self.number(RUNTIME, |_| {});
            for step in out.iter_mut().filter(|step| step.runtime) {
                (step.label, step.inlined) = (folded, false);
            }
            out.dedup_by(|step, before| step.runtime && before.runtime);
        }
        if let Some(stand_in) = stand_in(site) {
            let label = self.number(stand_in, |_| {});
            out.push(Step {
                label,
                inlined: false,
                runtime: false,
                depth: out.last().map_or(0, |last| last.depth + 1),
            });
        }
        if !shape.inverted {
            out.reverse();
        }
    }
}

/// The names on the path of a call site from below the root, up to the function with this place in its stack.
pub(crate) fn path_to(profile: &Profile, site: &Site, runtime: &Runtime, shape: Shape, depth: usize) -> Vec<String> {
    let (mut labels, mut steps) = (Labels::default(), Vec::new());
    labels.path(profile, site, runtime, shape, &mut steps);
    // What was folded away has the next function outwards for it.
    let wanted = steps.iter().map(|step| step.depth).filter(|at| *at >= depth).min();
    let end = steps.iter().position(|step| Some(step.depth) == wanted).map_or(steps.len(), |at| at + 1);
    steps[..end].iter().map(|step| labels.all[step.label as usize].name.clone()).collect()
}

/// A function reached by one path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    label: u32,
    /// Was inlined into its parent.
    pub(crate) inlined: bool,
    /// Index of the parent; the root is its own.
    pub(crate) parent: usize,
    /// Steps from the root.
    pub(crate) depth: usize,
    /// By name.
    pub(crate) children: Vec<usize>,
    /// With all below it, indexed by [`Metric`]: what there is, or how it changed.
    total: [f64; 4],
    /// Of changes, what grew and what shrank together.
    moved: [f64; 4],
    /// How the bytes in use develop, with all below it.
    pub(crate) slope: Slope,
}

/// The tree; node 0 is the root.
#[derive(Clone, Debug)]
pub(crate) struct FlameTree {
    nodes: Vec<Node>,
    labels: Vec<Label>,
    /// Its figures are changes.
    pub(crate) is_change: bool,
}

impl Default for FlameTree {
    fn default() -> Self {
        let labels = vec![Label { name: "all".into(), ..Label::default() }];
        FlameTree { nodes: vec![Node::default()], labels, is_change: false }
    }
}

impl FlameTree {
    /// The root's index.
    pub(crate) const ROOT: usize = 0;

    /// Merges call sites of a profile. If they are compared with others, the figures are changes.
    pub(crate) fn of(profile: &Profile, sites: &[SiteRow], runtime: &Runtime, shape: Shape) -> FlameTree {
        let mut tree = FlameTree { is_change: sites.iter().any(|row| row.change.is_some()), ..FlameTree::default() };
        let mut labels = Labels::default();
        labels.number("all", |_| {});
        let mut index: HashMap<(usize, u32), usize> = HashMap::new();
        let mut steps = Vec::new();
        for row in sites {
            let Some(site) = profile.sites.get(row.index) else { continue };
            let value = row.change.unwrap_or_else(|| row.figures());
            let value = value.map(|v| if v.is_finite() { v } else { 0.0 });
            let slope = row.growth.map(|growth| growth.slope).unwrap_or_default();
            labels.path(profile, site, runtime, shape, &mut steps);
            let mut at = FlameTree::ROOT;
            tree.add(at, &value, slope);
            for step in &steps {
                at = *index.entry((at, step.label)).or_insert_with(|| {
                    let new = tree.nodes.len();
                    let depth = tree.nodes[at].depth + 1;
                    let (label, inlined) = (step.label, step.inlined);
                    tree.nodes.push(Node { label, inlined, parent: at, depth, ..Node::default() });
                    tree.nodes[at].children.push(new);
                    new
                });
                tree.add(at, &value, slope);
            }
        }
        tree.labels = labels.all;
        for at in 0..tree.nodes.len() {
            let mut children = std::mem::take(&mut tree.nodes[at].children);
            children.sort_by(|&a, &b| tree.name(a).cmp(tree.name(b)));
            tree.nodes[at].children = children;
        }
        tree
    }

    fn add(&mut self, at: usize, value: &[f64; 4], slope: Slope) {
        let node = &mut self.nodes[at];
        for ((total, moved), v) in node.total.iter_mut().zip(&mut node.moved).zip(value) {
            *total += v;
            *moved += v.abs();
        }
        node.slope = node.slope.and(slope);
    }

    /// A node; the root for an index of another tree.
    pub(crate) fn node(&self, at: usize) -> &Node {
        self.nodes.get(at).unwrap_or(&self.nodes[FlameTree::ROOT])
    }

    /// What the function of a node is called.
    pub(crate) fn label(&self, at: usize) -> &Label {
        &self.labels[self.node(at).label as usize]
    }

    /// The function of a node.
    pub(crate) fn name(&self, at: usize) -> &str {
        &self.label(at).name
    }

    /// How many nodes there are; parents stand before children.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// A node's figure.
    pub(crate) fn value(&self, at: usize, metric: Metric) -> f64 {
        self.node(at).total[metric as usize]
    }

    /// What a node's width stands for: its figure, or of changes all that grew and shrank.
    pub(crate) fn width(&self, at: usize, metric: Metric) -> f64 {
        self.node(at).moved[metric as usize]
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
            path.push(self.name(at).to_owned());
            at = self.node(at).parent;
        }
        path.reverse();
        path
    }

    /// The deepest node on a path of names; in a tree that lost a part of it, the last that is left.
    pub(crate) fn find(&self, path: &[String]) -> usize {
        let mut at = FlameTree::ROOT;
        for name in path {
            match self.node(at).children.iter().find(|&&c| self.name(c) == name) {
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
    use crate::dashboard::model::fixture;

    fn tree(shape: Shape) -> FlameTree {
        let model = fixture::model();
        FlameTree::of(&model.profile, &model.sites, &model.runtime, shape)
    }

    #[test]
    fn a_parent_holds_at_least_what_its_children_hold() {
        for shape in [USUAL, Shape { folded: false, inverted: true }] {
            let tree = tree(shape);
            for at in 0..tree.len() {
                for metric in Metric::ALL {
                    let below: f64 = tree.node(at).children.iter().map(|&c| tree.value(c, metric)).sum();
                    assert!(below <= tree.value(at, metric) * (1.0 + 1e-9));
                }
            }
        }
    }

    #[test]
    fn a_path_finds_its_node_again_and_a_lost_one_its_nearest_ancestor() {
        let tree = tree(USUAL);
        for at in 0..tree.len() {
            assert_eq!(tree.find(&tree.path(at)), at);
        }
        let mut path = tree.path(tree.len() - 1);
        path.push("gone".into());
        assert_eq!(tree.find(&path), tree.len() - 1);
    }

    #[test]
    fn runtime_frames_are_one_and_none_lies_below_the_function_that_names_the_site() {
        let model = fixture::model();
        let names = |shape| path_to(&model.profile, &model.profile.sites[0], &model.runtime, shape, 0);
        let folded = names(USUAL);
        assert_eq!(folded.last().map(String::as_str), Some("kv::store::Store::put"), "{folded:?}");
        let whole = names(Shape { folded: false, inverted: false });
        assert!(whole.len() > folded.len() && whole[whole.len() - 1].contains("RawVec"), "{whole:?}");
        let inverted = names(Shape { folded: true, inverted: true });
        assert_eq!(inverted, [folded[folded.len() - 1].clone()], "up to the innermost");
    }
}
