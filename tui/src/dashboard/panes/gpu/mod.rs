//! Device memory: pools, and of the selected one its memory over time, a map of it, and who holds it. The stack of a
//! selected holder stands in the place of the map.

mod draw;

use std::sync::Arc;

use crossterm::event::{KeyCode, MouseButton};
use ratatui::buffer::Buffer;
use ratatui::layout::Position;

use super::{Keyed, Pane, Reply, Scene, Source, View};
use crate::dashboard::input::common::Motion;
use crate::dashboard::input::key::{Binding, Section, named};
use crate::dashboard::model::Model;
use crate::dashboard::model::site::{frames_of, key_of};
use crate::dashboard::widgets::panel::inside;

/// Its line in the table of views.
pub(crate) const VIEW: View = View {
    name: "gpu",
    title: "GPU",
    help: "Device memory: pools, a map of what lies where, who holds it",
    source: Source::Readings,
    make: || Box::new(Gpu::default()),
};

#[derive(Debug, Default)]
struct Gpu {
    /// Row of the list of devices.
    selected: usize,
    /// Rows of it.
    devices: usize,
    /// The call site that is selected among those that hold the device's memory; none while a device is.
    holder: Option<Holder>,
}

/// A selected call site.
#[derive(Clone, Debug)]
struct Holder {
    key: u64,
    /// Its place among those of the device.
    at: usize,
    /// Its functions with their places, innermost first.
    stack: Vec<(String, String)>,
    /// Which of them names it.
    names: usize,
}

/// What its keys ask for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// Select among those that hold memory.
    Holders,
    /// Select among the devices.
    Devices,
}

impl Keyed for Gpu {
    type Action = Action;
    const KEYS: &'static [Binding<Action>] = &[
        Binding {
            keys: &[named(KeyCode::Enter), named(KeyCode::Right)],
            action: Action::Holders,
            label: "who holds it",
            help: "Select among the call sites that hold the device's memory, and show the stack of one",
            section: Section::View,
            footer: true,
        },
        Binding {
            keys: &[named(KeyCode::Left)],
            action: Action::Devices,
            label: "devices",
            help: "Select among the devices again, and show the map",
            section: Section::View,
            footer: false,
        },
    ];

    fn act(&mut self, action: Action, scene: &Scene<'_>) -> Reply {
        match action {
            Action::Holders if self.holder.is_none() => self.select(0, scene),
            Action::Holders => {}
            Action::Devices => self.holder = None,
        }
        Reply::Done
    }
}

impl Gpu {
    /// Selects a call site of the device.
    fn select(&mut self, at: usize, scene: &Scene<'_>) {
        let model = scene.model.map(|model| &**model);
        self.holder = model.and_then(|model| self.holder_at(at, model));
    }

    fn holder_at(&self, at: usize, model: &Model) -> Option<Holder> {
        let device = model.devices.get(self.selected)?;
        let row = device.sites.get(at)?;
        let whole = &model.whole;
        let mut of_device = whole.sites.iter().filter(|site| site.place == device.pool.place);
        let site = of_device.find(|site| key_of(whole, site) == row.key)?;
        let stack = frames_of(whole, site).map(|frame| (frame.name.clone(), frame.place())).collect();
        Some(Holder { key: row.key, at, stack, names: row.text.frame })
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
    }

    fn go(&mut self, motion: Motion, scene: &Scene<'_>) {
        let sites =
            scene.model.and_then(|model| model.devices.get(self.selected)).map_or(0, |device| device.sites.len());
        match &self.holder {
            Some(holder) => self.select(motion.from(holder.at, sites), scene),
            None => self.selected = motion.from(self.selected, self.devices),
        }
    }

    fn click(&mut self, button: MouseButton, at: Position, scene: &Scene<'_>) -> Option<Reply> {
        if button != MouseButton::Left {
            return None;
        }
        if let Some(site) = scene.model.and_then(|model| self.site_at(model, scene.body, at)) {
            self.select(site, scene);
            return Some(Reply::Done);
        }
        let list = inside(draw::devices_area(scene.body, self.devices));
        self.selected = self.devices_table().row_at(list, at.x, at.y)?;
        self.holder = None;
        Some(Reply::Done)
    }

    fn back(&mut self, _scene: &Scene<'_>) -> bool {
        self.holder.take().is_some()
    }

    fn copied(&self, _scene: &Scene<'_>) -> Option<String> {
        let lines = self.holder.as_ref()?.stack.iter().map(|(name, place)| format!("{name}  {place}\n"));
        Some(lines.collect())
    }

    fn draw(&self, scene: &Scene<'_>, buf: &mut Buffer) {
        self.draw_in(scene, buf);
    }
}
