//! The views. Each folder has all of one view: what it is in the middle of, its keys and what they do, what a click
//! does, and how it is drawn. A view knows no other; it asks for a [`Subject`] to be shown, and whoever can, shows it.

mod classes;
mod counters;
mod findings;
mod flame;
mod gpu;
mod leaks;
mod listing;
mod naming;
mod output;
mod overview;
pub(crate) mod processes;
mod rows;
mod sites;
mod sort;
mod tensors;
mod threads;

use std::fmt::Debug;
use std::sync::Arc;

use crossterm::event::{KeyEvent, MouseButton};
use poolscope_profiler::Metric;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use super::events::Searched;
use super::events::output::Tail;
use super::events::tensors::Tensors;
use super::input::common::Motion;
use super::input::key::{self, Binding, Key, Section, plain};
use super::input::search::Search;
use super::lens::Lens;
use super::model::Model;
use super::theme::Theme;
pub(crate) use rows::{Clicked, Rows};

/// The views, in the order of their tabs.
pub(crate) const VIEWS: &[View] = &[
    overview::VIEW,
    classes::VIEW,
    sites::VIEW,
    flame::VIEW,
    threads::VIEW,
    gpu::VIEW,
    counters::VIEW,
    findings::VIEW,
    leaks::VIEW,
    output::VIEW,
    tensors::VIEW,
];

/// The keys that open a view: the numbers of the tabs, and then a letter.
const OPENERS: [[Key; 1]; 11] = [
    [plain('1')],
    [plain('2')],
    [plain('3')],
    [plain('4')],
    [plain('5')],
    [plain('6')],
    [plain('7')],
    [plain('8')],
    [plain('9')],
    [plain('0')],
    [plain('T')],
];

/// The keys that open views, with the place of each in [`VIEWS`].
pub(crate) fn openers() -> impl Iterator<Item = Binding<usize>> {
    VIEWS.iter().zip(&OPENERS).enumerate().map(|(action, (view, keys))| Binding {
        keys,
        action,
        label: view.name,
        help: view.help,
        section: Section::Everywhere,
        footer: false,
    })
}

/// The key that opens a view, as its tab has it.
pub(crate) fn opener(view: usize) -> String {
    OPENERS.get(view).map_or_else(String::new, |[key]| key.label())
}

/// The name of the view that shows the call tree.
pub(crate) const FLAME: &str = "flame";

/// The place of a view in [`VIEWS`].
pub(crate) fn named(name: &str) -> Option<usize> {
    VIEWS.iter().position(|view| view.name == name)
}

/// What is known of a view before it is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    /// For `--view`.
    pub(crate) name: &'static str,
    /// The tab's.
    pub(crate) title: &'static str,
    /// A sentence, for the help.
    pub(crate) help: &'static str,
    /// What it shows.
    pub(crate) source: Source,
    /// Makes it.
    pub(crate) make: fn() -> Box<dyn Pane>,
}

/// What a view shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Readings of the segment.
    Readings,
    /// What a program wrote that `run` started. Of others there is nothing.
    OwnProgram,
    /// What the owner of named tensors says, of a process that serves or holds some. Of others there is nothing.
    NamedTensors,
}

/// What views see and don't own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene<'a> {
    /// What is shown: the reading through the lens.
    pub(crate) model: Option<&'a Arc<Model>>,
    /// What of the reading that is.
    pub(crate) lens: &'a Lens,
    /// Colours.
    pub(crate) theme: &'a Theme,
    /// Where the view lies.
    pub(crate) body: Rect,
}

/// What comes of a key or a click.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Reply {
    /// The view itself has changed.
    #[default]
    Done,
    /// A remark for the footer.
    Note(String),
    /// Something that another view shows.
    Show(Subject),
    /// The filter is to be typed.
    Filter,
    /// The call sites that a filter is about are to be shown.
    FilterBy(String),
    /// Call sites are to be named by the callers of this function, too; or as at the start.
    ByCaller(Option<String>),
    /// The program is to look for leaks, itself or by a copy.
    Search { copy: bool },
    /// Only what was allocated in a time is to be shown, in seconds of `CLOCK_MONOTONIC`; or all.
    Range(Option<(f64, f64)>),
}

/// Something that a view can be asked to show.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Subject {
    /// A call site, by its key.
    Site(u64),
    /// A function in the call tree, by the names on its path from the root.
    Path(Vec<String>),
    /// A function in the stack of a call site, by the site's key and its place, innermost first.
    Frame { site: u64, depth: usize },
    /// A function, where it holds most of what is shown.
    Function(String),
    /// A view, by its name.
    View(&'static str),
    /// The processes to choose from.
    Processes,
}

/// A table for programs that read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Records {
    /// The names of the figures.
    pub(crate) fields: &'static [&'static str],
    /// Each row's, in that order.
    pub(crate) rows: Vec<Vec<String>>,
    /// `top --csv` gives the table, too.
    pub(crate) by_command: bool,
}

/// A view's own keys, and what they do.
pub(crate) trait Keyed {
    /// What a key can ask of it.
    type Action: Copy + 'static;
    /// Its keys, in the order of the footer and the help.
    const KEYS: &'static [Binding<Self::Action>];

    /// Whether that can be done now: otherwise the footer doesn't offer it.
    fn can(&self, _action: Self::Action) -> bool {
        true
    }

    /// Does what a key asks for.
    fn act(&mut self, action: Self::Action, scene: &Scene<'_>) -> Reply;
}

/// [`Keyed`], whatever the actions are.
pub(crate) trait Keys {
    /// Its keys, as the footer and the help read them.
    fn bindings(&self) -> Vec<Binding>;

    /// Does what a key means to the view; none if it means nothing to it.
    fn press(&mut self, event: &KeyEvent, scene: &Scene<'_>) -> Option<Reply>;
}

impl<T: Keyed> Keys for T {
    fn bindings(&self) -> Vec<Binding> {
        let row = |binding: &Binding<T::Action>| Binding {
            footer: binding.footer && self.can(binding.action),
            ..binding.row()
        };
        T::KEYS.iter().map(row).collect()
    }

    fn press(&mut self, event: &KeyEvent, scene: &Scene<'_>) -> Option<Reply> {
        key::action(T::KEYS, event).map(|action| self.act(action, scene))
    }
}

/// A view.
pub(crate) trait Pane: Keys + Debug {
    /// Takes a reading that is to be shown from now on. It is called for a view that is not seen only once it is.
    fn follow(&mut self, _model: &Arc<Model>) {}

    /// Takes what the program wrote.
    fn written(&mut self, _tail: &Tail) {}

    /// Takes what the owner of named tensors says.
    fn listed(&mut self, _tensors: &Arc<Tensors>, _model: Option<&Arc<Model>>) {}

    /// The program has looked for leaks, or refused to.
    fn searched_for_leaks(&mut self, _searched: &Searched) {}

    /// What it is searched or filtered by.
    fn search(&self) -> Option<&Search> {
        None
    }

    /// The same, to be changed; [`Pane::searched`] is called after that.
    fn search_mut(&mut self) -> Option<&mut Search> {
        None
    }

    /// The text that it is searched by has changed.
    fn searched(&mut self, _scene: &Scene<'_>) {}

    /// Moves.
    fn go(&mut self, motion: Motion, scene: &Scene<'_>);

    /// The wheel was turned over a point of it.
    fn wheel(&mut self, motion: Motion, _at: Position, scene: &Scene<'_>) {
        self.go(motion, scene);
    }

    /// A button was pressed over a point of it; none if that means nothing.
    fn click(&mut self, button: MouseButton, at: Position, scene: &Scene<'_>) -> Option<Reply>;

    /// What the filter leaves of it, in words, if its rows are of no call sites.
    fn left_by_filter(&self, _model: &Model) -> Option<String> {
        None
    }

    /// Its table, if the columns can be chosen.
    fn rows(&self) -> Option<&Rows> {
        None
    }

    /// The same, to be changed.
    fn rows_mut(&mut self) -> Option<&mut Rows> {
        None
    }

    /// The mouse was moved with its left button held, or let go.
    fn drag(&mut self, _at: Position, _ends: bool, _scene: &Scene<'_>) -> Option<Reply> {
        None
    }

    /// Goes back by a step, if there is one.
    fn back(&mut self, _scene: &Scene<'_>) -> bool {
        false
    }

    /// Shows something, if it is what the view shows.
    fn show(&mut self, _subject: &Subject, _scene: &Scene<'_>) -> bool {
        false
    }

    /// The paths of functions that it draws, with their values, if it is a flamegraph.
    fn drawn(&self) -> Option<(Metric, Vec<(String, u64)>)> {
        None
    }

    /// What is selected, as text.
    fn copied(&self, _scene: &Scene<'_>) -> Option<String> {
        None
    }

    /// The rows of its table, if that is of something else than the call sites of all.
    fn records(&self, _scene: &Scene<'_>) -> Option<Records> {
        None
    }

    /// Draws it. It changes nothing and waits for nothing.
    fn draw(&self, scene: &Scene<'_>, buf: &mut Buffer);
}
