//! The flamegraph, and below it what is selected and what the search found.

mod draw;
mod state;

use std::sync::Arc;

use crossterm::event::{KeyCode, MouseButton};
use poolscope_profiler::Metric;
use ratatui::buffer::Buffer;
use ratatui::layout::Position;

use super::{Keyed, Pane, Reply, Scene, Source, Subject, View};
use crate::dashboard::input::common::Motion;
use crate::dashboard::input::key::{Binding, Section, named, plain};
use crate::dashboard::input::search::Search;
use crate::dashboard::model::Model;
use crate::dashboard::model::flame_path::{RUNTIME, Shape, USUAL, path_to};
use crate::dashboard::model::flame_tree::{FlameTree, Grower};
use crate::dashboard::model::site::{SiteRow, frames_of};
use crate::dashboard::widgets::flame::Colour;
use state::{FlameState, Step};

/// Its line in the table of views.
pub(crate) const VIEW: View = View {
    name: super::FLAME,
    title: "Flamegraph",
    help: "Flamegraph",
    source: Source::Readings,
    make: || Box::new(Flame::new()),
};

#[derive(Debug)]
struct Flame {
    state: FlameState,
    search: Search,
    shape: Shape,
    colour: Colour,
    /// Functions whose call sites are left out.
    hidden: Vec<String>,
    /// What is drawn.
    tree: Arc<FlameTree>,
    /// What makes it where no reading brings it.
    grower: Grower,
    /// The modules in it, the largest first.
    modules: Vec<String>,
}

/// What its keys ask for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// Zoom into the selected function.
    Zoom,
    /// Zoom out, then clear the search.
    Back,
    /// The next figure.
    Metric,
    /// Type the search.
    Search,
    /// The next match, or the one before.
    Match { forward: bool },
    /// To a neighbour.
    Step(Step),
    /// Functions of the runtime as one, or each.
    Fold,
    /// From the innermost function, or from the outermost.
    Invert,
    /// Leave the selected function out.
    Hide,
    /// Show what was left out.
    Unhide,
    /// The next meaning of the colours.
    Colour,
}

const fn key(
    keys: &'static [crate::dashboard::input::key::Key],
    action: Action,
    label: &'static str,
    help: &'static str,
    footer: bool,
) -> Binding<Action> {
    Binding { keys, action, label, help, section: Section::View, footer }
}

impl Keyed for Flame {
    type Action = Action;
    const KEYS: &'static [Binding<Action>] = &[
        key(&[named(KeyCode::Enter)], Action::Zoom, "zoom", "Zoom into the selected function", true),
        key(
            &[named(KeyCode::Backspace)],
            Action::Back,
            "zoom out",
            "Zoom out by one function, then clear the search; Esc does so, too",
            true,
        ),
        key(&[plain('m')], Action::Metric, "metric", "Switch between bytes and objects, in use and allocated", true),
        key(&[plain('/')], Action::Search, "search", "Search for functions, files, modules (regex, any case)", true),
        key(
            &[plain('i')],
            Action::Invert,
            "invert",
            "Begin with the function that asked for memory, or with main",
            true,
        ),
        key(&[plain('c')], Action::Colour, "colour", "Colour by function, by module, or by what grows", true),
        key(
            &[plain('t')],
            Action::Fold,
            "runtime",
            "Fold functions of a language's runtime into one, or show each",
            true,
        ),
        key(&[plain('x')], Action::Hide, "hide", "Leave out the selected function, with its call sites", false),
        key(&[plain('X')], Action::Unhide, "show all", "Show what was left out", false),
        key(&[plain('n')], Action::Match { forward: true }, "next", "Select the next match", false),
        key(&[plain('N')], Action::Match { forward: false }, "previous", "Select the match before", false),
        key(&[named(KeyCode::Left), plain('h')], Action::Step(Step::Left), "left", "The neighbour to the left", false),
        key(
            &[named(KeyCode::Right), plain('l')],
            Action::Step(Step::Right),
            "right",
            "The neighbour to the right",
            false,
        ),
    ];

    fn act(&mut self, action: Action, scene: &Scene<'_>) -> Reply {
        match action {
            Action::Search => self.search.editing = true,
            Action::Metric => self.state.switch_metric(),
            Action::Step(step) => self.step(step, scene),
            Action::Zoom => self.state.zoom_to(&self.tree, self.state.selected),
            Action::Back => drop(self.back(scene)),
            Action::Match { forward } => return self.find(forward, scene),
            Action::Colour => {
                self.colour = self.colour.next();
                self.modules = modules_of(&self.tree);
            }
            Action::Fold => self.reshape(Shape { folded: !self.shape.folded, ..self.shape }, scene),
            Action::Invert => self.reshape(Shape { inverted: !self.shape.inverted, ..self.shape }, scene),
            Action::Hide => return self.hide(scene),
            Action::Unhide => {
                self.hidden.clear();
                scene.model.into_iter().for_each(|model| self.follow(model));
            }
        }
        Reply::Done
    }
}

impl Flame {
    fn new() -> Flame {
        Flame {
            state: FlameState::new(Metric::InUseBytes),
            search: Search::default(),
            shape: USUAL,
            colour: Colour::default(),
            hidden: Vec::new(),
            tree: Arc::default(),
            grower: Grower::default(),
            modules: Vec::new(),
        }
    }

    fn step(&mut self, step: Step, scene: &Scene<'_>) {
        self.state.step(&self.tree, draw::cells_area(scene.body).width, step);
    }

    fn find(&mut self, forward: bool, scene: &Scene<'_>) -> Reply {
        let Some(pattern) = self.search.pattern() else {
            return Reply::Note("nothing is searched for: / searches".into());
        };
        let width = draw::cells_area(scene.body).width;
        match self.state.go_to_match(&self.tree, pattern, width, forward) {
            true => Reply::Done,
            false => Reply::Note("no match".into()),
        }
    }

    /// Takes another shape; what is selected is so by its name, if it is still there.
    fn reshape(&mut self, shape: Shape, scene: &Scene<'_>) {
        let turned = shape.inverted != self.shape.inverted;
        let name = self.tree.name(self.state.selected).to_owned();
        self.shape = shape;
        if turned {
            // Paths run the other way.
            self.state.zoom_to(&self.tree, FlameTree::ROOT);
        }
        scene.model.into_iter().for_each(|model| self.follow(model));
        if let Some(node) = self.widest(&name).filter(|_| self.tree.name(self.state.selected) != name) {
            self.state.select(&self.tree, node);
        }
    }

    /// Selects a function where it is widest; from the other end if it is only there.
    fn show_function(&mut self, name: &str, model: &Arc<Model>) -> bool {
        for shape in [self.shape, USUAL, Shape { folded: false, inverted: false }] {
            self.shape = shape;
            self.follow(model);
            if let Some(node) = self.widest(name) {
                self.state.zoom_to(&self.tree, FlameTree::ROOT);
                self.state.select(&self.tree, node);
                return true;
            }
        }
        false
    }

    fn widest(&self, name: &str) -> Option<usize> {
        let width = |at: &usize| self.tree.width(*at, self.state.metric);
        (1..self.tree.len()).filter(|&at| self.tree.name(at) == name).max_by(|a, b| width(a).total_cmp(&width(b)))
    }

    fn hide(&mut self, scene: &Scene<'_>) -> Reply {
        let name = self.tree.name(self.state.selected).to_owned();
        if self.state.selected == FlameTree::ROOT || name == RUNTIME {
            return Reply::Note("select a function first".into());
        }
        self.hidden.push(name);
        self.state.zoom_to(&self.tree, FlameTree::ROOT);
        scene.model.into_iter().for_each(|model| self.follow(model));
        Reply::Done
    }

    fn build(&mut self, model: &Model) -> FlameTree {
        let is_hidden = |row: &&SiteRow| {
            let Some(site) = model.profile.sites.get(row.index) else { return true };
            frames_of(&model.profile, site).any(|frame| self.hidden.contains(&frame.name))
        };
        if self.hidden.is_empty() {
            return self.grower.grow(&model.profile, &model.sites, &model.runtime, self.shape);
        }
        let sites: Vec<SiteRow> = model.sites.iter().filter(|row| !is_hidden(row)).cloned().collect();
        FlameTree::of(&model.profile, &sites, &model.runtime, self.shape)
    }
}

/// The modules of a tree by what their functions hold themselves, the largest first.
fn modules_of(tree: &FlameTree) -> Vec<String> {
    let mut sums: Vec<(&str, f64)> = Vec::new();
    for at in 1..tree.len() {
        let below: f64 = tree.node(at).children.iter().map(|&c| tree.width(c, Metric::InUseBytes)).sum();
        let own = (tree.width(at, Metric::InUseBytes) - below).max(0.0);
        let module = tree.label(at).module.as_str();
        match sums.iter_mut().find(|(known, _)| *known == module) {
            Some((_, sum)) => *sum += own,
            None => sums.push((module, own)),
        }
    }
    sums.retain(|(module, _)| !module.is_empty());
    sums.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    sums.into_iter().map(|(module, _)| module.to_owned()).collect()
}

impl Pane for Flame {
    fn follow(&mut self, model: &Arc<Model>) {
        self.tree = match &model.flame {
            Some(tree) if self.shape == USUAL && self.hidden.is_empty() => {
                // One tree is enough.
                self.grower = Grower::default();
                Arc::clone(tree)
            }
            _ => Arc::new(self.build(model)),
        };
        self.modules = if self.colour == Colour::Module { modules_of(&self.tree) } else { Vec::new() };
        self.state.replace(&self.tree);
    }

    fn search(&self) -> Option<&Search> {
        Some(&self.search)
    }

    fn search_mut(&mut self) -> Option<&mut Search> {
        Some(&mut self.search)
    }

    fn go(&mut self, motion: Motion, scene: &Scene<'_>) {
        let rows = motion.rows();
        for _ in 0..rows.unsigned_abs().min(100) {
            self.step(if rows < 0 { Step::Up } else { Step::Down }, scene);
        }
    }

    fn click(&mut self, button: MouseButton, at: Position, scene: &Scene<'_>) -> Option<Reply> {
        if button == MouseButton::Right {
            return Some(self.act(Action::Back, scene));
        }
        if button != MouseButton::Left {
            return None;
        }
        let node = self.graph().node_at(draw::cells_area(scene.body), at.x, at.y)?;
        if self.state.selected == node {
            return Some(self.act(Action::Zoom, scene));
        }
        self.state.select(&self.tree, node);
        Some(Reply::Done)
    }

    fn back(&mut self, _scene: &Scene<'_>) -> bool {
        if self.state.zoom_out(&self.tree) {
            return true;
        }
        let searched = self.search.is_shown();
        self.search.clear();
        searched
    }

    fn show(&mut self, subject: &Subject, scene: &Scene<'_>) -> bool {
        let Some(model) = scene.model else { return false };
        let path = match subject {
            Subject::Path(path) => path.clone(),
            Subject::Function(name) => return self.show_function(name, model),
            Subject::Frame { site, depth } => {
                let Some(row) = model.sites.iter().find(|row| row.key == *site) else { return false };
                let Some(site) = model.profile.sites.get(row.index) else { return false };
                path_to(&model.profile, site, &model.runtime, self.shape, *depth)
            }
            _ => return false,
        };
        self.follow(model);
        let node = self.tree.find(&path);
        self.state.zoom_to(&self.tree, FlameTree::ROOT);
        self.state.select(&self.tree, node);
        true
    }

    fn drawn(&self) -> Option<(Metric, Vec<(String, u64)>)> {
        let (tree, metric, zoom) = (&self.tree, self.state.metric, self.state.zoom);
        let own = |at: usize| {
            let below: f64 = tree.node(at).children.iter().map(|&callee| tree.width(callee, metric)).sum();
            (tree.width(at, metric) - below).max(0.0).round() as u64
        };
        let path = |at: usize| tree.path(at).iter().map(|name| name.replace(';', ":")).collect::<Vec<_>>().join(";");
        let shown = (1..tree.len()).filter(|&at| tree.is_within(at, zoom) && own(at) > 0);
        Some((metric, shown.map(|at| (path(at), own(at))).collect()))
    }

    fn copied(&self, _scene: &Scene<'_>) -> Option<String> {
        // As folded stacks have it: the outermost function first.
        let mut path = self.tree.path(self.state.selected);
        if self.shape.inverted {
            path.reverse();
        }
        Some(format!("{} {:.0}\n", path.join(";"), self.tree.value(self.state.selected, self.state.metric)))
    }

    fn draw(&self, scene: &Scene<'_>, buf: &mut Buffer) {
        self.draw_in(scene, buf);
    }
}
