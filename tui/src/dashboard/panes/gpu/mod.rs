//! Device memory: pools, and of the selected one its memory over time, a map of it, and who holds it. The stack of a
//! selected holder stands in the place of the map. A cursor of the map says who holds a piece, and whose stream's it
//! is.

mod draw;
mod holders;
mod piece;

use std::sync::Arc;

use crossterm::event::{KeyCode, MouseButton};
use ratatui::buffer::Buffer;
use ratatui::layout::Position;

use poolscope_profiler::model::profile::Site;

use super::naming::{BY_CALLER, BY_FUNCTION};
use super::rows::{Clicked, Rows};
use super::{Keyed, Pane, Records, Reply, Scene, Source, View};
use crate::dashboard::input::common::Motion;
use crate::dashboard::input::key::{Binding, Section, named, plain};
use crate::dashboard::input::ordering::{NEXT, PREVIOUS, REVERSE, Reorder};
use crate::dashboard::model::Model;
use crate::dashboard::model::site::{frames_of, key_of};
use piece::Under;

/// Its line in the table of views.
pub(crate) const VIEW: View = View {
    name: "gpu",
    title: "GPU",
    help: "Device memory: pools, a map of what lies where, who holds it",
    source: Source::Readings,
    make: || Box::new(Gpu::new()),
};

#[derive(Debug)]
struct Gpu {
    /// Row of the list of devices.
    selected: usize,
    /// Rows of it.
    devices: usize,
    /// Who holds the memory of the selected one, and in which order they are shown.
    list: Vec<holders::Row>,
    rows: Rows,
    /// The call site that is selected among those that hold the device's memory; none while a device is.
    holder: Option<Holder>,
    /// The cell of the map that the cursor is at, while there is one.
    cursor: Option<usize>,
}

/// A selected call site.
#[derive(Clone, Debug)]
struct Holder {
    key: u64,
    /// Its place among those of the device.
    at: usize,
    /// Its place among the call sites of all memory.
    site: usize,
    /// Which function of its stack names it.
    names: usize,
    /// What it is called by that one.
    function: Arc<str>,
}

/// What its keys ask for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// Select among those that hold memory: the one under the cursor, if there is one.
    Holders,
    /// The cursor to the right, or among those that hold memory.
    Right,
    /// The cursor to the left, or among the devices.
    Left,
    /// A cursor over the map, or none.
    Cursor,
    /// Name call sites by the callers of the function that names the selected one, or as at the start.
    ByCaller(bool),
    /// Another order of those that hold memory.
    Reorder(Reorder),
}

impl Keyed for Gpu {
    type Action = Action;
    const KEYS: &'static [Binding<Action>] = &[
        Binding {
            keys: &[named(KeyCode::Enter)],
            action: Action::Holders,
            label: "who holds it",
            help: "Select among the call sites that hold the device's memory, and show the stack of one",
            section: Section::View,
            footer: true,
        },
        Binding {
            keys: &[plain('m')],
            action: Action::Cursor,
            label: "map",
            help: "Move a cursor over the map: who holds a piece, and which stream's it is",
            section: Section::View,
            footer: true,
        },
        Binding {
            keys: &[named(KeyCode::Right), plain('l')],
            action: Action::Right,
            label: "right",
            help: "The cursor to the right; without one as Enter",
            section: Section::View,
            footer: false,
        },
        Binding {
            keys: &[named(KeyCode::Left), plain('h')],
            action: Action::Left,
            label: "left",
            help: "The cursor to the left; without one among the devices again, with the map",
            section: Section::View,
            footer: false,
        },
        NEXT.with(Action::Reorder(Reorder::Next)),
        PREVIOUS.with(Action::Reorder(Reorder::Previous)),
        REVERSE.with(Action::Reorder(Reorder::Reverse)),
        BY_CALLER.with(Action::ByCaller(true)),
        BY_FUNCTION.with(Action::ByCaller(false)),
    ];

    fn act(&mut self, action: Action, scene: &Scene<'_>) -> Reply {
        match action {
            Action::Right if self.cursor.is_some() => self.move_cursor(1, 0, scene),
            Action::Left if self.cursor.is_some() => self.move_cursor(-1, 0, scene),
            Action::Holders | Action::Right if self.holder.is_none() => match self.cursor {
                None => {
                    let first = self.known().next();
                    first.into_iter().for_each(|first| self.select(first, scene));
                }
                Some(_) => match self.under_cursor(scene).and_then(|under| Some(under.holders.first()?.site)) {
                    Some(site) => self.select(site, scene),
                    None => return Reply::Note("nobody is known to hold this piece".into()),
                },
            },
            Action::Holders | Action::Right => {}
            Action::Left => self.leave(),
            Action::Reorder(by) => {
                self.rows.reorder(by);
                self.order();
            }
            Action::ByCaller(false) => return Reply::ByCaller(None),
            Action::ByCaller(true) => {
                let Some(holder) = &self.holder else {
                    return Reply::Note("Enter selects a call site, and x then names it by its callers".into());
                };
                return Reply::ByCaller(Some(holder.function.to_string()));
            }
            Action::Cursor => {
                let has_room = self.map_area(scene).is_some();
                if !has_room {
                    return Reply::Note("there is no room for the map".into());
                }
                self.leave();
                self.cursor = if self.cursor.is_some() { None } else { Some(0) };
            }
        }
        Reply::Done
    }
}

impl Gpu {
    fn new() -> Gpu {
        Gpu { selected: 0, devices: 0, list: Vec::new(), rows: holders::rows(), holder: None, cursor: None }
    }

    /// Selects a call site of the device.
    fn select(&mut self, at: usize, scene: &Scene<'_>) {
        let model = scene.model.map(|model| &**model);
        self.cursor = None;
        self.holder = model.and_then(|model| self.holder_at(at, model));
        self.mark();
    }

    /// No call site is selected any more.
    fn leave(&mut self) {
        self.holder = None;
        self.mark();
    }

    /// Selects a device.
    fn select_device(&mut self, at: usize, model: Option<&Model>) {
        self.selected = at;
        self.list = model.and_then(|model| model.devices.get(at)).map(holders::of).unwrap_or_default();
        self.order();
    }

    /// Orders those that hold the memory anew.
    fn order(&mut self) {
        self.rows.follow(&self.list, |_| true, holders::compare);
        self.mark();
    }

    /// The row of the selected call site is the selected one.
    fn mark(&mut self) {
        let at = self.holder.as_ref().map(|holder| Some(holder.at));
        let place = at.and_then(|at| self.rows.order.iter().position(|&row| self.list[row].site == at));
        self.rows.selected = place.unwrap_or(0);
    }

    /// The call sites in the order of their rows.
    fn known(&self) -> impl Iterator<Item = usize> {
        self.rows.order.iter().filter_map(|&row| self.list[row].site)
    }

    fn move_cursor(&mut self, columns: isize, rows: isize, scene: &Scene<'_>) {
        let moved = self.map_area(scene).and_then(|(map, area)| map.moved(area, scene.theme, columns, rows));
        self.cursor = moved.or(self.cursor);
    }

    /// What the cursor is at.
    fn under_cursor(&self, scene: &Scene<'_>) -> Option<Under> {
        let (map, area) = self.map_area(scene)?;
        let (cells, state) = map.under_cursor(area, scene.theme)?;
        let model = scene.model?;
        Some(piece::under(model, model.devices.get(self.selected)?, cells, state))
    }

    fn holder_at(&self, at: usize, model: &Model) -> Option<Holder> {
        let device = model.devices.get(self.selected)?;
        let row = device.sites.get(at)?;
        let whole = &model.whole;
        let is_it = |site: &Site| site.place == device.pool.place && key_of(whole, site) == row.key;
        let site = whole.sites.iter().position(is_it)?;
        Some(Holder { key: row.key, at, site, names: row.text.frame, function: Arc::clone(&row.text.function) })
    }
}

impl Pane for Gpu {
    fn follow(&mut self, model: &Arc<Model>) {
        self.devices = model.devices.len();
        self.selected = self.selected.min(self.devices.saturating_sub(1));
        let sites = model.devices.get(self.selected).map(|device| &device.sites);
        if let (Some(holder), Some(sites)) = (&self.holder, sites) {
            // The same one, wherever it is by now.
            let at = sites.iter().position(|row| row.key == holder.key);
            self.holder = self.holder_at(at.unwrap_or(holder.at.min(sites.len().saturating_sub(1))), model);
        }
        self.select_device(self.selected, Some(model));
    }

    fn rows(&self) -> Option<&Rows> {
        Some(&self.rows)
    }

    fn rows_mut(&mut self) -> Option<&mut Rows> {
        Some(&mut self.rows)
    }

    fn go(&mut self, motion: Motion, scene: &Scene<'_>) {
        if self.cursor.is_some() {
            match motion {
                Motion::First | Motion::Last => self.move_cursor(motion.rows(), 0, scene),
                _ => self.move_cursor(0, motion.rows(), scene),
            }
            return;
        }
        match &self.holder {
            Some(holder) => {
                let known: Vec<usize> = self.known().collect();
                let place = known.iter().position(|&at| at == holder.at).unwrap_or(0);
                if let Some(&at) = known.get(motion.from(place, known.len())) {
                    self.select(at, scene);
                }
            }
            None => self.select_device(motion.from(self.selected, self.devices), scene.model.map(|model| &**model)),
        }
    }

    fn click(&mut self, button: MouseButton, at: Position, scene: &Scene<'_>) -> Option<Reply> {
        if button != MouseButton::Left {
            return None;
        }
        let model = scene.model?;
        let clicked = self.holders_place(model, scene.body).and_then(|place| self.rows.click(at, place));
        match clicked {
            Some(Clicked::Title) => {
                self.order();
                return Some(Reply::Done);
            }
            Some(Clicked::Row | Clicked::Again) => {
                match self.rows.current().and_then(|row| self.list[row].site) {
                    Some(site) => self.select(site, scene),
                    // Of what nobody accounts for there is no more to say.
                    None => self.mark(),
                }
                return Some(Reply::Done);
            }
            None => {}
        }
        if self.holder.is_none()
            && let Some((map, area)) = self.map_area(scene)
            && let Some(cell) = map.cell_at(area, scene.theme, at)
        {
            self.cursor = Some(cell);
            return Some(Reply::Done);
        }
        let device = self.device_at(model, scene.body, at)?;
        (self.holder, self.cursor) = (None, None);
        self.select_device(device, Some(model));
        Some(Reply::Done)
    }

    fn back(&mut self, _scene: &Scene<'_>) -> bool {
        let was_selected = self.holder.is_some();
        self.leave();
        self.cursor.take().is_some() | was_selected
    }

    fn copied(&self, scene: &Scene<'_>) -> Option<String> {
        let whole = &scene.model?.whole;
        let frames = frames_of(whole, whole.sites.get(self.holder.as_ref()?.site)?);
        Some(frames.map(|frame| format!("{}  {}\n", frame.name, frame.place())).collect())
    }

    fn records(&self, scene: &Scene<'_>) -> Option<Records> {
        scene.model?.devices.get(self.selected)?;
        Some(holders::records(&self.list, &self.rows))
    }

    fn draw(&self, scene: &Scene<'_>, buf: &mut Buffer) {
        self.draw_in(scene, buf);
    }
}
