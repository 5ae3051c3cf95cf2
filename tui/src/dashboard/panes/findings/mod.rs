//! What a person should know of the process, in words: the findings of the profiler, each with a way to what it is of.

mod draw;

use std::sync::Arc;

use crossterm::event::{KeyCode, MouseButton};
use poolscope_profiler::findings::{Finding, Subject as Of};
use poolscope_profiler::model::profile::Profile;
use ratatui::buffer::Buffer;
use ratatui::layout::Position;

use super::{Keyed, Pane, Reply, Scene, Source, Subject, View};
use crate::dashboard::input::common::Motion;
use crate::dashboard::input::key::{Binding, Section, named};
use crate::dashboard::model::Model;
use crate::dashboard::model::site::key_of;

/// Its line in the table of views.
pub(crate) const VIEW: View = View {
    name: "findings",
    title: "Findings",
    help: "What you should know of the process, in words",
    source: Source::Readings,
    make: || Box::new(Findings::default()),
};

#[derive(Debug, Default)]
struct Findings {
    /// How many there are.
    count: usize,
    /// The selected one.
    selected: usize,
}

/// What its keys ask for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// Go to what the selected finding is of.
    Open,
}

impl Keyed for Findings {
    type Action = Action;
    const KEYS: &'static [Binding<Action>] = &[Binding {
        keys: &[named(KeyCode::Enter)],
        action: Action::Open,
        label: "go there",
        help: "Go to what the selected finding is of",
        section: Section::View,
        footer: true,
    }];

    fn act(&mut self, Action::Open: Action, scene: &Scene<'_>) -> Reply {
        let Some(model) = scene.model else { return Reply::Done };
        match model.findings.get(self.selected) {
            Some(finding) => Reply::Show(subject(finding, &model.whole)),
            None => Reply::Done,
        }
    }
}

/// Where to go for a finding.
fn subject(finding: &Finding, whole: &Profile) -> Subject {
    match finding.subject {
        _ if finding.rule == "leaked" => Subject::View("leaks"),
        Of::Site(site) => match whole.sites.get(site) {
            Some(site) => Subject::Site(key_of(whole, site)),
            None => Subject::View("sites"),
        },
        Of::Memory => Subject::View("overview"),
        Of::Class(_) => Subject::View("classes"),
        Of::Device(_) => Subject::View("gpu"),
        Of::Children => Subject::Processes,
        Of::Samples => Subject::View("counters"),
    }
}

impl Pane for Findings {
    fn follow(&mut self, model: &Arc<Model>) {
        self.count = model.findings.len();
        self.selected = self.selected.min(self.count.saturating_sub(1));
    }

    fn go(&mut self, motion: Motion, _scene: &Scene<'_>) {
        self.selected = motion.from(self.selected, self.count);
    }

    fn click(&mut self, button: MouseButton, at: Position, scene: &Scene<'_>) -> Option<Reply> {
        let place = self.places(scene).into_iter().find(|(_, place)| place.contains(at));
        let (finding, _) = place.filter(|_| button == MouseButton::Left)?;
        if self.selected == finding {
            return Some(self.act(Action::Open, scene));
        }
        self.selected = finding;
        Some(Reply::Done)
    }

    fn copied(&self, scene: &Scene<'_>) -> Option<String> {
        Some(scene.model?.findings.get(self.selected)?.sentence.clone())
    }

    fn draw(&self, scene: &Scene<'_>, buf: &mut Buffer) {
        self.draw_in(scene, buf);
    }
}
