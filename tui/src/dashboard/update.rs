//! What keys do to the state. What reaches beyond the state is returned as effects for the loop.

use std::time::Duration;

use crossterm::event::{KeyEvent, KeyEventKind};

use super::find::Pattern;
use super::flame_state::Step;
use super::keys::{self, Action, Context};
use super::state::{Overlay, State, View};
use super::views::{help, layout};

/// What the loop has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}

/// Times between readings that `+` and `-` go through.
const INTERVALS: [u64; 7] = [100, 250, 500, 1000, 2000, 5000, 10_000];
/// Rows of a page.
const PAGE: isize = 10;

/// Handles a key.
pub(crate) fn key(state: &mut State, event: &KeyEvent) -> Option<Effect> {
    if event.kind == KeyEventKind::Release {
        return None;
    }
    state.note = None;
    let context = state.context();
    match keys::action(context, event) {
        Some(action) => apply(state, action),
        None => {
            if context == Context::Edit {
                edit(state, |line| line.key(event));
            }
            None
        }
    }
}

/// Inserts pasted text into the line that is being typed.
pub(crate) fn paste(state: &mut State, text: &str) {
    if state.editing {
        edit(state, |line| {
            line.insert(text);
            true
        });
    }
}

fn edit(state: &mut State, change: impl FnOnce(&mut super::line_edit::LineEdit) -> bool) {
    let flame = state.view == View::Flame;
    let line = if flame { &mut state.flame.search } else { &mut state.filter };
    if !change(line) {
        return;
    }
    let pattern = Pattern::new(&line.text());
    if flame {
        state.flame.pattern = pattern;
    } else {
        state.filter_pattern = pattern;
        state.reorder();
    }
}

/// Does what a key asks for.
pub(crate) fn apply(state: &mut State, action: Action) -> Option<Effect> {
    match action {
        Action::Quit if state.program_runs() => state.overlay = Overlay::Confirm,
        Action::Quit => return Some(Effect::Quit),
        Action::Stay => {
            state.overlay = Overlay::None;
            return Some(Effect::Stay);
        }
        Action::Detach => return Some(Effect::Detach),
        Action::EndProgram => return Some(Effect::EndProgram),
        Action::KillProgram => return Some(Effect::KillProgram),
        Action::Suspend => return Some(Effect::Suspend),
        Action::Redraw => return Some(Effect::Redraw),
        Action::Help => {
            state.overlay = Overlay::Help;
            state.help_scroll = 0;
        }
        Action::Pause => pause(state),
        Action::Go(view) => go(state, view),
        Action::NextView => turn(state, 1),
        Action::PreviousView => turn(state, -1),
        Action::Up => vertical(state, -1, Some(Step::Up)),
        Action::Down => vertical(state, 1, Some(Step::Down)),
        Action::PageUp => vertical(state, -PAGE, None),
        Action::PageDown => vertical(state, PAGE, None),
        Action::Home => vertical(state, isize::MIN, None),
        Action::End => vertical(state, isize::MAX, None),
        Action::Left => flame_step(state, Step::Left),
        Action::Right => flame_step(state, Step::Right),
        Action::Enter => enter(state),
        Action::Back => back(state),
        Action::SortNext => sort(state, 1),
        Action::SortPrevious => sort(state, -1),
        Action::Reverse => {
            if let Some(table) = state.table() {
                table.sort.falls = !table.sort.falls;
            }
            state.reorder();
        }
        Action::Find => state.editing = true,
        Action::NextMatch => find(state, true),
        Action::PreviousMatch => find(state, false),
        Action::Metric => state.flame.switch_metric(),
        Action::Tiers => state.all_tiers = !state.all_tiers,
        Action::StackDown => scroll_stack(state, 5),
        Action::StackUp => scroll_stack(state, -5),
        Action::Faster => return interval(state, false),
        Action::Slower => return interval(state, true),
        Action::Accept => state.editing = false,
        Action::Cancel => {
            state.editing = false;
            clear_line(state);
        }
    }
    None
}

fn pause(state: &mut State) {
    state.paused = !state.paused;
    if !state.paused
        && let Some(latest) = state.latest.clone()
    {
        state.show(latest);
    }
}

/// Opens a view, if there is one of that kind.
pub(crate) fn go(state: &mut State, view: View) {
    if state.views().contains(&view) {
        state.view = view;
    } else {
        state.note = Some("output is shown of programs that poolscope run started".into());
    }
}

fn turn(state: &mut State, by: isize) {
    let views = state.views();
    let at = views.iter().position(|v| *v == state.view).unwrap_or(0);
    state.view = views[(at as isize + by).rem_euclid(views.len() as isize) as usize];
}

fn moved(at: usize, by: isize, rows: usize) -> usize {
    at.saturating_add_signed(by).min(rows.saturating_sub(1))
}

/// Moves by rows; `step` is what it means among cells.
pub(crate) fn vertical(state: &mut State, by: isize, step: Option<Step>) {
    if state.overlay == Overlay::Help {
        let lines = help::lines(&state.theme, state.owns_program).len();
        let most = lines.saturating_sub(usize::from(help::room(state.area())));
        state.help_scroll = moved(state.help_scroll.into(), by, most + 1) as u16;
        return;
    }
    match state.view {
        View::Overview => {
            let rows = state.model.as_ref().map_or(0, |m| State::top_sites(m).len());
            state.top_selected = moved(state.top_selected, by, rows);
        }
        View::Classes | View::Sites | View::Threads => {
            if let Some(table) = state.table() {
                table.selected = moved(table.selected, by, table.order.len());
            }
            remember_site(state);
        }
        View::Gpu => {
            let rows = state.model.as_ref().map_or(0, |m| m.devices.len());
            state.device_selected = moved(state.device_selected, by, rows);
        }
        View::Output => {
            let lines = state.output.as_ref().map_or(0, |o| o.lines.len());
            state.output_back = moved(state.output_back, by.checked_neg().unwrap_or(isize::MAX), lines + 1);
        }
        View::Flame => match step {
            Some(step) => flame_step(state, step),
            None => {
                for _ in 0..by.unsigned_abs().min(100) {
                    flame_step(state, if by < 0 { Step::Up } else { Step::Down });
                }
            }
        },
    }
}

/// Selects a row of the view's table.
pub(crate) fn select_row(state: &mut State, row: usize) {
    if let Some(table) = state.table() {
        table.selected = row.min(table.order.len().saturating_sub(1));
    }
    remember_site(state);
}

fn scroll_stack(state: &mut State, by: isize) {
    let Some(model) = state.model.clone() else { return };
    let Some(row) = state.sites.current().and_then(|at| model.sites.get(at)) else { return };
    let Some(site) = model.profile.sites.get(row.index) else { return };
    let frames = super::site::frames_of(&model.profile, site).count();
    let room = layout::stack_room(state);
    let first = super::views::sites::first_frame(state, row.text.frame, frames, room);
    state.stack_scroll = Some(moved(first, by, frames.saturating_sub(room) + 1));
}

fn remember_site(state: &mut State) {
    state.stack_scroll = None;
    if let (Some(model), Some(at)) = (&state.model, state.sites.current()) {
        state.site_key = model.sites.get(at).map(|s| s.key);
    }
}

fn flame_step(state: &mut State, step: Step) {
    let width = layout::flame_area(state).width;
    if let Some(model) = &state.model {
        state.flame.step(&model.flame, width, step);
    }
}

fn enter(state: &mut State) {
    let Some(model) = state.model.clone() else { return };
    match state.view {
        View::Overview => {
            let Some(&site) = State::top_sites(&model).get(state.top_selected) else { return };
            state.filter.clear();
            state.filter_pattern = None;
            state.site_key = Some(model.sites[site].key);
            state.view = View::Sites;
            state.reorder();
        }
        View::Sites => {
            let Some(row) = state.sites.current().and_then(|at| model.sites.get(at)) else { return };
            let Some(site) = model.profile.sites.get(row.index) else { return };
            let path = super::flame_tree::path_of(&model.profile, site);
            let node = model.flame.find(&path);
            state.flame.zoom_to(&model.flame, super::flame_tree::FlameTree::ROOT);
            state.flame.select(&model.flame, node);
            state.view = View::Flame;
        }
        View::Flame => {
            let selected = state.flame.selected;
            state.flame.zoom_to(&model.flame, selected);
        }
        _ => {}
    }
}

fn back(state: &mut State) {
    if state.overlay == Overlay::Help {
        state.overlay = Overlay::None;
        return;
    }
    if state.view == View::Flame
        && let Some(model) = &state.model
        && state.flame.zoom_out(&model.flame)
    {
        return;
    }
    clear_line(state);
}

fn clear_line(state: &mut State) {
    match state.view {
        View::Flame => {
            state.flame.search.clear();
            state.flame.pattern = None;
        }
        _ => {
            state.filter.clear();
            state.filter_pattern = None;
            state.reorder();
        }
    }
}

fn sort(state: &mut State, by: isize) {
    let columns = match state.view {
        View::Classes => super::views::classes::COLUMNS.len(),
        View::Threads => super::views::threads::COLUMNS.len(),
        _ => super::views::sites::COLUMNS.len(),
    };
    let Some(table) = state.table() else { return };
    let column = (table.sort.column as isize + by).rem_euclid(columns as isize) as usize;
    sort_by(state, column);
}

/// Orders the view's table by a column.
pub(crate) fn sort_by(state: &mut State, column: usize) {
    let text = match state.view {
        View::Sites => column == super::views::sites::NAME,
        View::Threads => column <= 1,
        _ => false,
    };
    if let Some(table) = state.table() {
        table.sort.choose(column, !text);
        if state.view == View::Sites {
            state.site_key = None;
            state.sites.selected = 0;
        }
    }
    state.reorder();
}

fn find(state: &mut State, forward: bool) {
    let width = layout::flame_area(state).width;
    let Some(model) = state.model.clone() else { return };
    if state.flame.pattern.is_none() {
        state.note = Some("nothing is searched for: / searches".into());
    } else if !state.flame.go_to_match(&model.flame, width, forward) {
        state.note = Some("no match".into());
    }
}

fn interval(state: &mut State, slower: bool) -> Option<Effect> {
    let now = state.interval.as_millis() as u64;
    let next = if slower { INTERVALS.iter().find(|&&i| i > now) } else { INTERVALS.iter().rev().find(|&&i| i < now) };
    state.interval = Duration::from_millis(*next?);
    Some(Effect::Interval)
}
