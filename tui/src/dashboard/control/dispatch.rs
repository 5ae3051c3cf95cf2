//! What keys do. A view does what its own keys mean; what all views share is done here. What reaches beyond the state
//! is returned as an effect for the loop.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use poolscope_profiler::Profile;
use ratatui::layout::Rect;

use crate::dashboard::events::watched::Watched;
use crate::dashboard::export;
use crate::dashboard::frame::help;
use crate::dashboard::frame::layout::Areas;
use crate::dashboard::input::choosing::{CHOOSING, Choosing};
use crate::dashboard::input::common::{
    CLOSING, COLUMNS, COMMON, COMPARING, Common, Compared, EXPORTING, HELP, LEAVING, Leaving, Motion, READING, TYPING,
    Typing,
};
use crate::dashboard::input::key;
use crate::dashboard::input::moment::Seek;
use crate::dashboard::lens::{Base, Lens};
use crate::dashboard::panes::{Pane, Reply, Scene, Source, Subject, VIEWS, named, openers};
use crate::dashboard::state::{Context, Overlay, State};

/// What the loop has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Leave.
    Quit,
    /// Leave and let the program run.
    Detach,
    /// Stop like a job of the shell.
    Suspend,
    /// Draw every cell anew.
    Redraw,
    /// Tell the reading thread about the new interval.
    Interval,
    /// Send the program SIGTERM and leave once it has ended.
    EndProgram,
    /// Send the program SIGKILL and leave once it has ended.
    KillProgram,
    /// Don't leave when the program ends.
    Stay,
    /// Tell the reading thread to say which processes there are, or no longer.
    List(bool),
    /// Tell it to watch this.
    Watch(Watched),
    /// Copy this by the terminal.
    Copy(String),
    /// Take the mouse, or give it back.
    Mouse(bool),
    /// Show another moment of the recording.
    Seek(Seek),
    /// Name call sites by the callers of this function, too; or as at the start.
    ByCaller(Option<String>),
    /// Have the program look for leaks, itself or by a copy.
    Search { copy: bool },
    /// Read the profile in this file, to compare with it.
    Base(PathBuf),
}

/// Times between readings that `+` and `-` go through.
const INTERVALS: [u64; 7] = [100, 250, 500, 1000, 2000, 5000, 10_000];

/// Handles a key.
pub(crate) fn key(state: &mut State, event: &KeyEvent) -> Option<Effect> {
    if event.kind == KeyEventKind::Release {
        return None;
    }
    state.note = None;
    match state.context() {
        Context::View => in_view(state, event),
        Context::Typing => typing(state, event),
        Context::Help => {
            in_help(state, event);
            None
        }
        Context::Leaving => key::action(LEAVING, event).and_then(|answer| leaving(state, answer)),
        Context::Choosing => choosing(state, event),
        Context::Exporting => {
            exporting(state, event, Path::new("."));
            None
        }
        Context::Columns => {
            columns(state, event);
            None
        }
        Context::Comparing => {
            comparing(state, event);
            None
        }
    }
}

/// Lets the view that is shown change.
pub(crate) fn in_pane<T>(state: &mut State, change: impl FnOnce(&mut dyn Pane, &Scene<'_>) -> T) -> T {
    let body = Areas::of(state).body;
    state.change(state.view, body, change)
}

fn in_view(state: &mut State, event: &KeyEvent) -> Option<Effect> {
    if let Some(reply) = in_pane(state, |pane, scene| pane.press(event, scene)) {
        return answer(state, reply);
    }
    let opened = openers().find(|binding| key::action(&[*binding], event).is_some());
    if let Some(opened) = opened {
        open(state, opened.action);
        return None;
    }
    key::action(COMMON, event).or_else(|| key::action(READING, event)).and_then(|action| common(state, action))
}

/// Does what a view answers.
pub(crate) fn answer(state: &mut State, reply: Reply) -> Option<Effect> {
    match reply {
        Reply::Done => {}
        Reply::Note(note) => state.note = Some(note),
        Reply::Filter => state.filter.editing = true,
        Reply::FilterBy(text) => {
            state.filter_by(&text);
            show(state, &Subject::View("sites"));
        }
        Reply::Range(range) => {
            (state.lens.range, state.lens.at_peak) = (range, false);
            state.look();
        }
        Reply::ByCaller(function) => {
            state.note = Some(match &function {
                Some(function) => format!("as --by-caller '{function}' names them; X takes it back"),
                None => "named as at the start".to_owned(),
            });
            return Some(Effect::ByCaller(function));
        }
        Reply::Search { copy } => return Some(Effect::Search { copy }),
        Reply::Show(Subject::Processes) => return Some(choose(state)),
        Reply::Show(subject) => show(state, &subject),
    }
    None
}

/// Shows the processes to choose from.
fn choose(state: &mut State) -> Effect {
    state.overlay = Overlay::Choose;
    state.select_process_to_look_at();
    Effect::List(true)
}

/// Opens the view that shows something.
fn show(state: &mut State, subject: &Subject) {
    let body: Rect = Areas::of(state).body;
    let views: Vec<usize> = state.views().collect();
    let shown = match subject {
        Subject::View(name) => named(name),
        _ => views.into_iter().find(|&view| state.change(view, body, |pane, scene| pane.show(subject, scene))),
    };
    if let Some(view) = shown {
        state.open(view);
    }
}

/// Opens a view, if there is one of that kind.
pub(crate) fn open(state: &mut State, view: usize) {
    if state.views().any(|known| known == view) {
        state.open(view);
    } else {
        state.note = Some(match VIEWS[view].source {
            Source::NamedTensors => "this process neither serves nor holds named tensors".into(),
            _ => "output is shown of programs that poolscope run started".into(),
        });
    }
}

fn common(state: &mut State, action: Common) -> Option<Effect> {
    match action {
        Common::Quit if state.program_runs() => state.overlay = Overlay::Confirm,
        Common::Quit => return Some(Effect::Quit),
        Common::Suspend => return Some(Effect::Suspend),
        Common::Redraw => return Some(Effect::Redraw),
        Common::Help => help_over(state, Overlay::None),
        Common::Pause if state.moment.is_some() => return Some(Effect::Seek(Seek::Play)),
        Common::Pause => state.pause(),
        Common::Seek(seek) if state.moment.is_some() => return Some(Effect::Seek(seek)),
        Common::Seek(_) => state.note = Some("poolscope replay shows other moments, of a recording".into()),
        Common::Move(motion) => in_pane(state, |pane, scene| pane.go(motion, scene)),
        Common::NextView => turn(state, 1),
        Common::PreviousView => turn(state, -1),
        Common::Filter => state.filter.editing = true,
        Common::Back => {
            if !in_pane(state, |pane, scene| pane.back(scene)) {
                state.step_back();
            }
        }
        Common::Columns if state.pane().rows().is_some() => {
            (state.overlay, state.below, state.column_selected) = (Overlay::Columns, Overlay::None, 0);
        }
        Common::Columns => state.note = Some("there is no table here whose columns can be chosen".into()),
        Common::Mark => mark(state),
        Common::Compare => state.overlay = Overlay::Base,
        Common::Peak => peak(state),
        Common::Findings => show(state, &Subject::View("findings")),
        Common::Processes => return Some(choose(state)),
        Common::Export => (state.overlay, state.exported) = (Overlay::Export, None),
        Common::Copy => {
            let text = in_pane(state, |pane, scene| pane.copied(scene));
            state.note = Some(match &text {
                Some(text) => format!("{} bytes went to the terminal's clipboard", text.len()),
                None => "nothing is selected here".to_owned(),
            });
            return text.map(Effect::Copy);
        }
        Common::Mouse => {
            state.mouse = !state.mouse;
            state.note = Some(if state.mouse { "the mouse is taken" } else { "the mouse is the terminal's" }.into());
            return Some(Effect::Mouse(state.mouse));
        }
        Common::Faster => return interval(state, false),
        Common::Slower => return interval(state, true),
    }
    None
}

fn turn(state: &mut State, by: isize) {
    let views: Vec<usize> = state.views().collect();
    let at = views.iter().position(|view| *view == state.view).unwrap_or(0);
    state.open(views[(at as isize + by).rem_euclid(views.len() as isize) as usize]);
}

fn help_over(state: &mut State, below: Overlay) {
    (state.overlay, state.below, state.help_scroll) = (Overlay::Help, below, 0);
    state.help_filter.clear();
}

fn in_help(state: &mut State, event: &KeyEvent) {
    let is_typed = matches!(event.code, KeyCode::Char(_) | KeyCode::Backspace | KeyCode::Delete);
    let is_letter = is_typed && !event.modifiers.contains(KeyModifiers::CONTROL);
    if key::action(HELP, event).is_some() {
        let narrowed = event.code == KeyCode::Esc && !state.help_filter.is_empty();
        state.help_filter.clear();
        state.help_scroll = 0;
        if !narrowed {
            state.overlay = state.below;
        }
    } else if let Some(Common::Move(motion)) = key::action(COMMON, event).filter(|_| !is_letter) {
        scroll_help(state, motion);
    } else if state.help_filter.key(event) {
        state.help_scroll = 0;
    }
}

/// Scrolls the help.
pub(crate) fn scroll_help(state: &mut State, motion: Motion) {
    let most = help::lines(state).len().saturating_sub(usize::from(help::room(state.area())));
    state.help_scroll = motion.from(state.help_scroll.into(), most + 1) as u16;
}

/// Writes what is asked for into a folder.
fn exporting(state: &mut State, event: &KeyEvent, folder: &Path) {
    if key::action(CLOSING, event).is_some() {
        state.overlay = Overlay::None;
    } else if let Some(format) = key::action(EXPORTING, event) {
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        state.exported = Some(export::lines(&export::export(state, format, &folder)));
    }
}

fn choosing(state: &mut State, event: &KeyEvent) -> Option<Effect> {
    match key::action(CHOOSING, event) {
        Some(Choosing::Open) => state.choose().map(Effect::Watch),
        Some(Choosing::Back) if state.process_search.is_shown() => {
            state.process_search.clear();
            state.processes_filtered();
            None
        }
        Some(Choosing::Back) if state.watches => {
            state.overlay = Overlay::None;
            Some(Effect::List(false))
        }
        Some(Choosing::Back | Choosing::Quit) => common(state, Common::Quit),
        Some(Choosing::Reorder(by)) => {
            let selected = state.selected_process().map(|row| row.pid);
            state.process_rows.reorder(by);
            state.order_processes(selected);
            None
        }
        Some(Choosing::Filter) => {
            state.process_search.editing = true;
            None
        }
        Some(Choosing::Columns) => {
            (state.overlay, state.below, state.column_selected) = (Overlay::Columns, Overlay::Choose, 0);
            None
        }
        Some(Choosing::Copy) => {
            let row = state.selected_process()?;
            let text = row.pid.to_string();
            state.note = Some(format!("{text} went to the terminal's clipboard"));
            Some(Effect::Copy(text))
        }
        Some(Choosing::Export) => {
            let folder = std::path::absolute(".").unwrap_or_else(|_| ".".into());
            state.note = Some(match export::processes(state, &folder) {
                Ok(path) => format!("wrote {}; poolscope top --all --csv gives the same", path.display()),
                Err(why) => why,
            });
            None
        }
        Some(Choosing::Help) => {
            help_over(state, Overlay::Choose);
            None
        }
        None => {
            if let Some(Common::Move(motion)) = key::action(COMMON, event) {
                state.process_rows.go(motion);
            }
            None
        }
    }
}

fn columns(state: &mut State, event: &KeyEvent) {
    let count = state.table().map_or(0, |rows| rows.columns.len());
    if key::action(COLUMNS, event).is_some() {
        toggle_column(state);
    } else if key::action(CLOSING, event).is_some() {
        state.overlay = state.below;
    } else if let Some(Common::Move(motion)) = key::action(COMMON, event) {
        state.column_selected = motion.from(state.column_selected, count);
    }
}

/// Shows the selected column, or hides it. The one with the names stays.
pub(crate) fn toggle_column(state: &mut State) {
    let at = state.column_selected;
    if let Some(rows) = state.table_mut()
        && rows.columns.get(at).is_some_and(|column| column.width > 0)
    {
        rows.hidden = rows.hidden.with(at, !rows.hidden.has(at));
    }
}

fn mark(state: &mut State) {
    let Some(read) = state.read.clone() else { return };
    state.kept.mark(&read);
    state.note = Some("marked: D m compares with it".into());
    state.look();
}

fn peak(state: &mut State) {
    let Some(read) = &state.read else {
        state.note = Some("nothing was read yet".into());
        return;
    };
    if state.lens.at_peak {
        state.lens.at_peak = false;
    } else {
        match Lens::peak_of(read) {
            Ok(_) => (state.lens.at_peak, state.lens.range) = (true, None),
            Err(why) => state.note = Some(why),
        }
    }
    state.look();
}

fn comparing(state: &mut State, event: &KeyEvent) {
    let Some(with) = key::action(COMPARING, event) else {
        if key::action(CLOSING, event).is_some() {
            state.overlay = Overlay::None;
        }
        return;
    };
    compare(state, with);
}

/// Compares with something from now on, or asks for the file.
pub(crate) fn compare(state: &mut State, with: Compared) {
    state.overlay = Overlay::None;
    state.lens.base = match with {
        Compared::Nothing => Base::None,
        Compared::Mark if state.kept.mark.is_none() => {
            state.note = Some("nothing is marked yet: M marks this moment".into());
            return;
        }
        Compared::Mark => Base::Mark,
        Compared::Ago(seconds) => Base::Ago(seconds),
        Compared::First => Base::First,
        Compared::Peak => Base::Peak,
        Compared::File => {
            state.overlay = Overlay::BaseFile;
            return;
        }
    };
    state.look();
}

/// Compares with a profile that was read from a file.
pub(crate) fn compare_with(state: &mut State, read: Result<(String, Arc<Profile>), String>) {
    match read {
        Ok((name, profile)) => {
            state.lens.base = Base::File(name, profile);
            state.look();
        }
        Err(why) => state.note = Some(why),
    }
}

fn leaving(state: &mut State, answer: Leaving) -> Option<Effect> {
    Some(match answer {
        Leaving::Stay => {
            state.overlay = Overlay::None;
            Effect::Stay
        }
        Leaving::Detach => Effect::Detach,
        Leaving::End => Effect::EndProgram,
        Leaving::Kill => Effect::KillProgram,
    })
}

fn typing(state: &mut State, event: &KeyEvent) -> Option<Effect> {
    let ends = key::action(TYPING, event);
    if state.overlay == Overlay::BaseFile {
        return typing_file(state, event, ends);
    }
    if state.overlay == Overlay::Choose {
        match ends {
            Some(Typing::Accept) => state.process_search.editing = false,
            Some(Typing::Cancel) => {
                state.process_search.editing = false;
                state.process_search.clear();
                state.processes_filtered();
            }
            None => {
                if state.process_search.key(event) {
                    state.processes_filtered();
                }
            }
        }
        return None;
    }
    if state.filter.editing {
        match ends {
            Some(Typing::Accept) => state.filter.editing = false,
            Some(Typing::Cancel) => {
                state.filter.editing = false;
                state.filter.clear();
                state.filtered();
            }
            None => {
                if state.filter.key(event) {
                    state.filtered();
                }
            }
        }
        return None;
    }
    in_pane(state, |pane, scene| {
        let Some(search) = pane.search_mut() else { return };
        let changed = match ends {
            Some(Typing::Accept) => {
                search.editing = false;
                false
            }
            Some(Typing::Cancel) => {
                search.editing = false;
                search.clear();
                true
            }
            None => search.key(event),
        };
        if changed {
            pane.searched(scene);
        }
    });
    None
}

fn typing_file(state: &mut State, event: &KeyEvent, ends: Option<Typing>) -> Option<Effect> {
    match ends {
        Some(Typing::Accept) => {
            state.overlay = Overlay::None;
            let path = PathBuf::from(state.base_file.text());
            state.note = Some(format!("reading {} …", path.display()));
            return Some(Effect::Base(path));
        }
        Some(Typing::Cancel) => state.overlay = Overlay::None,
        None => drop(state.base_file.key(event)),
    }
    None
}

/// Inserts pasted text into the line that is being typed.
pub(crate) fn paste(state: &mut State, text: &str) {
    if state.overlay == Overlay::Help {
        state.help_scroll = 0;
        return state.help_filter.insert(text);
    }
    if state.context() != Context::Typing {
        return;
    }
    if state.overlay == Overlay::BaseFile {
        return state.base_file.insert(text);
    }
    if state.overlay == Overlay::Choose {
        state.process_search.insert(text);
        return state.processes_filtered();
    }
    if state.filter.editing {
        state.filter.insert(text);
        return state.filtered();
    }
    in_pane(state, |pane, scene| {
        if pane.search_mut().is_some_and(|search| search.insert(text)) {
            pane.searched(scene);
        }
    });
}

fn interval(state: &mut State, slower: bool) -> Option<Effect> {
    let now = state.interval.as_millis() as u64;
    let next = if slower { INTERVALS.iter().find(|&&i| i > now) } else { INTERVALS.iter().rev().find(|&&i| i < now) };
    state.interval = Duration::from_millis(*next?);
    Some(Effect::Interval)
}
