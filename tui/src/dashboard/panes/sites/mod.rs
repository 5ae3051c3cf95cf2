//! Call sites: a table to sort and filter, and the whole stack of the selected one; or what they have in common, by
//! function, file, module, label, thread or size class, or as a tree.

mod draw;
mod draw_groups;
mod groups;
mod tree;

use std::sync::Arc;

use crossterm::event::{KeyCode, MouseButton};
use ratatui::buffer::Buffer;
use ratatui::layout::Position;

use super::naming::{BY_CALLER, BY_FUNCTION};
use super::rows::{Clicked, Rows};
use super::sort::Sort;
use super::{Keyed, Pane, Records, Reply, Scene, Source, Subject, View};
use crate::dashboard::input::common::{Motion, moved};
use crate::dashboard::input::key::{Binding, Section, named, plain};
use crate::dashboard::input::ordering::{NEXT, PREVIOUS, REVERSE, Reorder};
use crate::dashboard::model::Model;
use crate::dashboard::model::site::{SiteRow, frames_of};
use crate::dashboard::widgets::stack::first_frame;
use crate::words::numbers;
use groups::{By, Group};
use tree::SiteTree;

/// Its line in the table of views.
pub(crate) const VIEW: View = View {
    name: "sites",
    title: "Call sites",
    help: "Call sites with their stacks",
    source: Source::Readings,
    make: || Box::new(Sites::new()),
};

#[derive(Debug)]
struct Sites {
    rows: Rows,
    /// Nobody chose an order: what grows comes first, if something does.
    usual_order: bool,
    /// Key of the selected call site, so that it stays selected when the order changes.
    key: Option<u64>,
    /// First frame of its stack that is shown; none shows the function that names the call site.
    stack_scroll: Option<usize>,
    /// What the rows are.
    by: By,
    /// The rows, if they are no call sites.
    groups: Vec<Group>,
    group_rows: Rows,
    /// Name of the selected one, and its place in the tree.
    group_key: Option<Vec<String>>,
    tree: SiteTree,
    /// The call sites of the selected group, the largest first.
    members: Vec<usize>,
}

/// What its keys ask for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// Another order.
    Reorder(Reorder),
    /// Type the filter.
    Filter,
    /// Show the call site in the flamegraph.
    Open,
    /// Scroll the stack by some frames.
    Scroll(isize),
    /// Show rows of another kind.
    Group { forward: bool },
    /// Open the selected row of the tree, or close it.
    Unfold(bool),
    /// Order by what was freed again.
    Temporary,
    /// Name call sites by the caller of the function that names the selected one, or as at the start.
    ByCaller(bool),
}

impl Keyed for Sites {
    type Action = Action;
    const KEYS: &'static [Binding<Action>] = &[
        Binding {
            keys: &[plain('/')],
            action: Action::Filter,
            label: "filter",
            help: "Filter, as f does",
            section: Section::View,
            footer: false,
        },
        NEXT.with(Action::Reorder(Reorder::Next)),
        PREVIOUS.with(Action::Reorder(Reorder::Previous)),
        REVERSE.with(Action::Reorder(Reorder::Reverse)),
        Binding {
            keys: &[named(KeyCode::Enter)],
            action: Action::Open,
            label: "flamegraph",
            help: "Show the selected call site in the flamegraph",
            section: Section::View,
            footer: true,
        },
        Binding {
            keys: &[plain('t')],
            action: Action::Temporary,
            label: "temporary",
            help: "Order by what was allocated and freed again",
            section: Section::View,
            footer: false,
        },
        BY_CALLER.with(Action::ByCaller(true)),
        BY_FUNCTION.with(Action::ByCaller(false)),
        Binding {
            keys: &[plain('v')],
            action: Action::Group { forward: true },
            label: "group",
            help: "By function, file, module, label, thread, size class, as a tree of callees or callers",
            section: Section::View,
            footer: true,
        },
        Binding {
            keys: &[plain('V')],
            action: Action::Group { forward: false },
            label: "group back",
            help: "The same the other way round",
            section: Section::View,
            footer: false,
        },
        Binding {
            keys: &[named(KeyCode::Right), plain('l')],
            action: Action::Unfold(true),
            label: "open",
            help: "Open the selected row of a tree",
            section: Section::View,
            footer: false,
        },
        Binding {
            keys: &[named(KeyCode::Left), plain('h')],
            action: Action::Unfold(false),
            label: "close",
            help: "Close the selected row of a tree, or go to the row above it",
            section: Section::View,
            footer: false,
        },
        Binding {
            keys: &[plain(']')],
            action: Action::Scroll(5),
            label: "stack",
            help: "Scroll the stack towards its outermost frame",
            section: Section::View,
            footer: true,
        },
        Binding {
            keys: &[plain('[')],
            action: Action::Scroll(-5),
            label: "stack back",
            help: "Scroll the stack towards its innermost frame",
            section: Section::View,
            footer: false,
        },
    ];

    fn act(&mut self, action: Action, scene: &Scene<'_>) -> Reply {
        match action {
            Action::Reorder(by) => {
                if self.by != By::Stack {
                    self.group_rows.reorder(by);
                    self.order(scene);
                    return Reply::Done;
                }
                self.rows.reorder(by);
                self.usual_order = false;
                if by != Reorder::Reverse {
                    self.select_first();
                }
                self.order(scene);
            }
            Action::Filter => return Reply::Filter,
            // The function that names the call site: what lies within it says less.
            Action::Open if self.by != By::Stack => return self.open_group(),
            Action::Open => {
                let row = scene.model.and_then(|model| self.current(model));
                let frame = row.map(|row| Subject::Frame { site: row.key, depth: row.text.frame });
                return frame.map_or(Reply::Done, Reply::Show);
            }
            Action::Scroll(by) => self.scroll(by, scene),
            Action::Group { forward } => {
                (self.by, self.group_key) = (self.by.next(forward), None);
                self.group_rows.selected = 0;
                let compared = scene.model.is_some_and(|model| model.sites.iter().any(|row| row.change.is_some()));
                let column =
                    if compared && !self.by.is_of_blocks() { draw_groups::CHANGE } else { draw_groups::IN_USE };
                self.group_rows.sort = Sort::falling(column);
                self.order(scene);
            }
            Action::Unfold(open) => self.unfold(open, scene),
            Action::ByCaller(false) => return Reply::ByCaller(None),
            Action::ByCaller(true) if self.by != By::Stack => {
                return Reply::Note("x names call sites by callers: v shows them by stack".into());
            }
            Action::ByCaller(true) => {
                let row = scene.model.and_then(|model| self.current(model));
                return row.map_or(Reply::Done, |row| Reply::ByCaller(Some(row.text.function.to_string())));
            }
            Action::Temporary => {
                self.rows.sort = Sort::falling(draw::FREED);
                self.group_rows.sort = Sort::falling(draw_groups::FREED);
                self.usual_order = false;
                self.select_first();
                self.order(scene);
            }
        }
        Reply::Done
    }
}

impl Sites {
    fn new() -> Sites {
        let rows = Rows::new(draw::COLUMNS, &[draw::NAME], 44, Sort::falling(draw::IN_USE));
        let group_rows = Rows::new(draw_groups::COLUMNS, &[draw_groups::NAME], 30, Sort::falling(draw_groups::IN_USE));
        Sites {
            rows,
            usual_order: true,
            key: None,
            stack_scroll: None,
            by: By::default(),
            groups: Vec::new(),
            group_rows,
            group_key: None,
            tree: SiteTree::default(),
            members: Vec::new(),
        }
    }

    /// The selected call site.
    fn current<'a>(&self, model: &'a Model) -> Option<&'a SiteRow> {
        model.listed().get(self.rows.current()?)
    }

    fn order(&mut self, scene: &Scene<'_>) {
        scene.model.into_iter().for_each(|model| self.follow(model));
    }

    /// The selected group.
    fn group(&self) -> Option<&Group> {
        self.groups.get(self.group_rows.current()?)
    }

    fn key_of(&self, group: &Group) -> Vec<String> {
        if self.by.is_tree() { self.tree.path(group) } else { vec![group.name.clone()] }
    }

    /// Shows what the selected group is made of: a function in the flamegraph, else its call sites.
    fn open_group(&mut self) -> Reply {
        let Some(group) = self.group() else { return Reply::Done };
        match self.by {
            By::Function | By::Callers => Reply::Show(Subject::Function(group.name.clone())),
            By::Callees => Reply::Show(Subject::Path(self.tree.path(group))),
            _ if group.filter.is_empty() => Reply::Note("nothing more is known of it".into()),
            _ => {
                let filter = group.filter.clone();
                self.by = By::Stack;
                Reply::FilterBy(filter)
            }
        }
    }

    fn unfold(&mut self, open: bool, scene: &Scene<'_>) {
        let Some(group) = self.group().cloned().filter(|_| self.by.is_tree()) else { return };
        if !self.tree.set_open(&group, open) && !open {
            // What is closed already leads to its parent.
            let path = self.tree.path(&group);
            self.group_key = Some(path[..path.len().saturating_sub(1)].to_vec());
        }
        self.order(scene);
    }

    fn follow_groups(&mut self, model: &Model) {
        self.groups = match self.by {
            By::Callees | By::Callers => self.tree.follow(model, self.by == By::Callers),
            by => groups::groups(model, by),
        };
        self.group_rows.absent = draw_groups::absent(model, self.by);
        if self.by.is_tree() {
            // The order is that of the tree.
            self.group_rows.order = (0..self.groups.len()).collect();
        } else {
            let is_shown = |group: &Group| group.with_callees > 0.0 || group.figures[2] > 0.0 || group.change.is_some();
            self.group_rows.follow(&self.groups, is_shown, draw_groups::compare);
        }
        let last = self.group_rows.order.len().saturating_sub(1);
        self.group_rows.selected = self.group_rows.selected.min(last);
        let key = self.group_key.clone();
        let place = self.group_rows.order.iter().position(|&at| Some(self.key_of(&self.groups[at])) == key);
        self.group_rows.selected = place.unwrap_or(self.group_rows.selected);
        self.find_members(model);
    }

    /// Another group is selected.
    fn group_selected(&mut self, scene: &Scene<'_>) {
        self.group_key = self.group().map(|group| self.key_of(group));
        scene.model.into_iter().for_each(|model| self.find_members(model));
    }

    fn find_members(&mut self, model: &Model) {
        self.members = match self.group() {
            Some(group) if !self.by.is_of_blocks() => groups::members(model, group),
            _ => Vec::new(),
        };
    }

    /// Selects the first row, whichever call site comes to be there.
    fn select_first(&mut self) {
        self.key = None;
        self.rows.selected = 0;
    }

    /// The selection has moved.
    fn remember(&mut self, scene: &Scene<'_>) {
        self.stack_scroll = None;
        if let Some(row) = scene.model.and_then(|model| self.current(model)) {
            self.key = Some(row.key);
        }
    }

    fn scroll(&mut self, by: isize, scene: &Scene<'_>) {
        let Some(model) = scene.model else { return };
        let Some(row) = self.current(model) else { return };
        let Some(site) = model.profile.sites.get(row.index) else { return };
        let frames = frames_of(&model.profile, site).count();
        let room = self.stack_room(scene.body);
        let first = first_frame(self.stack_scroll, row.text.frame, frames, room);
        self.stack_scroll = Some(moved(first, by, frames.saturating_sub(room) + 1));
    }
}

/// A call site with its stack, innermost frame first.
pub(super) fn site_text(model: &Model, row: &SiteRow) -> Option<String> {
    let site = model.profile.sites.get(row.index)?;
    let bytes = numbers::bytes(row.in_use.bytes);
    let objects = numbers::counted(row.in_use.objects, "object");
    let mut text = format!("{}: {bytes} in use in {objects}\n", row.text.function);
    if !row.others.is_empty() {
        text += &format!("in {} stacks, of which this has most:\n", row.others.len() + 1);
    }
    for frame in frames_of(&model.profile, site) {
        text += &format!("  {}  {}\n", frame.name, frame.place());
    }
    Some(text)
}

impl Pane for Sites {
    fn follow(&mut self, model: &Arc<Model>) {
        if self.by != By::Stack {
            return self.follow_groups(model);
        }
        if self.usual_order {
            let grows = model.listed().iter().any(SiteRow::grows);
            let compared = model.listed().iter().any(|row| row.change.is_some());
            self.rows.sort = Sort::falling(match (compared, grows) {
                (true, _) => draw::CHANGE,
                (false, true) => draw::GROWTH,
                (false, false) => draw::IN_USE,
            });
        }
        self.rows.absent = draw::absent(model);
        self.rows.follow(model.listed(), |_| true, draw::compare);
        if let Some(key) = self.key
            && let Some(at) = self.rows.order.iter().position(|&at| model.listed()[at].has(key))
        {
            self.rows.selected = at;
        }
    }

    fn rows(&self) -> Option<&Rows> {
        Some(if self.by == By::Stack { &self.rows } else { &self.group_rows })
    }

    fn rows_mut(&mut self) -> Option<&mut Rows> {
        Some(if self.by == By::Stack { &mut self.rows } else { &mut self.group_rows })
    }

    fn go(&mut self, motion: Motion, scene: &Scene<'_>) {
        if self.by != By::Stack {
            self.group_rows.go(motion);
            self.group_selected(scene);
            return;
        }
        self.rows.go(motion);
        self.remember(scene);
    }

    fn wheel(&mut self, motion: Motion, at: Position, scene: &Scene<'_>) {
        if self.areas(scene.body).detail.contains(at) {
            self.scroll(motion.rows(), scene);
        } else {
            self.go(motion, scene);
        }
    }

    fn click(&mut self, button: MouseButton, at: Position, scene: &Scene<'_>) -> Option<Reply> {
        if button != MouseButton::Left {
            return None;
        }
        let area = self.areas(scene.body).table;
        if self.by != By::Stack {
            match self.group_rows.click(at, area)? {
                Clicked::Title => self.order(scene),
                Clicked::Row => self.group_selected(scene),
                Clicked::Again => return Some(self.open_group()),
            }
            return Some(Reply::Done);
        }
        match self.rows.click(at, area)? {
            Clicked::Title => {
                self.usual_order = false;
                self.select_first();
                self.order(scene);
            }
            Clicked::Row => self.remember(scene),
            Clicked::Again => return Some(self.act(Action::Open, scene)),
        }
        Some(Reply::Done)
    }

    fn show(&mut self, subject: &Subject, scene: &Scene<'_>) -> bool {
        let Subject::Site(key) = subject else { return false };
        if !scene.model.is_some_and(|model| model.listed().iter().any(|row| row.has(*key))) {
            return false;
        }
        (self.by, self.key) = (By::Stack, Some(*key));
        self.order(scene);
        true
    }

    fn copied(&self, scene: &Scene<'_>) -> Option<String> {
        if self.by != By::Stack {
            return self.group().map(|group| format!("{}  {}\n", numbers::bytes(group.figures[0]), group.name));
        }
        let model = scene.model?;
        site_text(model, self.current(model)?)
    }

    fn records(&self, scene: &Scene<'_>) -> Option<Records> {
        let model = scene.model?;
        if self.by != By::Stack {
            let shown = self.group_rows.order.iter().filter_map(|&at| self.groups.get(at));
            let rows = shown.map(|group| group.record(self.by)).collect();
            return Some(Records { fields: Group::FIELDS, rows, by_command: false });
        }
        let shown = self.rows.order.iter().filter_map(|&at| model.listed().get(at));
        let rows = shown.map(|row| row.record(&model.profile)).collect();
        Some(Records { fields: SiteRow::FIELDS, rows, by_command: true })
    }

    fn draw(&self, scene: &Scene<'_>, buf: &mut Buffer) {
        self.draw_in(scene, buf);
    }
}
