//! What the dashboard is in the middle of: which view, what is selected, what is typed. Drawing only reads it.

use std::sync::Arc;
use std::time::Duration;

use poolscope_profiler::Metric;
use poolscope_profiler::model::snapshot::ProcessState;
use ratatui::layout::{Rect, Size};

use super::find::Pattern;
use super::flame_state::FlameState;
use super::keys::Context;
use super::line_edit::LineEdit;
use super::model::Model;
use super::output::Tail;
use super::sort::Sort;
use super::theme::Theme;
use super::views;
use crate::words::Ended;

/// A page of the dashboard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum View {
    /// Memory over time, tiers, largest call sites.
    #[default]
    Overview,
    /// Size classes.
    Classes,
    /// Call sites with their stacks.
    Sites,
    /// Flamegraph.
    Flame,
    /// Threads.
    Threads,
    /// Device memory.
    Gpu,
    /// What the program wrote.
    Output,
}

impl View {
    /// All of them, in the order of the tabs.
    pub(crate) const ALL: [View; 7] =
        [View::Overview, View::Classes, View::Sites, View::Flame, View::Threads, View::Gpu, View::Output];

    /// The tab's title.
    pub(crate) fn title(self) -> &'static str {
        match self {
            View::Overview => "Overview",
            View::Classes => "Classes",
            View::Sites => "Call sites",
            View::Flame => "Flamegraph",
            View::Threads => "Threads",
            View::Gpu => "GPU",
            View::Output => "Output",
        }
    }
}

/// What lies over the view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Overlay {
    /// Nothing.
    #[default]
    None,
    /// The help.
    Help,
    /// The question what becomes of the program.
    Confirm,
    /// The program was told to end; the dashboard waits for it.
    Ending,
}

/// Where rows are chosen.
#[derive(Clone, Debug)]
pub(crate) struct TableState {
    /// Its order.
    pub(crate) sort: Sort,
    /// Indices into the model's rows, in order.
    pub(crate) order: Vec<usize>,
    /// Place in `order`.
    pub(crate) selected: usize,
}

impl TableState {
    fn new(sort: Sort) -> Self {
        TableState { sort, order: Vec::new(), selected: 0 }
    }

    /// The selected row's index in the model.
    pub(crate) fn current(&self) -> Option<usize> {
        self.order.get(self.selected).copied()
    }
}

/// Everything that drawing depends on.
#[derive(Debug)]
pub(crate) struct State {
    /// Columns and rows of the terminal.
    pub(crate) size: Size,
    /// Colours.
    pub(crate) theme: Theme,
    /// What is watched, for the time before the first reading.
    pub(crate) label: String,
    /// The tab.
    pub(crate) view: View,
    /// What lies over it.
    pub(crate) overlay: Overlay,
    /// What is shown.
    pub(crate) model: Option<Arc<Model>>,
    /// What was read last; differs from `model` while the picture is frozen.
    pub(crate) latest: Option<Arc<Model>>,
    /// The picture is frozen.
    pub(crate) paused: bool,
    /// Between two readings.
    pub(crate) interval: Duration,
    /// Why the last reading failed.
    pub(crate) trouble: Option<String>,
    /// A remark for the footer.
    pub(crate) note: Option<String>,
    /// How the program that `run` started ended.
    pub(crate) ended: Option<Ended>,
    /// `run` started the program: it has output, and quitting asks.
    pub(crate) owns_program: bool,
    /// The filter or the search is being typed.
    pub(crate) editing: bool,
    /// Size classes.
    pub(crate) classes: TableState,
    /// Call sites.
    pub(crate) sites: TableState,
    /// Key of the selected call site, so that it stays selected when the order changes.
    pub(crate) site_key: Option<u64>,
    /// First frame of its stack that is shown; none shows the function that names the call site.
    pub(crate) stack_scroll: Option<usize>,
    /// What call sites are filtered by.
    pub(crate) filter: LineEdit,
    /// The same, compiled.
    pub(crate) filter_pattern: Option<Pattern>,
    /// Threads.
    pub(crate) threads: TableState,
    /// Flamegraph.
    pub(crate) flame: FlameState,
    /// All counters of the tiers are shown.
    pub(crate) all_tiers: bool,
    /// Row of the overview's list of call sites.
    pub(crate) top_selected: usize,
    /// Row of the list of devices.
    pub(crate) device_selected: usize,
    /// First line of the help that is shown.
    pub(crate) help_scroll: u16,
    /// What the program wrote.
    pub(crate) output: Option<Tail>,
    /// Lines above the end of the output; 0 follows it.
    pub(crate) output_back: usize,
}

impl State {
    /// Nothing read yet.
    pub(crate) fn new(label: String, theme: Theme, size: Size, interval: Duration) -> State {
        State {
            size,
            theme,
            label,
            view: View::Overview,
            overlay: Overlay::None,
            model: None,
            latest: None,
            paused: false,
            interval,
            trouble: None,
            note: None,
            ended: None,
            owns_program: false,
            editing: false,
            classes: TableState::new(Sort::rising(views::classes::BLOCK)),
            sites: TableState::new(Sort::falling(views::sites::IN_USE)),
            site_key: None,
            stack_scroll: None,
            filter: LineEdit::default(),
            filter_pattern: None,
            threads: TableState::new(Sort::falling(views::threads::ALLOCS)),
            flame: FlameState::new(Metric::InUseBytes),
            all_tiers: false,
            top_selected: 0,
            device_selected: 0,
            help_scroll: 0,
            output: None,
            output_back: 0,
        }
    }

    /// The whole screen.
    pub(crate) fn area(&self) -> Rect {
        Rect::new(0, 0, self.size.width, self.size.height)
    }

    /// The views that there are: output only of a program that `run` started.
    pub(crate) fn views(&self) -> &'static [View] {
        if self.owns_program { &View::ALL } else { &View::ALL[..6] }
    }

    /// Which keys hold now.
    pub(crate) fn context(&self) -> Context {
        match self.overlay {
            Overlay::Help => Context::Help,
            Overlay::Confirm | Overlay::Ending => Context::Confirm,
            Overlay::None if self.editing => Context::Edit,
            Overlay::None => Context::View(self.view),
        }
    }

    /// The program that `run` started still runs.
    pub(crate) fn program_runs(&self) -> bool {
        self.owns_program && self.ended.is_none()
    }

    /// The watched process is gone.
    pub(crate) fn is_over(&self) -> bool {
        self.ended.is_some() || self.latest.as_ref().is_some_and(|m| m.snapshot.process.state != ProcessState::Running)
    }

    /// Takes a new reading; shows it unless the picture is frozen.
    pub(crate) fn take_reading(&mut self, model: Arc<Model>) {
        self.trouble = None;
        self.latest = Some(Arc::clone(&model));
        if !self.paused || self.model.is_none() {
            self.show(model);
        }
    }

    /// Shows a model.
    pub(crate) fn show(&mut self, model: Arc<Model>) {
        self.flame.replace(&model.flame);
        self.model = Some(model);
        self.reorder();
    }

    /// Orders and filters the tables anew; what is selected stays selected where it can.
    pub(crate) fn reorder(&mut self) {
        let Some(model) = &self.model else { return };
        let pattern = self.filter_pattern.as_ref();
        self.sites.order = self.sites.sort.sorted(
            &model.sites,
            |row| pattern.is_none_or(|p| p.matches(&row.text.haystack)),
            views::sites::compare,
        );
        if let Some(key) = self.site_key
            && let Some(at) = self.sites.order.iter().position(|&i| model.sites[i].key == key)
        {
            self.sites.selected = at;
        }
        self.classes.order = self.classes.sort.sorted(&model.classes, |_| true, views::classes::compare);
        self.threads.order = self.threads.sort.sorted(&model.threads, |_| true, views::threads::compare);
        for table in [&mut self.sites, &mut self.classes, &mut self.threads] {
            table.selected = table.selected.min(table.order.len().saturating_sub(1));
        }
        self.top_selected = self.top_selected.min(model.sites.len().saturating_sub(1));
        self.device_selected = self.device_selected.min(model.devices.len().saturating_sub(1));
    }

    /// The table of the view, if it has one.
    pub(crate) fn table(&mut self) -> Option<&mut TableState> {
        match self.view {
            View::Classes => Some(&mut self.classes),
            View::Sites => Some(&mut self.sites),
            View::Threads => Some(&mut self.threads),
            _ => None,
        }
    }

    /// Indices into the model's call sites, by bytes in use: the overview's list.
    pub(crate) fn top_sites(model: &Model) -> Vec<usize> {
        Sort::falling(views::sites::IN_USE).sorted(&model.sites, |s| s.in_use.bytes > 0.0, views::sites::compare)
    }
}
