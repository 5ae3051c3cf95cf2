//! The call tree that the flamegraph draws: one node for each distinct path of functions from the root.
//!
//! Nodes live in one vector; children are sorted by name, so that a live refresh doesn't make cells jump about. What a
//! function is called is kept once, however many paths it is on. The paths are kept from reading to reading.

use std::collections::HashMap;
use std::sync::Arc;

use poolscope_profiler::model::growth::Slope;
use poolscope_profiler::model::naming::Naming;
use poolscope_profiler::model::profile::{Location, Metric, Profile, Site};

use super::by_place::ByPlace;
use super::flame_path::{Label, Labels, Shape, Step};
use super::runtime::Runtime;
use super::site::SiteRow;
use crate::words::numbers;

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

/// A function reached by one path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    label: u32,
    /// Was inlined into its parent wherever it was seen.
    pub(crate) inlined: bool,
    /// Index of the parent; the root is its own.
    pub(crate) parent: usize,
    /// Steps from the root.
    pub(crate) depth: usize,
    /// By name.
    pub(crate) children: Vec<usize>,
}

/// The paths that there are. Parents stand before children; node 0 is the root.
#[derive(Clone, Debug)]
struct Paths {
    nodes: Vec<Node>,
    labels: Vec<Label>,
}

impl Default for Paths {
    fn default() -> Self {
        Paths { nodes: vec![Node::default()], labels: vec![Label { name: "all".into(), ..Label::default() }] }
    }
}

impl Paths {
    fn name(&self, at: usize) -> &str {
        &self.labels[self.nodes[at].label as usize].name
    }
}

/// What a node holds, with all below it.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    /// Indexed by [`Metric`]: what there is, or how it changed.
    total: [f64; 4],
    /// How the bytes in use develop.
    slope: Slope,
}

/// The tree: its paths, which readings share as long as there are no new ones, and what each node holds.
#[derive(Clone, Debug)]
pub(crate) struct FlameTree {
    paths: Arc<Paths>,
    figures: Vec<Figures>,
    /// Of changes, what grew and what shrank together; empty if the figures are none.
    moved: Vec<[f64; 4]>,
    /// Its figures are changes.
    pub(crate) is_change: bool,
}

impl Default for FlameTree {
    fn default() -> Self {
        FlameTree { paths: Arc::default(), figures: vec![Figures::default()], moved: Vec::new(), is_change: false }
    }
}

/// Where the path of a call site ends in a tree.
#[derive(Clone, Debug)]
struct Leaf {
    /// Its locations: as long as they are kept, nothing else lies there.
    locations: Arc<[usize]>,
    incomplete: bool,
    node: usize,
}

/// Makes trees of one shape, reading after reading: of what was there before, only the figures are new.
#[derive(Debug, Default)]
pub(crate) struct Grower {
    shape: Option<Shape>,
    paths: Arc<Paths>,
    /// The child of a node by its label.
    index: HashMap<(u32, u32), u32>,
    /// The labels and nodes of the path that was made last: the next one begins like it, mostly.
    last: Vec<(u32, usize)>,
    labels: Labels,
    /// By where the locations of the call site lie: readings of one builder share them.
    leaves: ByPlace<Leaf>,
    /// What the names are of: other ones make other paths.
    named: Option<(Arc<Vec<Location>>, Arc<Naming>)>,
}

impl Grower {
    /// Merges call sites of a profile. If they are compared with others, the figures are changes.
    pub(crate) fn grow(&mut self, profile: &Profile, sites: &[SiteRow], runtime: &Runtime, shape: Shape) -> FlameTree {
        if self.shape != Some(shape) || !self.has_the_names_of(profile) {
            *self = Grower { shape: Some(shape), ..Grower::default() };
        }
        self.named = Some((Arc::clone(&profile.locations), Arc::clone(&profile.naming)));
        if self.labels.all.is_empty() {
            self.labels.number("all", |_| {});
        }
        self.labels.of_all_locations(profile);
        let rows: Vec<(&Site, &SiteRow)> =
            sites.iter().filter_map(|row| Some((profile.sites.get(row.index)?, row))).collect();
        // As they were made, most likely: what came one after the other has the outer functions in common. Nothing
        // that is shown depends on this order, which another run hasn't.
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by_key(|&at| rows[at].0.locations.as_ptr());
        let (mut ends, mut steps) = (vec![FlameTree::ROOT; rows.len()], Vec::new());
        for at in order {
            ends[at] = self.leaf(profile, rows[at].0, runtime, shape, &mut steps);
        }
        if ends.len() < self.leaves.len() {
            // Paths of call sites that are gone would stay.
            self.shape = None;
            return self.grow(profile, sites, runtime, shape);
        }
        let mut tree = FlameTree {
            paths: Arc::clone(&self.paths),
            figures: vec![Figures::default(); self.paths.nodes.len()],
            moved: Vec::new(),
            is_change: sites.iter().any(|row| row.change.is_some()),
        };
        if tree.is_change {
            tree.moved = vec![[0.0; 4]; tree.figures.len()];
        }
        for (node, (_, row)) in ends.into_iter().zip(rows) {
            tree.add(node, row);
        }
        tree.sum_up();
        tree
    }

    /// Whether the locations that were known have the same names still.
    fn has_the_names_of(&self, profile: &Profile) -> bool {
        let Some((locations, naming)) = &self.named else { return true };
        let same_names = || {
            let mut pairs = locations.iter().zip(profile.locations.iter());
            locations.len() <= profile.locations.len() && pairs.all(|(a, b)| a.frames == b.frames)
        };
        *naming == profile.naming && (Arc::ptr_eq(locations, &profile.locations) || same_names())
    }

    /// The node at which the path of a call site ends; it is made if there is none.
    fn leaf(
        &mut self,
        profile: &Profile,
        site: &Site,
        runtime: &Runtime,
        shape: Shape,
        steps: &mut Vec<Step>,
    ) -> usize {
        let place = site.locations.as_ptr() as usize;
        // All empty stacks may lie in one place, and some stacks are one with or without outer frames.
        if let Some(leaf) = self.leaves.get(&place)
            && !site.locations.is_empty()
            && leaf.incomplete == site.incomplete
        {
            return leaf.node;
        }
        self.labels.path(profile, site, runtime, shape, steps);
        let paths = Arc::make_mut(&mut self.paths);
        for label in &self.labels.all[paths.labels.len().min(self.labels.all.len())..] {
            paths.labels.push(label.clone());
        }
        let known = self.last.iter().zip(steps.iter()).take_while(|((label, _), step)| *label == step.label).count();
        self.last.truncate(known);
        for (&(_, node), step) in self.last.iter().zip(steps.iter()) {
            paths.nodes[node].inlined &= step.inlined;
        }
        let mut at = self.last.last().map_or(FlameTree::ROOT, |(_, node)| *node);
        for step in &steps[known..] {
            at = *self.index.entry((at as u32, step.label)).or_insert_with(|| {
                let new = paths.nodes.len();
                let depth = paths.nodes[at].depth + 1;
                paths.nodes.push(Node {
                    label: step.label,
                    inlined: step.inlined,
                    parent: at,
                    depth,
                    children: Vec::new(),
                });
                let name = paths.name(new);
                let before = paths.nodes[at].children.partition_point(|&child| paths.name(child) < name);
                paths.nodes[at].children.insert(before, new);
                new as u32
            }) as usize;
            paths.nodes[at].inlined &= step.inlined;
            self.last.push((step.label, at));
        }
        let leaf = Leaf { locations: Arc::clone(&site.locations), incomplete: site.incomplete, node: at };
        self.leaves.insert(leaf.locations.as_ptr() as usize, leaf);
        at
    }
}

impl FlameTree {
    /// The root's index.
    pub(crate) const ROOT: usize = 0;

    /// Merges call sites of a profile. If they are compared with others, the figures are changes.
    pub(crate) fn of(profile: &Profile, sites: &[SiteRow], runtime: &Runtime, shape: Shape) -> FlameTree {
        Grower::default().grow(profile, sites, runtime, shape)
    }

    /// Adds a call site to the node where its path ends.
    fn add(&mut self, node: usize, row: &SiteRow) {
        let value = row.change.as_deref().copied().unwrap_or_else(|| row.figures());
        let value = value.map(|v| if v.is_finite() { v } else { 0.0 });
        let figures = &mut self.figures[node];
        figures.total.iter_mut().zip(value).for_each(|(total, v)| *total += v);
        figures.slope = figures.slope.and(row.growth.map(|growth| growth.slope).unwrap_or_default());
        if let Some(moved) = self.moved.get_mut(node) {
            moved.iter_mut().zip(value).for_each(|(moved, v)| *moved += v.abs());
        }
    }

    /// Adds what each node holds to its parent.
    fn sum_up(&mut self) {
        for at in (1..self.figures.len()).rev() {
            let (parent, own) = (self.paths.nodes[at].parent, self.figures[at]);
            let sum = &mut self.figures[parent];
            sum.total.iter_mut().zip(own.total).for_each(|(total, v)| *total += v);
            sum.slope = sum.slope.and(own.slope);
            if self.is_change {
                let own = self.moved[at];
                self.moved[parent].iter_mut().zip(own).for_each(|(moved, v)| *moved += v);
            }
        }
    }

    /// A node; the root for an index of another tree.
    pub(crate) fn node(&self, at: usize) -> &Node {
        self.paths.nodes.get(at).unwrap_or(&self.paths.nodes[FlameTree::ROOT])
    }

    /// What the function of a node is called.
    pub(crate) fn label(&self, at: usize) -> &Label {
        &self.paths.labels[self.node(at).label as usize]
    }

    /// Which functions are meant, by their numbers: each is asked about once, however many paths it is on.
    pub(crate) fn functions(&self, is_meant: impl Fn(&Label) -> bool) -> Vec<bool> {
        self.paths.labels.iter().map(is_meant).collect()
    }

    /// Whether the function of a node is among them; the root is none.
    pub(crate) fn is_one_of(&self, at: usize, functions: &[bool]) -> bool {
        at != FlameTree::ROOT && functions.get(self.node(at).label as usize).is_some_and(|meant| *meant)
    }

    /// The function of a node.
    pub(crate) fn name(&self, at: usize) -> &str {
        &self.label(at).name
    }

    /// How many nodes there are; parents stand before children.
    pub(crate) fn len(&self) -> usize {
        self.paths.nodes.len()
    }

    fn figures(&self, at: usize) -> &Figures {
        self.figures.get(at).unwrap_or(&self.figures[FlameTree::ROOT])
    }

    /// How the bytes in use develop below a node.
    pub(crate) fn slope(&self, at: usize) -> Slope {
        self.figures(at).slope
    }

    /// A node's figure.
    pub(crate) fn value(&self, at: usize, metric: Metric) -> f64 {
        self.figures(at).total[metric as usize]
    }

    /// What a node's width stands for: its figure, or of changes all that grew and shrank.
    pub(crate) fn width(&self, at: usize, metric: Metric) -> f64 {
        self.moved.get(at).map_or_else(|| self.value(at, metric), |moved| moved[metric as usize])
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
    use crate::dashboard::model::flame_path::USUAL;

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

    /// The next readings of a process: new figures, a new call site, one that is gone, other names.
    #[test]
    fn a_tree_that_is_kept_is_the_one_that_is_made_anew() {
        let model = fixture::model();
        let mut grower = Grower::default();
        let same = |grower: &mut Grower, profile: &Profile, rows: &[SiteRow], runtime: &Runtime| {
            let (kept, new) =
                (grower.grow(profile, rows, runtime, USUAL), FlameTree::of(profile, rows, runtime, USUAL));
            let of = |tree: &FlameTree| {
                let node = |at: usize| {
                    let slope = tree.slope(at).per_minute();
                    let [a, b, c, d] = Metric::ALL.map(|metric| tree.value(at, metric));
                    (tree.path(at), (tree.label(at).clone(), tree.node(at).inlined, [a, b, c, d, slope]))
                };
                (0..tree.len()).map(node).collect::<std::collections::BTreeMap<_, _>>()
            };
            let (of_kept, of_new) = (of(&kept), of(&new));
            assert!(of_kept.keys().eq(of_new.keys()));
            for (path, (label, inlined, figures)) in &of_kept {
                let (same_label, same_inlined, same_figures) = &of_new[path];
                assert_eq!((label, inlined), (same_label, same_inlined));
                // Nodes are summed up in the order in which they were made, slopes with seven digits.
                let mut pairs = figures.iter().zip(same_figures);
                assert!(pairs.all(|(a, b)| (a - b).abs() <= 1e-6 * a.abs()), "{path:?}: {figures:?}, {same_figures:?}");
            }
            for at in 0..kept.len() {
                let names: Vec<&str> = kept.node(at).children.iter().map(|&child| kept.name(child)).collect();
                assert!(names.is_sorted(), "{names:?}");
            }
            kept
        };
        let few = same(&mut grower, &model.profile, &model.sites[..4], &model.runtime);
        let mut more = model.sites.clone();
        more[1].in_use.bytes *= 3.0;
        let all = same(&mut grower, &model.profile, &more, &model.runtime);
        assert!(all.len() > few.len() && Arc::strong_count(&few.paths) == 1, "new paths are made beside the old");
        let again = same(&mut grower, &model.profile, &model.sites, &model.runtime);
        assert!(Arc::ptr_eq(&again.paths, &all.paths), "nothing is new but the figures");
        same(&mut grower, &model.profile, &model.sites[1..], &model.runtime);
        let mut renamed = Profile::clone(&model.profile);
        for location in Arc::make_mut(&mut renamed.locations) {
            location.frames.iter_mut().for_each(|frame| frame.name = frame.name.replace("kv::", "store::"));
        }
        let renamed = same(&mut grower, &renamed, &model.sites, &Runtime::of(&renamed));
        assert!((0..renamed.len()).any(|at| renamed.name(at).starts_with("store::")));
    }

    /// Two stacks of one function, seen at another line in each and inlined in one, whose locations lie either way.
    #[test]
    fn a_node_is_the_same_wherever_the_stacks_lie_in_memory() {
        let mut profile = Profile::clone(&fixture::model().profile);
        let locations = Arc::make_mut(&mut profile.locations);
        let called = locations.iter().position(|location| location.frames[0].line.is_some()).unwrap();
        let mut other = locations[called].clone();
        (other.frames[0].line, other.frames[0].inlined) = (Some(9_999), true);
        other.frames.truncate(1);
        locations[called].frames.truncate(1);
        locations.push(other);
        let (other, place) = (locations.len() - 1, locations[called].frames[0].source());
        for first_is_lower in [true, false] {
            let mut stacks: [Arc<[usize]>; 2] = [[called], [other]].map(Arc::from);
            if (stacks[0].as_ptr() < stacks[1].as_ptr()) != first_is_lower {
                stacks.swap(0, 1);
                for (stack, at) in stacks.iter_mut().zip([called, other]) {
                    Arc::get_mut(stack).unwrap()[0] = at;
                }
            }
            for (site, stack) in profile.sites.iter_mut().zip(stacks) {
                (site.locations, site.incomplete) = (stack, false);
            }
            let model = fixture::model();
            let rows = [0, 1].map(|index| SiteRow { index, ..model.sites[0].clone() });
            let tree = FlameTree::of(&profile, &rows, &Runtime::of(&profile), USUAL);
            assert_eq!(tree.len(), 2);
            assert_eq!((Some(tree.label(1).place.clone()), tree.node(1).inlined), (place.clone(), false));
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
}
