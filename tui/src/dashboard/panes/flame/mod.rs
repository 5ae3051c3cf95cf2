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
use crate::dashboard::model::flame_tree::FlameTree;
use state::{FlameState, Step};

/// Its line in the table of views.
pub(crate) const VIEW: View = View {
    name: "flame",
    title: "Flamegraph",
    help: "Flamegraph",
    source: Source::Readings,
    make: || Box::new(Flame { state: FlameState::new(Metric::InUseBytes), search: Search::default() }),
};

#[derive(Debug)]
struct Flame {
    state: FlameState,
    search: Search,
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
}

impl Keyed for Flame {
    type Action = Action;
    const KEYS: &'static [Binding<Action>] = &[
        Binding {
            keys: &[named(KeyCode::Enter)],
            action: Action::Zoom,
            label: "zoom",
            help: "Zoom into the selected function",
            section: Section::View,
            footer: true,
        },
        Binding {
            keys: &[named(KeyCode::Esc), named(KeyCode::Backspace)],
            action: Action::Back,
            label: "zoom out",
            help: "Zoom out by one function, then clear the search",
            section: Section::View,
            footer: true,
        },
        Binding {
            keys: &[plain('m')],
            action: Action::Metric,
            label: "metric",
            help: "Switch between bytes and objects, in use and allocated",
            section: Section::View,
            footer: true,
        },
        Binding {
            keys: &[plain('/')],
            action: Action::Search,
            label: "search",
            help: "Search for functions, files, modules (regex, any case)",
            section: Section::View,
            footer: true,
        },
        Binding {
            keys: &[plain('n')],
            action: Action::Match { forward: true },
            label: "next",
            help: "Select the next match",
            section: Section::View,
            footer: false,
        },
        Binding {
            keys: &[plain('N')],
            action: Action::Match { forward: false },
            label: "previous",
            help: "Select the match before",
            section: Section::View,
            footer: false,
        },
        Binding {
            keys: &[named(KeyCode::Left), plain('h')],
            action: Action::Step(Step::Left),
            label: "left",
            help: "The neighbour to the left",
            section: Section::View,
            footer: false,
        },
        Binding {
            keys: &[named(KeyCode::Right), plain('l')],
            action: Action::Step(Step::Right),
            label: "right",
            help: "The neighbour to the right",
            section: Section::View,
            footer: false,
        },
    ];

    fn act(&mut self, action: Action, scene: &Scene<'_>) -> Reply {
        match action {
            Action::Search => self.search.editing = true,
            Action::Metric => self.state.switch_metric(),
            Action::Step(step) => self.step(step, scene),
            Action::Zoom => {
                if let Some(model) = scene.model {
                    self.state.zoom_to(&model.flame, self.state.selected);
                }
            }
            Action::Back => {
                if !scene.model.is_some_and(|model| self.state.zoom_out(&model.flame)) {
                    self.search.clear();
                }
            }
            Action::Match { forward } => return self.find(forward, scene),
        }
        Reply::Done
    }
}

impl Flame {
    fn step(&mut self, step: Step, scene: &Scene<'_>) {
        if let Some(model) = scene.model {
            self.state.step(&model.flame, draw::cells_area(scene.body).width, step);
        }
    }

    fn find(&mut self, forward: bool, scene: &Scene<'_>) -> Reply {
        let Some(model) = scene.model else { return Reply::Done };
        let Some(pattern) = self.search.pattern() else {
            return Reply::Note("nothing is searched for: / searches".into());
        };
        let width = draw::cells_area(scene.body).width;
        match self.state.go_to_match(&model.flame, pattern, width, forward) {
            true => Reply::Done,
            false => Reply::Note("no match".into()),
        }
    }
}

impl Pane for Flame {
    fn follow(&mut self, model: &Arc<Model>) {
        self.state.replace(&model.flame);
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
        let model = scene.model.filter(|_| button == MouseButton::Left)?;
        let node = self.graph(model).node_at(draw::cells_area(scene.body), at.x, at.y)?;
        if self.state.selected == node {
            return Some(self.act(Action::Zoom, scene));
        }
        self.state.select(&model.flame, node);
        Some(Reply::Done)
    }

    fn show(&mut self, subject: &Subject, scene: &Scene<'_>) -> bool {
        let (Subject::Path(path), Some(model)) = (subject, scene.model) else { return false };
        let node = model.flame.find(path);
        self.state.zoom_to(&model.flame, FlameTree::ROOT);
        self.state.select(&model.flame, node);
        true
    }

    fn copied(&self, scene: &Scene<'_>) -> Option<String> {
        let tree = &scene.model?.flame;
        // As folded stacks have it: the outermost function first.
        Some(format!(
            "{} {:.0}\n",
            tree.path(self.state.selected).join(";"),
            tree.value(self.state.selected, self.state.metric)
        ))
    }

    fn draw(&self, scene: &Scene<'_>, buf: &mut Buffer) {
        self.draw_in(scene, buf);
    }
}
