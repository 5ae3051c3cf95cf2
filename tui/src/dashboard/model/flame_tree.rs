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
    /// the call site are left out. Those of a machine that runs a language are, too, where functions of that one are.
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
        let language = if shape.folded { runtime.language(site) } else { None };
        let mut depth = 0;
        for &at in site.locations.iter() {
            self.of_location(profile, at);
            let is_left_out = language.is_some_and(|language| runtime.runs(at, language));
            for (frame, &label) in self.of[at].iter().enumerate() {
                let inlined = profile.locations[at].frames[frame].inlined;
                if !is_left_out {
                    out.push(Step { label, inlined, runtime: runtime.has(at, frame), depth });
                }
                depth += 1;
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
        let mut rows: Vec<(&Site, &SiteRow)> =
            sites.iter().filter_map(|row| Some((profile.sites.get(row.index)?, row))).collect();
        // As they were made, most likely: what came one after the other has the outer functions in common.
        rows.sort_by_key(|(site, _)| site.locations.as_ptr());
        let mut steps = Vec::new();
        let mut end = |(site, row)| (self.leaf(profile, site, runtime, shape, &mut steps), row);
        let ends: Vec<(usize, &SiteRow)> = rows.into_iter().map(&mut end).collect();
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
        for (node, row) in ends {
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
        if self.labels.all.is_empty() {
            self.labels.number("all", |_| {});
        }
        self.labels.path(profile, site, runtime, shape, steps);
        let paths = Arc::make_mut(&mut self.paths);
        for label in &self.labels.all[paths.labels.len().min(self.labels.all.len())..] {
            paths.labels.push(label.clone());
        }
        let known = self.last.iter().zip(steps.iter()).take_while(|((label, _), step)| *label == step.label).count();
        self.last.truncate(known);
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
                    let (label, values) = (tree.label(at).clone(), Metric::ALL.map(|m| tree.value(at, m).round()));
                    (tree.path(at), (label, values, tree.node(at).inlined, tree.slope(at).per_minute().round()))
                };
                (0..tree.len()).map(node).collect::<std::collections::BTreeMap<_, _>>()
            };
            assert_eq!(of(&kept), of(&new));
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

    #[test]
    fn an_interpreter_is_left_out_where_functions_are_that_it_runs() {
        let profile = fixture::profile_of_python();
        let names = |shape| path_to(&profile, &profile.sites[0], &Runtime::of(&profile), shape, 0);
        assert_eq!(names(USUAL), [RUNTIME, "handle (server.py)"]);
        assert!(names(Shape { folded: false, inverted: false }).contains(&"kv::server::worker".to_owned()));
        // A function that is named only once it was seen.
        let mut unnamed = fixture::profile_of_python();
        let location = &mut Arc::make_mut(&mut unnamed.locations)[3];
        location.frames = vec![Location::placeholder(None, location.address)];
        let model = fixture::model_of([unnamed, profile]);
        let of_first = path_to(&model.profile, &model.profile.sites[0], &model.runtime, USUAL, 0);
        assert_eq!(of_first, [RUNTIME, "handle (server.py)"]);
    }
}
