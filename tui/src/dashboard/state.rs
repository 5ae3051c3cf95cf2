//! What the dashboard is in the middle of, beside what each view keeps for itself. Drawing only reads it.

use std::sync::Arc;
use std::time::Duration;

use poolscope_profiler::findings::Finding;
use poolscope_profiler::model::snapshot::ProcessState;
use ratatui::layout::{Rect, Size};

use super::events::Searched;
use super::events::output::Tail;
use super::events::own::OwnCost;
use super::events::processes::{Listed, ProcessRow, Processes};
use super::events::tensors::Tensors;
use super::events::watched::Watched;
use super::input::filter::Filter;
use super::input::line_edit::LineEdit;
use super::input::moment::Moment;
use super::input::search::Search;
use super::lens::kept::Kept;
use super::lens::{Base, Lens};
use super::model::Model;
use super::panes::{self, Pane, Rows, Scene, Source, VIEWS};
use super::theme::Theme;
use crate::remote::Server;
use crate::words::Ended;

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
    /// The processes to choose from.
    Choose,
    /// The question what to write into a file, or what was written.
    Export,
    /// The moments that the present can be compared with.
    Base,
    /// The file that it is to be compared with is typed.
    BaseFile,
    /// The columns of the table.
    Columns,
}

/// Which keys hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// Those of the view, with nothing over it.
    View,
    /// Those that edit a line.
    Typing,
    /// Those of the help.
    Help,
    /// Those that answer the question about a running program.
    Leaving,
    /// Those that choose a process.
    Choosing,
    /// Those that choose what to write into a file.
    Exporting,
    /// Those that choose what the present is compared with.
    Comparing,
    /// Those that choose columns.
    Columns,
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
    /// The server that is asked; none where the segment is read.
    pub(crate) server: Option<Server>,
    /// The moment of the recording that is shown; none where there is none.
    pub(crate) moment: Option<Moment>,
    /// The views, in the order of [`VIEWS`].
    pub(crate) panes: Vec<Box<dyn Pane>>,
    /// The view that is shown: a place in them.
    pub(crate) view: usize,
    /// What lies over it.
    pub(crate) overlay: Overlay,
    /// What is shown: the reading through the lens.
    pub(crate) model: Option<Arc<Model>>,
    /// The reading that is shown, as it was read.
    pub(crate) read: Option<Arc<Model>>,
    /// What of it is looked at.
    pub(crate) lens: Lens,
    /// What it can be compared with.
    pub(crate) kept: Kept,
    /// The line that the views are filtered by.
    pub(crate) filter: Search,
    /// Why it is no filter.
    pub(crate) filter_trouble: Option<String>,
    /// The name of the file to compare with, while it is typed.
    pub(crate) base_file: LineEdit,
    /// A process that is gone is shown as it was when most was in use.
    pub(crate) opens_at_peak: bool,
    /// What was read last; differs from `read` while the picture is frozen.
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
    /// What the help is narrowed by.
    pub(crate) help_filter: LineEdit,
    /// First line of the help that is shown.
    pub(crate) help_scroll: u16,
    /// The selected one of the columns of a table.
    pub(crate) column_selected: usize,
    /// What is said of what was written into a file.
    pub(crate) exported: Option<Vec<String>>,
    /// The mouse is taken.
    pub(crate) mouse: bool,
    /// The processes to choose from.
    pub(crate) processes: Processes,
    /// The call sites of all are shown with them.
    pub(crate) with_sites: bool,
    /// Their table.
    pub(crate) process_rows: Rows,
    /// The line that they are filtered by.
    pub(crate) process_search: Search,
    /// The filter that it is.
    pub(crate) process_filter: Filter,
    /// Why it is none.
    pub(crate) process_trouble: Option<String>,
    /// What the help, or the list of columns, lies over.
    pub(crate) below: Overlay,
    /// The one to be selected once it is among them.
    pub(crate) process_wanted: Option<u32>,
    /// Only processes of this name are to choose from.
    pub(crate) wanted_name: Option<String>,
    /// The process that was chosen; readings of others are late ones.
    pub(crate) chosen: Option<u32>,
    /// Something is watched: the choice can be left.
    pub(crate) watches: bool,
    /// What the dashboard itself costs.
    pub(crate) own: Option<OwnCost>,
    /// The named tensors, if the process serves or holds some.
    pub(crate) tensors: Option<Arc<Tensors>>,
}

impl State {
    /// Nothing read yet.
    pub(crate) fn new(label: String, theme: Theme, size: Size, interval: Duration) -> State {
        State {
            size,
            theme,
            label,
            server: None,
            moment: None,
            panes: VIEWS.iter().map(|view| (view.make)()).collect(),
            view: 0,
            overlay: Overlay::None,
            model: None,
            read: None,
            lens: Lens::default(),
            kept: Kept::default(),
            filter: Search::default(),
            filter_trouble: None,
            base_file: LineEdit::default(),
            opens_at_peak: false,
            latest: None,
            paused: false,
            interval,
            trouble: None,
            note: None,
            ended: None,
            owns_program: false,
            help_filter: LineEdit::default(),
            help_scroll: 0,
            column_selected: 0,
            exported: None,
            mouse: true,
            processes: Processes::default(),
            with_sites: false,
            process_rows: panes::processes::rows(),
            process_search: Search::default(),
            process_filter: Filter::default(),
            process_trouble: None,
            below: Overlay::None,
            process_wanted: None,
            wanted_name: None,
            chosen: None,
            watches: true,
            own: None,
            tensors: None,
        }
    }

    /// The whole screen.
    pub(crate) fn area(&self) -> Rect {
        Rect::new(0, 0, self.size.width, self.size.height)
    }

    /// The views that there are, as places in [`VIEWS`]: output only of a program that `run` started, and tensors only
    /// of a process that has to do with some.
    pub(crate) fn views(&self) -> impl Iterator<Item = usize> {
        let (owns_program, has_tensors) = (self.owns_program, self.tensors.is_some());
        (0..VIEWS.len()).filter(move |&view| match VIEWS[view].source {
            Source::Readings => true,
            Source::OwnProgram => owns_program,
            Source::NamedTensors => has_tensors,
        })
    }

    /// The view that is shown.
    pub(crate) fn pane(&self) -> &dyn Pane {
        &*self.panes[self.view]
    }

    /// What a view that lies in `body` sees.
    pub(crate) fn scene(&self, body: Rect) -> Scene<'_> {
        Scene { model: self.model.as_ref(), lens: &self.lens, theme: &self.theme, body }
    }

    /// Lets a view that lies in `body` change.
    pub(crate) fn change<T>(
        &mut self,
        view: usize,
        body: Rect,
        change: impl FnOnce(&mut dyn Pane, &Scene<'_>) -> T,
    ) -> T {
        let scene = Scene { model: self.model.as_ref(), lens: &self.lens, theme: &self.theme, body };
        change(&mut *self.panes[view], &scene)
    }

    /// Which keys hold now.
    pub(crate) fn context(&self) -> Context {
        match self.overlay {
            Overlay::Help => Context::Help,
            Overlay::Confirm | Overlay::Ending => Context::Leaving,
            Overlay::Choose if self.process_search.editing => Context::Typing,
            Overlay::Choose => Context::Choosing,
            Overlay::Export => Context::Exporting,
            Overlay::Base => Context::Comparing,
            Overlay::Columns => Context::Columns,
            Overlay::BaseFile => Context::Typing,
            Overlay::None if self.filter.editing => Context::Typing,
            Overlay::None if self.pane().search().is_some_and(|search| search.editing) => Context::Typing,
            Overlay::None => Context::View,
        }
    }

    /// Opens a view. What is being typed in the one before is kept as it is.
    pub(crate) fn open(&mut self, view: usize) {
        if let Some(search) = self.panes[self.view].search_mut() {
            search.editing = false;
        }
        self.filter.editing = false;
        self.view = view;
        if let Some(model) = &self.model {
            self.panes[view].follow(model);
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
        if self.chosen.is_some_and(|pid| pid != model.snapshot.process.pid) {
            return;
        }
        self.trouble = None;
        self.latest = Some(Arc::clone(&model));
        self.kept.take(&model);
        let is_gone = model.snapshot.process.state != ProcessState::Running;
        if self.opens_at_peak && self.model.is_none() && is_gone && Lens::has_past_peak(&model) {
            self.lens.at_peak = true;
        }
        if !self.paused || self.model.is_none() {
            self.show(model);
        }
    }

    /// Selects what a person means who looks at the watched process: the largest one that it started, or itself.
    pub(crate) fn select_process_to_look_at(&mut self) {
        let Some(model) = &self.model else { return };
        let started = model.family.iter().find(|kin| kin.on_pool).map(|kin| kin.child.pid);
        self.process_wanted = started.or(Some(model.snapshot.process.pid));
        self.take_processes(self.processes.clone());
    }

    /// Takes the processes that there are; the selected one stays selected.
    pub(crate) fn take_processes(&mut self, mut processes: Processes) {
        processes.running.sort_by_key(|row| row.pid);
        let selected = self.selected_process().map(|row| row.pid);
        self.processes = processes;
        let absent = self.process_rows.absent;
        self.process_rows.absent = absent.with(panes::processes::USER, !self.processes.are_others());
        let wanted = self.process_wanted.filter(|pid| self.processes.running.iter().any(|row| row.pid == *pid));
        if wanted.is_some() {
            self.process_wanted = None;
        }
        self.order_processes(wanted.or(selected));
    }

    /// Orders and filters the processes anew; one of them is selected.
    pub(crate) fn order_processes(&mut self, selected: Option<u32>) {
        let (running, filter) = (&self.processes.running, &self.process_filter);
        self.process_rows.follow(running, |row| row.is_meant(filter), ProcessRow::compare);
        self.process_rows.select(|at| Some(running.get(at)?.pid.into()), selected.map(u64::from));
    }

    /// The selected process.
    pub(crate) fn selected_process(&self) -> Option<&ProcessRow> {
        self.processes.running.get(self.process_rows.current()?)
    }

    /// Takes the text of the filter of processes as it is now. One that is none yet leaves the last that was.
    pub(crate) fn processes_filtered(&mut self) {
        let selected = self.selected_process().map(|row| row.pid);
        match Filter::parse(&self.process_search.line().text()) {
            Ok(filter) => (self.process_filter, self.process_trouble) = (filter, None),
            Err(why) => self.process_trouble = Some(why),
        }
        self.order_processes(selected);
    }

    /// The table whose columns can be chosen: that of the view, or of what lies over it.
    pub(crate) fn table(&self) -> Option<&Rows> {
        if self.is_over_processes() { Some(&self.process_rows) } else { self.pane().rows() }
    }

    /// The same, to be changed.
    pub(crate) fn table_mut(&mut self) -> Option<&mut Rows> {
        if self.is_over_processes() { Some(&mut self.process_rows) } else { self.panes[self.view].rows_mut() }
    }

    fn is_over_processes(&self) -> bool {
        self.overlay == Overlay::Columns && self.below == Overlay::Choose
    }

    /// Whose processes there are to choose from.
    pub(crate) fn listed(&self) -> Listed {
        Listed { name: self.wanted_name.clone(), server: self.server.clone(), with_sites: self.with_sites }
    }

    /// Watches the selected process from now on; says how.
    pub(crate) fn choose(&mut self) -> Option<Watched> {
        let row = self.selected_process()?.clone();
        self.label = format!("process {}", row.pid);
        (self.chosen, self.moment) = (Some(row.pid), None);
        if let Watched::Server(server) = &row.watched {
            self.server = Some(server.clone());
        }
        self.overlay = Overlay::None;
        self.watches = true;
        let watched = row.watched.clone();
        (self.model, self.read, self.latest, self.trouble, self.paused) = (None, None, None, None, false);
        self.take_tensors(None);
        self.clear_lens();
        Some(watched)
    }

    /// Takes what the program wrote.
    pub(crate) fn take_output(&mut self, tail: &Tail) {
        self.panes.iter_mut().for_each(|pane| pane.written(tail));
    }

    /// Takes what the owner of named tensors says, unless the picture is frozen or another process is watched by now.
    pub(crate) fn take_tensors(&mut self, tensors: Option<Arc<Tensors>>) {
        let is_late = |tensors: &Arc<Tensors>| self.chosen.is_some_and(|pid| pid != tensors.pid);
        if self.paused && self.tensors.is_some() || tensors.as_ref().is_some_and(is_late) {
            return;
        }
        let shown = tensors.clone().unwrap_or_default();
        self.panes.iter_mut().for_each(|pane| pane.listed(&shown, self.model.as_ref()));
        self.tensors = tensors;
    }

    /// Takes what came of a search for leaks.
    pub(crate) fn take_search(&mut self, searched: &Searched) {
        self.panes.iter_mut().for_each(|pane| pane.searched_for_leaks(searched));
    }

    /// Freezes or releases the picture.
    pub(crate) fn pause(&mut self) {
        self.paused = !self.paused;
        if !self.paused
            && let Some(latest) = self.latest.clone()
        {
            self.show(latest);
        }
    }

    fn show(&mut self, model: Arc<Model>) {
        self.read = Some(if self.ended.is_some() { without_processes(model) } else { model });
        self.look();
    }

    /// The program that `run` started has ended. What it had started is not its any more, whatever the last
    /// reading said.
    pub(crate) fn end(&mut self, ended: Ended) {
        self.ended = Some(ended);
        if let Some(read) = self.read.take() {
            self.show(read);
        }
    }

    /// Looks at the reading that is shown through the lens, which has changed.
    pub(crate) fn look(&mut self) {
        let Some(read) = &self.read else { return };
        let model = if self.lens.is_clear() { Arc::clone(read) } else { Arc::new(self.lens.through(read, &self.kept)) };
        self.panes[self.view].follow(&model);
        self.model = Some(model);
    }

    /// Takes the text of the filter as it is now. One that is none yet leaves the last that was.
    pub(crate) fn filtered(&mut self) {
        match Filter::parse(&self.filter.line().text()) {
            Ok(filter) => {
                (self.lens.filter, self.filter_trouble) = (Arc::new(filter), None);
                self.look();
            }
            Err(why) => self.filter_trouble = Some(why),
        }
    }

    /// Filters by a text.
    pub(crate) fn filter_by(&mut self, text: &str) {
        self.filter.clear();
        self.filter.insert(text);
        self.filtered();
    }

    /// Takes away the last that was laid over the reading; whether there was anything.
    pub(crate) fn step_back(&mut self) -> bool {
        if self.filter.is_shown() {
            self.filter.clear();
            self.filtered();
        } else if self.lens.range.is_some() {
            self.lens.range = None;
        } else if !matches!(self.lens.base, Base::None) {
            self.lens.base = Base::None;
        } else if self.lens.at_peak {
            self.lens.at_peak = false;
        } else {
            return false;
        }
        self.look();
        true
    }

    fn clear_lens(&mut self) {
        while self.step_back() {}
    }
}

/// A reading without the processes that were started.
fn without_processes(mut model: Arc<Model>) -> Arc<Model> {
    let is_of_them = |finding: &Finding| finding.rule == "children";
    if !model.family.is_empty() || model.findings.iter().any(is_of_them) {
        let model = Arc::make_mut(&mut model);
        model.family.clear();
        model.findings.retain(|finding| !is_of_them(finding));
    }
    model
}
