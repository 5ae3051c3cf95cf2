//! The counters of the tiers and of the pools of device memory as they are, each with a sentence.

mod draw;

use std::cmp::Ordering;
use std::sync::Arc;

use poolscope_profiler::model::snapshot::DevicePool;
use poolscope_wire::{CounterInfo, DEVICE_COUNTERS};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::listing::{Asked, Listing, Nothing, TablePane, key_of, ordering};
use super::rows::Rows;
use super::sort::Sort;
use super::{Reply, Scene, Source, View};
use crate::dashboard::input::key::Binding;
use crate::dashboard::model::Model;

/// Its line in the table of views.
pub(crate) const VIEW: View = View {
    name: "counters",
    title: "Counters",
    help: "The counters of the tiers and of devices, each with a sentence",
    source: Source::Readings,
    make: || {
        let rows = Rows::new(draw::COLUMNS, &[draw::OF, draw::NAME], 20, Sort::rising(draw::NAME));
        Box::new(TablePane::new(rows, Counters::default()))
    },
};

#[derive(Debug, Default)]
struct Counters {
    rows: Vec<Counter>,
}

/// A counter.
#[derive(Debug)]
struct Counter {
    /// The device that it is of; empty for the host's pool.
    device: String,
    info: &'static CounterInfo,
    value: u64,
    /// Change per second, if that is known.
    rate: Option<f64>,
}

impl Counter {
    fn of_device(pool: &DevicePool) -> impl Iterator<Item = Counter> {
        let device = format!("device {}", pool.label());
        let counter = move |(info, &value)| Counter { device: device.clone(), info, value, rate: None };
        DEVICE_COUNTERS.iter().zip(&pool.counters).map(counter)
    }
}

impl Listing for Counters {
    type Row = Counter;
    type Own = Nothing;
    const KEYS: &'static [Binding<Asked<Nothing>>] = &ordering();

    fn take(&mut self, model: &Arc<Model>, rows: &mut Rows) {
        let of_host = model.tiers.iter().map(|tier| Counter {
            device: String::new(),
            info: tier.info,
            value: tier.value,
            rate: tier.rate,
        });
        let of_devices = model.devices.iter().flat_map(|device| Counter::of_device(&device.pool));
        self.rows = of_host.chain(of_devices).collect();
        rows.absent = rows.absent.with(draw::OF, model.devices.is_empty());
    }

    fn rows<'a>(&'a self, _model: &'a Model) -> &'a [Counter] {
        &self.rows
    }

    fn compare(a: &Counter, b: &Counter, column: usize) -> Ordering {
        draw::compare(a, b, column)
    }

    fn keeps(&self, model: &Model, counter: &Counter) -> bool {
        let device = if counter.device.is_empty() { "host" } else { &counter.device };
        let (name, help) = (counter.info.name, counter.info.help);
        model.filter.has_words(&format!("{device} {name} {} {help}", name.replace('_', " ")))
    }

    fn key(counter: &Counter) -> u64 {
        key_of((&counter.device, counter.info.name))
    }

    const FIELDS: &'static [&'static str] = &["of", "counter", "value", "per_second", "help"];

    fn record(counter: &Counter) -> Vec<String> {
        let of = if counter.device.is_empty() { "host".to_owned() } else { counter.device.clone() };
        let rate = counter.rate.map(|rate| format!("{rate:.1}")).unwrap_or_default();
        let (name, help) = (counter.info.name.to_owned(), counter.info.help.to_owned());
        vec![of, name, counter.value.to_string(), rate, help]
    }

    fn own(&mut self, nothing: Nothing, _scene: &Scene<'_>) -> Reply {
        match nothing {}
    }

    fn place(&self, _model: &Model, body: Rect) -> Rect {
        draw::place(body)
    }

    fn copied(&self, counter: &Counter) -> Option<String> {
        Some(format!("{} {}\n", counter.info.name, counter.value))
    }

    fn draw(&self, rows: &Rows, scene: &Scene<'_>, buf: &mut Buffer) {
        draw::table(&self.rows, rows, scene, buf);
    }
}
