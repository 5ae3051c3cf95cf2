//! The output view: the end of what the program wrote, which can be searched.

mod draw;

use crossterm::event::{KeyCode, MouseButton};
use ratatui::buffer::Buffer;
use ratatui::layout::Position;

use super::{Keyed, Pane, Reply, Scene, Source, View};
use crate::dashboard::events::output::Tail;
use crate::dashboard::input::common::{Motion, moved};
use crate::dashboard::input::key::{Binding, Key, Section, named, plain};
use crate::dashboard::input::search::Search;

/// The view.
pub(crate) const VIEW: View = View {
    name: "output",
    title: "Output",
    help: "Output of the program that run started",
    source: Source::OwnProgram,
    make: || Box::new(Output::default()),
};

#[derive(Debug, Default)]
struct Output {
    /// What was written last.
    tail: Option<Tail>,
    /// Lines above the end; 0 follows it.
    back: usize,
    /// What is looked for.
    search: Search,
    /// The line that was found, by its place before the end.
    found: Option<usize>,
}

/// What its keys ask for.
#[derive(Clone, Copy, Debug)]
enum Action {
    /// Type what is looked for.
    Search,
    /// The match above, or below.
    Match { up: bool },
    /// Leave the search.
    Back,
}

const fn key(
    keys: &'static [Key],
    action: Action,
    label: &'static str,
    help: &'static str,
    footer: bool,
) -> Binding<Action> {
    Binding { keys, action, label, help, section: Section::View, footer }
}

impl Keyed for Output {
    type Action = Action;
    const KEYS: &'static [Binding<Action>] = &[
        key(&[plain('/')], Action::Search, "search", "Search the lines from the last one up (regex, any case)", true),
        key(&[plain('n')], Action::Match { up: true }, "match above", "Go to the match above", true),
        key(&[plain('N')], Action::Match { up: false }, "match below", "Go to the match below", true),
        key(&[named(KeyCode::Backspace)], Action::Back, "clear", "Leave the search; Esc does so, too", false),
    ];

    fn act(&mut self, action: Action, scene: &Scene<'_>) -> Reply {
        match action {
            Action::Search => self.search.editing = true,
            Action::Match { up } => return self.go_to_match(up, scene),
            Action::Back => drop(self.back(scene)),
        }
        Reply::Done
    }
}

impl Output {
    /// The lines that match, by their places before the end, the last one first.
    fn matches(&self) -> impl Iterator<Item = usize> {
        let (tail, pattern) = (self.tail.as_ref(), self.search.pattern());
        let lines = tail.into_iter().flat_map(|tail| tail.lines.iter().rev()).enumerate();
        lines.filter(move |(_, line)| pattern.is_some_and(|pattern| pattern.matches(line))).map(|(at, _)| at)
    }

    /// Goes to the next match, and round at the end.
    fn go_to_match(&mut self, up: bool, scene: &Scene<'_>) -> Reply {
        if self.search.pattern().is_none() {
            return Reply::Note("nothing is searched for: / searches".into());
        }
        let next = match (self.found, up) {
            (Some(at), true) => self.matches().find(|next| *next > at).or_else(|| self.matches().next()),
            (Some(at), false) => self.matches().take_while(|next| *next < at).last().or_else(|| self.matches().last()),
            (None, _) => self.matches().next(),
        };
        self.found = next;
        let Some(at) = next else { return Reply::Note("no match".into()) };
        let height = usize::from(draw::lines_area(scene.body, true).height);
        if !(self.back..self.back + height).contains(&at) {
            self.back = at.saturating_sub(height / 2);
        }
        Reply::Done
    }
}

impl Pane for Output {
    fn written(&mut self, tail: &Tail) {
        // What is being read stays where it is.
        let new = self.tail.as_ref().map_or(0, |before| tail.written.saturating_sub(before.written));
        let most = tail.lines.len();
        if self.back > 0 {
            self.back = (self.back + new).min(most);
        }
        self.found = self.found.map(|at| at + new).filter(|at| *at < most);
        self.tail = Some(tail.clone());
    }

    fn search(&self) -> Option<&Search> {
        Some(&self.search)
    }

    fn search_mut(&mut self) -> Option<&mut Search> {
        Some(&mut self.search)
    }

    fn searched(&mut self, scene: &Scene<'_>) {
        self.found = None;
        // While it is typed, what is found is seen; that nothing is, is said beside the text.
        let _ = self.go_to_match(true, scene);
    }

    fn back(&mut self, _scene: &Scene<'_>) -> bool {
        let searched = self.search.is_shown();
        self.search.clear();
        self.found = None;
        searched
    }

    fn go(&mut self, motion: Motion, _scene: &Scene<'_>) {
        let lines = self.tail.as_ref().map_or(0, |tail| tail.lines.len());
        self.back = moved(self.back, motion.rows().checked_neg().unwrap_or(isize::MAX), lines + 1);
    }

    fn click(&mut self, _button: MouseButton, _at: Position, _scene: &Scene<'_>) -> Option<Reply> {
        None
    }

    fn copied(&self, _scene: &Scene<'_>) -> Option<String> {
        let lines = &self.tail.as_ref()?.lines;
        Some(format!("{}\n", lines.get(lines.len().checked_sub(1 + self.found?)?)?))
    }

    fn draw(&self, scene: &Scene<'_>, buf: &mut Buffer) {
        self.draw_in(scene, buf);
    }
}
