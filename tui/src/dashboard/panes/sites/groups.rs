//! Call sites by what they have in common: by function, file, module, label, thread or size class.

use std::collections::{HashMap, HashSet};

use poolscope_profiler::model::growth::Slope;
use poolscope_profiler::model::snapshot::LiveBlock;

use crate::dashboard::input::filter::{Figures, Filter};
use crate::dashboard::model::Model;
use crate::dashboard::model::flame_path::Label;
use crate::dashboard::model::site::{SiteRow, frames_of};
use crate::words::{file_name, numbers, printable};

/// What the rows are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum By {
    /// Call sites, a row each.
    #[default]
    Stack,
    /// The functions that asked for memory, and those that called them.
    Function,
    /// The source files of the functions that asked for memory.
    File,
    /// Their executables and libraries.
    Module,
    /// The labels that the program gave.
    Label,
    /// The threads that allocated what is in use.
    Thread,
    /// The size classes of what is in use.
    Class,
    /// The tree from the outermost functions to what they call.
    Callees,
    /// The tree from the functions that asked for memory to their callers.
    Callers,
}

const ALL: [By; 9] =
    [By::Stack, By::Function, By::File, By::Module, By::Label, By::Thread, By::Class, By::Callees, By::Callers];

impl By {
    /// The one after this, or before it.
    pub(super) fn next(self, forward: bool) -> By {
        let at = ALL.iter().position(|by| *by == self).unwrap_or(0);
        ALL[(at + if forward { 1 } else { ALL.len() - 1 }) % ALL.len()]
    }

    /// The title of the table.
    pub(super) fn title(self) -> &'static str {
        match self {
            By::Stack => "Call sites",
            By::Function => "By function",
            By::File => "By file",
            By::Module => "By module",
            By::Label => "By label",
            By::Thread => "By thread",
            By::Class => "By size class",
            By::Callees => "Tree of callees",
            By::Callers => "Tree of callers",
        }
    }

    /// The rows are those of a tree.
    pub(super) fn is_tree(self) -> bool {
        matches!(self, By::Callees | By::Callers)
    }

    /// Only what is in use is known by it.
    pub(super) fn is_of_blocks(self) -> bool {
        matches!(self, By::Thread | By::Class)
    }
}

/// What some call sites have together.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    /// What they have in common.
    pub(super) name: String,
    /// Its figures, indexed by `Metric`. Of what is known by its blocks alone, only the first two.
    pub(super) figures: [f64; 4],
    /// Bytes in use with those of the functions that it calls.
    pub(super) with_callees: f64,
    /// How the figures differ from those of the base.
    pub(super) change: Option<[f64; 4]>,
    /// How the bytes in use develop.
    pub(super) slope: Slope,
    /// How many call sites there are.
    pub(super) sites: usize,
    /// The filter that leaves them.
    pub(super) filter: String,
    /// Steps from the root of the tree.
    pub(super) depth: usize,
    /// The node of the tree.
    pub(super) node: usize,
    /// What it calls is shown; none if it calls nothing.
    pub(super) open: Option<bool>,
}

impl Group {
    /// Bytes that were allocated and freed again.
    pub(super) fn freed(&self) -> f64 {
        (self.figures[2] - self.figures[0]).max(0.0)
    }

    /// Bytes in use have changed by so many.
    pub(super) fn changed(&self, at: usize) -> f64 {
        self.change.map_or(0.0, |change| change[at])
    }

    /// The names of its figures, for programs that read the table.
    pub(super) const FIELDS: &[&str] = &[
        "in_use_bytes",
        "with_callees_bytes",
        "in_use_objects",
        "allocated_bytes",
        "allocated_objects",
        "growth_bytes_per_minute",
        "call_sites",
        "depth",
        "name",
    ];

    /// Its figures, in the order of [`Self::FIELDS`]; nothing for what is not known of such a group.
    pub(super) fn record(&self, by: By) -> Vec<String> {
        let known = |is_known: bool, figure: f64| if is_known { format!("{figure:.0}") } else { String::new() };
        let of_stacks = !by.is_of_blocks();
        vec![
            known(true, self.figures[0]),
            known(true, self.with_callees),
            known(true, self.figures[1]),
            known(of_stacks, self.figures[2]),
            known(of_stacks, self.figures[3]),
            known(of_stacks && self.slope.error() > 0.0, self.slope.per_minute()),
            known(of_stacks && !by.is_tree(), self.sites as f64),
            known(by.is_tree(), self.depth as f64),
            self.name.clone(),
        ]
    }

    fn add(&mut self, row: &SiteRow) {
        self.sites += 1;
        self.figures.iter_mut().zip(row.figures()).for_each(|(sum, figure)| *sum += figure);
        if let Some(change) = row.change.as_deref() {
            self.change.get_or_insert([0.0; 4]).iter_mut().zip(change).for_each(|(sum, figure)| *sum += figure);
        }
        self.slope = self.slope.and(row.growth.map(|growth| growth.slope).unwrap_or_default());
    }
}

/// Groups by their names, in the order in which they came up.
#[derive(Default)]
struct Groups {
    all: Vec<Group>,
    index: HashMap<String, usize>,
}

impl Groups {
    fn number(&mut self, name: &str) -> usize {
        if let Some(&known) = self.index.get(name) {
            return known;
        }
        let number = self.all.len();
        self.all.push(Group { name: name.to_owned(), ..Group::default() });
        self.index.insert(name.to_owned(), number);
        number
    }
}

/// A filter for a name as it stands.
fn exactly(key: &str, name: &str) -> String {
    let name = regex::escape(name);
    if name.contains(char::is_whitespace) { format!("{key}:\"^{name}$\"") } else { format!("{key}:^{name}$") }
}

/// The groups of what is shown. Trees are made by [`super::tree`].
pub(super) fn groups(model: &Model, by: By) -> Vec<Group> {
    match by {
        By::Function => functions(model),
        By::File => by_own_frame(model, "file", |label| {
            let (file, _line) = label.place.rsplit_once(':').unwrap_or((&label.place, ""));
            (label.place != label.module && !file.is_empty()).then(|| file.to_owned())
        }),
        By::Module => by_own_frame(model, "module", |label| Some(label.module.clone()).filter(|name| !name.is_empty())),
        By::Label => labels(model),
        By::Thread => threads(model),
        By::Class => classes(model),
        By::Stack | By::Callees | By::Callers => Vec::new(),
    }
}

/// The call sites of a group, as places among those of the model, the largest first. Of a function that is in the tree,
/// those in whose stack it is.
pub(super) fn members(model: &Model, group: &Group) -> Vec<usize> {
    let filter = if group.filter.is_empty() { exactly("fn", &group.name) } else { group.filter.clone() };
    let Ok(filter) = Filter::parse(&filter) else { return Vec::new() };
    let sites = filter.of(&model.profile);
    let has = |at: &usize| sites.has(model.sites[*at].index, &Figures::default());
    let mut members: Vec<usize> = (0..model.sites.len()).filter(has).collect();
    members.sort_by(|&a, &b| model.sites[b].in_use.bytes.total_cmp(&model.sites[a].in_use.bytes));
    members
}

fn functions(model: &Model) -> Vec<Group> {
    let mut groups = Groups::default();
    let mut last_seen: Vec<usize> = Vec::new();
    for (at, row) in model.sites.iter().enumerate() {
        let Some(site) = model.profile.sites.get(row.index) else { continue };
        let bytes = row.figures()[0];
        let mut depth = 0;
        for &location in site.locations.iter() {
            let Some(known) = model.profile.locations.get(location) else { continue };
            for (frame, function) in known.frames.iter().enumerate() {
                let names = depth == row.text.frame;
                depth += 1;
                if model.runtime.has(location, frame) && !names {
                    continue;
                }
                let group = groups.number(&printable(&function.name));
                last_seen.resize(groups.all.len(), usize::MAX);
                if names {
                    groups.all[group].add(row);
                }
                // A function that calls itself has it once.
                if std::mem::replace(&mut last_seen[group], at) != at {
                    groups.all[group].with_callees += bytes;
                }
            }
        }
    }
    for group in &mut groups.all {
        group.filter = exactly("fn", &group.name);
    }
    groups.all
}

fn by_own_frame(model: &Model, key: &str, name_of: impl Fn(&Label) -> Option<String>) -> Vec<Group> {
    let mut groups = Groups::default();
    for row in &model.sites {
        let Some(site) = model.profile.sites.get(row.index) else { continue };
        let frame = frames_of(&model.profile, site).nth(row.text.frame);
        let label = frame.map(|frame| {
            let module = frame.module.map(|module| printable(file_name(module))).unwrap_or_default();
            Label { name: String::new(), place: frame.place(), module }
        });
        let name = label.as_ref().and_then(&name_of);
        let group = groups.number(name.as_deref().unwrap_or("(not known)"));
        groups.all[group].add(row);
        groups.all[group].filter = match name {
            Some(name) if key == "file" => format!("file:\"{}\"", regex::escape(&name)),
            Some(name) => exactly(key, &name),
            None => String::new(),
        };
    }
    groups.all.iter_mut().for_each(|group| group.with_callees = group.figures[0]);
    groups.all
}

/// What was allocated under no label is a group, too.
fn labels(model: &Model) -> Vec<Group> {
    let mut groups = Groups::default();
    for row in &model.sites {
        let Some(site) = model.profile.sites.get(row.index) else { continue };
        let label = model.profile.label(site).map(printable);
        let group = groups.number(label.as_deref().unwrap_or("(no label)"));
        groups.all[group].add(row);
        groups.all[group].filter = label.map_or_else(|| "-label:.".to_owned(), |label| exactly("label", &label));
    }
    groups.all.iter_mut().for_each(|group| group.with_callees = group.figures[0]);
    groups.all
}

/// The sampled blocks in use that are shown.
fn blocks(model: &Model) -> impl Iterator<Item = &LiveBlock> {
    let memory = model.whole.usual_memory();
    let is_all = model.profile.sites.len() == model.whole.sites.len();
    let shown: HashSet<usize> = model.sites.iter().map(|row| row.index).collect();
    let mut place = 0;
    let is_shown: Vec<bool> = model
        .whole
        .sites
        .iter()
        .map(|site| {
            let here = is_all || memory.has(site.place);
            place += usize::from(here);
            here && shown.contains(&(place - 1))
        })
        .collect();
    model.snapshot.live.iter().enumerate().filter_map(move |(at, block)| {
        let site = (*model.site_of_stacks.get(block.stack as usize)?)?;
        let is_meant = model.blocks.as_ref().is_none_or(|blocks| blocks.get(at).copied().unwrap_or(false));
        (is_meant && is_shown.get(site).copied().unwrap_or(false)).then_some(block)
    })
}

fn threads(model: &Model) -> Vec<Group> {
    let mut groups: HashMap<u32, Group> = HashMap::new();
    for block in blocks(model) {
        let amount = block.amount();
        let group = groups.entry(block.tid).or_default();
        group.figures[0] += amount.bytes;
        group.figures[1] += amount.objects;
        group.sites += 1;
    }
    let named = groups.into_iter().map(|(tid, group)| {
        let thread = model.threads.iter().find(|thread| thread.stats.tid == tid);
        let name = thread.and_then(|thread| thread.name.clone()).unwrap_or_else(|| "(ended)".to_owned());
        let filter = format!("thread:^{tid}$");
        Group { name: format!("{tid} {name}"), with_callees: group.figures[0], filter, ..group }
    });
    named.collect()
}

fn classes(model: &Model) -> Vec<Group> {
    let mut bounds: Vec<u64> = model.snapshot.classes.iter().map(|class| class.block_bytes).collect();
    bounds.sort_unstable();
    let mut groups: HashMap<u64, Group> = HashMap::new();
    for block in blocks(model) {
        let class = bounds.get(bounds.partition_point(|&bytes| bytes < block.size)).copied().unwrap_or(0);
        let amount = block.amount();
        let group = groups.entry(class).or_default();
        group.figures[0] += amount.bytes;
        group.figures[1] += amount.objects;
        group.sites += 1;
    }
    let named = groups.into_iter().map(|(class, group)| {
        let name =
            if class == 0 { "large blocks".to_owned() } else { format!("up to {}", numbers::bytes(class as f64)) };
        Group { name, with_callees: group.figures[0], filter: format!("class:{class}"), node: class as usize, ..group }
    });
    named.collect()
}
