//! How the parts of the view are drawn.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use poolscope_profiler::model::snapshot::DevicePool;
use poolscope_wire::{DEVICE_COUNTERS, DeviceCounter, Unit, cell as state};

use super::piece::Under;
use super::{Gpu, Holder, holders};
use crate::dashboard::model::site::frames_of;
use crate::dashboard::model::{DeviceRow, Model};
use crate::dashboard::panes::{Scene, named, opener};
use crate::dashboard::theme::Theme;
use crate::dashboard::widgets::bar::bar;
use crate::dashboard::widgets::memory_map::MemoryMap;
use crate::dashboard::widgets::panel::{inside, panel};
use crate::dashboard::widgets::plain::wrapped;
use crate::dashboard::widgets::site_name::name_line;
use crate::dashboard::widgets::stack::Stack;
use crate::dashboard::widgets::table::{Column, Hidden, Table, cell};
use crate::dashboard::widgets::time_chart::{Dot, Series, TimeChart, span_for};
use crate::words::{clip, numbers, printable};

const COLUMNS: &[Column] = &[
    Column { title: "Device", width: 8, right: false, rank: 0 },
    Column { title: "In use", width: 8, right: true, rank: 0 },
    Column { title: "Held", width: 8, right: true, rank: 0 },
    Column { title: "Total", width: 8, right: true, rank: 3 },
    Column { title: "", width: 12, right: false, rank: 6 },
    Column { title: "Frag", width: 6, right: true, rank: 1 },
    Column { title: "Driver calls", width: 12, right: true, rank: 4 },
    Column { title: "Calls/s", width: 8, right: true, rank: 5 },
    Column { title: "OOM", width: 5, right: true, rank: 2 },
    Column { title: "Name", width: 0, right: false, rank: 0 },
];

/// Counters that the list of them begins with.
const FIRST: [DeviceCounter; 8] = [
    DeviceCounter::PeakUsage,
    DeviceCounter::PeakHeld,
    DeviceCounter::LargestHole,
    DeviceCounter::AllocationCount,
    DeviceCounter::ThreadHits,
    DeviceCounter::LargeHits,
    DeviceCounter::CacheMisses,
    DeviceCounter::FromOtherStreams,
];

/// Steps of the ladder that a pool climbs when its device is full.
const LADDER: [DeviceCounter; 7] = [
    DeviceCounter::LadderClimbed,
    DeviceCounter::LadderAllCachesTried,
    DeviceCounter::LadderPendingFreesTried,
    DeviceCounter::LadderDefragmentTried,
    DeviceCounter::LadderReleaseTried,
    DeviceCounter::LadderPinnedHostServed,
    DeviceCounter::LadderRefused,
];

/// Where the parts lie; those without room are empty.
struct Parts {
    devices: Rect,
    chart: Rect,
    map: Rect,
    counters: Rect,
    sites: Rect,
}

/// The list of devices, with its frame.
fn devices_area(body: Rect, devices: usize) -> Rect {
    let rows = (devices as u16).clamp(1, (body.height / 4).max(1));
    Rect { height: (rows + 3).min(body.height), ..body }
}

/// While one of those that hold the memory is selected, they have a place on every screen: that of the chart, or on a
/// screen of few rows that of the devices.
fn parts(body: Rect, devices: usize, selecting: bool) -> Parts {
    let parts = usual_parts(body, devices);
    if !selecting || parts.sites.height > 2 {
        return parts;
    }
    if parts.chart.height >= LEAST_LIST {
        return Parts { sites: parts.chart, chart: parts.sites, ..parts };
    }
    let sites = Rect { height: body.height.div_ceil(2), ..body };
    let map = Rect { y: sites.bottom(), height: body.height - sites.height, ..body };
    Parts { devices: parts.sites, chart: parts.sites, map, sites, ..parts }
}

/// Rows of a table with its frame, its titles, and two of what it lists.
const LEAST_LIST: u16 = 5;

fn usual_parts(body: Rect, devices: usize) -> Parts {
    let list = devices_area(body, devices);
    let rest = Rect { y: list.bottom(), height: body.height - list.height, ..body };
    let nothing = Rect { width: 0, height: 0, ..body };
    if rest.width >= 110 && rest.height >= 16 {
        let right_width = if rest.width >= 160 { 64 } else { 48 };
        let left = Rect { width: rest.width - right_width, ..rest };
        let right = Rect { x: left.right(), width: right_width, ..rest };
        let chart = Rect { height: (left.height / 2).max(8), ..left };
        let sites = Rect { y: chart.bottom(), height: left.height - chart.height, ..left };
        let map_height = if right.height >= 22 { right.height - 11 } else { right.height };
        let map = Rect { height: map_height, ..right };
        let counters = Rect { y: map.bottom(), height: right.height - map_height, ..right };
        return Parts { devices: list, chart, map, counters, sites };
    }
    let lower = if rest.height >= 22 { 7 } else { 0 };
    let sites = Rect { y: rest.bottom() - lower, height: lower, ..rest };
    let upper = Rect { height: rest.height - lower, ..rest };
    let map_height = if upper.height >= 12 { upper.height / 2 } else { upper.height };
    let chart = Rect { height: upper.height - map_height, ..upper };
    let map = Rect { y: chart.bottom(), height: map_height, ..upper };
    Parts { devices: list, chart, map, counters: nothing, sites }
}

impl Gpu {
    /// The table of devices, for drawing and hit-testing.
    pub(super) fn devices_table(&self) -> Table<'static> {
        let rows = self.devices;
        let selected = (rows > 0).then_some(self.selected);
        Table { columns: COLUMNS, hidden: Hidden::default(), fill_min: 12, sorted: None, selected, rows }
    }

    /// Draws the view.
    pub(super) fn draw_in(&self, scene: &Scene<'_>, buf: &mut Buffer) {
        let Some(model) = scene.model else { return };
        let theme = scene.theme;
        let Some(device) = model.devices.get(self.selected) else { return none(theme, model, scene.body, buf) };
        let parts = self.parts(model, scene.body);
        if parts.devices.height > 2 {
            self.draw_devices(theme, model, parts.devices, buf);
        }
        if parts.chart.height > 2 {
            chart(theme, device, parts.chart, buf);
        }
        if parts.map.height > 2
            && let Some(holder) = &self.holder
        {
            stack(theme, model, (device, holder), parts.map, buf);
        } else if parts.map.height > 2 {
            self.draw_map(scene, device, parts.map, buf);
        }
        if parts.counters.height > 2 {
            counters(theme, device, parts.counters, buf);
        }
        if parts.sites.height > 2 {
            holders::draw(theme, device, (&self.list, &self.rows), self.holder.is_some(), parts.sites, buf);
        }
    }

    fn parts(&self, model: &Model, body: Rect) -> Parts {
        parts(body, model.devices.len(), self.holder.is_some())
    }

    /// The device under a point of the view.
    pub(super) fn device_at(&self, model: &Model, body: Rect, at: Position) -> Option<usize> {
        let area = self.parts(model, body).devices;
        if area.height <= 2 {
            return None;
        }
        self.devices_table().row_at(inside(area), at.x, at.y)
    }

    /// Where the table of those that hold the memory lies; none while there is no room for it.
    pub(super) fn holders_place(&self, model: &Model, body: Rect) -> Option<Rect> {
        let area = self.parts(model, body).sites;
        (area.height > 2).then(|| holders::place(inside(area), self.holder.is_some()))
    }

    fn draw_devices(&self, theme: &Theme, model: &Model, area: Rect, buf: &mut Buffer) {
        let count = model.devices.len();
        let dropped = model.snapshot.dropped.devices;
        let right = match dropped {
            0 => Line::styled(format!("{count} {}", if count == 1 { "pool" } else { "pools" }), theme.dim),
            _ => Line::styled(format!("{count} pools, {dropped} more have no room here"), theme.warn),
        };
        let inner = panel(area, buf, theme, "Devices", right);
        self.devices_table().draw(inner, buf, theme, |row, column, width| {
            let device = &model.devices[row];
            let get = |counter| device.pool.get(counter) as f64;
            match column {
                0 => cell(device.pool.label(), theme.strong),
                1 => cell(numbers::bytes(get(DeviceCounter::CurrentUsage)), theme.strong),
                2 => cell(numbers::bytes(get(DeviceCounter::Held)), theme.text),
                3 => match device.pool.memory_bytes {
                    0 => cell("-", theme.dim),
                    bytes => cell(numbers::bytes(bytes as f64), theme.dim),
                },
                4 => filling(device, width, theme),
                5 => {
                    let share = device.pool.fragmentation();
                    let style = if share >= 0.3 { theme.warn } else { theme.text };
                    cell(format!("{:.1}%", 100.0 * share), style)
                }
                6 => cell(numbers::scaled(get(DeviceCounter::DriverCalls)), theme.text),
                7 => cell(device.calls_per_s.map_or("·".into(), numbers::scaled), theme.dim),
                8 => {
                    let climbs = get(DeviceCounter::LadderClimbed);
                    let style = if get(DeviceCounter::LadderRefused) > 0.0 {
                        theme.alert
                    } else if climbs > 0.0 {
                        theme.warn
                    } else {
                        theme.dim
                    };
                    cell(numbers::scaled(climbs), style)
                }
                _ => cell(clip(&printable(&device.pool.name), width.into()), theme.text),
            }
        });
    }
}

fn none(theme: &Theme, model: &Model, body: Rect, buf: &mut Buffer) {
    let inner = panel(body, buf, theme, "Devices", Line::default());
    let (what, how) = match model.is_recorded() {
        true => (
            "Pools of device memory are not in the file.",
            "What was allocated of it, if anything was, is in the other views.",
        ),
        false => (
            "This process has no pool of device memory.",
            "A Rust program gets one by poolscope_alloc::gpu::pool (feature gpu), C, PyTorch and CuPy by \
             libpoolscope_gpu.so.",
        ),
    };
    let width = usize::from(inner.width);
    let said = wrapped(what, width).into_iter().map(|line| (line, theme.strong));
    let how = wrapped(how, width).into_iter().map(|line| (line, theme.dim));
    let lines = said.chain([(String::new(), theme.dim)]).chain(how);
    for ((line, style), y) in lines.zip(inner.top()..inner.bottom()) {
        buf.set_string(inner.x, y, line, style);
    }
}

/// In use and held as parts of all memory.
fn filling(device: &DeviceRow, width: u16, theme: &Theme) -> Line<'static> {
    let all = device.pool.memory_bytes.max(device.pool.get(DeviceCounter::Held));
    if all == 0 {
        return Line::default();
    }
    let share = |counter| device.pool.get(counter) as f64 / all as f64;
    let used = bar(share(DeviceCounter::CurrentUsage), width.into()).trim_end().to_owned();
    let held = bar(share(DeviceCounter::Held), width.into()).trim_end().chars().count();
    let rest = "─".repeat(held.saturating_sub(used.chars().count()));
    Line::from(vec![Span::styled(used, theme.live), Span::styled(rest, theme.rss)])
}

fn chart(theme: &Theme, device: &DeviceRow, area: Rect, buf: &mut Buffer) {
    let legend = Line::from(vec![
        Span::styled("⣿ ", theme.live),
        Span::styled("in use", theme.text),
        Span::styled("   ⠒ ", theme.rss),
        Span::styled("held", theme.text),
    ]);
    let inner = panel(area, buf, theme, &format!("Memory of device {}", device.pool.label()), legend);
    let points = device.history.points();
    let now = points.last().map_or(0.0, |p| p.at_s);
    let age = points.first().map_or(0.0, |p| now - p.at_s);
    let in_use: Vec<(f64, Option<f64>)> = points.iter().map(|p| (p.at_s, Some(p.live_bytes))).collect();
    let held: Vec<(f64, Option<f64>)> = points.iter().map(|p| (p.at_s, p.rss_bytes)).collect();
    let series = [
        Series { points: &in_use, style: theme.live, filled: Some(Dot::FULL) },
        Series { points: &held, style: theme.rss, filled: None },
    ];
    TimeChart::until_now(&series, now, span_for(age, true)).draw(inner, buf, theme);
}

impl Gpu {
    /// The map of the selected device, and where it lies; none while there is no room for it.
    pub(super) fn map_area<'a>(&self, scene: &Scene<'a>) -> Option<(MemoryMap<'a>, Rect)> {
        let model = scene.model?;
        let device = model.devices.get(self.selected)?;
        let area = self.parts(model, scene.body).map;
        (area.height > 2).then(|| (self.map_of(device), inside(area)))
    }

    fn map_of<'a>(&self, device: &'a DeviceRow) -> MemoryMap<'a> {
        let DevicePool { cells, cell_bytes, memory_bytes, .. } = &device.pool;
        MemoryMap { cells, cell_bytes: *cell_bytes, memory_bytes: *memory_bytes, cursor: self.cursor }
    }

    fn draw_map(&self, scene: &Scene<'_>, device: &DeviceRow, area: Rect, buf: &mut Buffer) {
        let (theme, pool) = (scene.theme, &device.pool);
        let text = match self.cursor {
            Some(_) => "arrows move, Enter: who holds it".to_owned(),
            None => format!("{} a cell", numbers::bytes(pool.cell_bytes as f64)),
        };
        let inner = panel(area, buf, theme, "Map", Line::styled(text, theme.dim));
        let said = self.under_cursor(scene).zip(scene.model);
        let said = said.map(|(under, model)| said_of(&under, model, device, inner.width.into(), theme));
        self.map_of(device).draw(inner, buf, theme, said);
    }
}

/// What is under the cursor, in lines: what and where, whose stream's, and who holds it.
fn said_of(under: &Under, model: &Model, device: &DeviceRow, width: usize, theme: &Theme) -> Vec<Line<'static>> {
    let mut first = Vec::from(MemoryMap::sign(under.state, theme));
    if under.bytes > 0 {
        first.push(Span::styled(format!("  {}", numbers::bytes(under.bytes as f64)), theme.text));
    }
    match under.address {
        Some(address) => first.push(Span::styled(format!(" at {address:#x}"), theme.text)),
        None if under.state != state::UNMAPPED && device.pool.places.is_empty() => {
            first.push(Span::styled("  (an older library does not say where)", theme.dim));
        }
        None => {}
    }
    let waits = under.state == state::PENDING;
    let stream = match (&under.streams[..], under.state) {
        (_, state::UNMAPPED | state::FREE) => String::new(),
        (_, state::SMALL) => "cut up for small blocks, of any stream".to_owned(),
        ([], _) if device.pool.places.is_empty() => String::new(),
        ([], _) if waits => "freed; waits for several streams".to_owned(),
        ([], _) => "of several streams".to_owned(),
        ([stream], _) if waits => format!("freed; waits for {}", stream_name(*stream)),
        ([stream], _) => format!("on {}", stream_name(*stream)),
        (streams, _) if waits => format!("freed; wait for {} streams", streams.len()),
        (streams, _) => format!("on {} streams", streams.len()),
    };
    let first = Line::from(first);
    let mut lines = if first.width() + 2 + stream.width() <= width {
        vec![first + Span::styled(format!("  {stream}"), theme.text)]
    } else {
        vec![first, Line::styled(clip(&stream, width), theme.text)]
    };
    let held = matches!(under.state, state::LARGE | state::SMALL | state::GRAPH);
    lines.push(match under.holders.first() {
        Some(holding) => {
            let age = model.age_ns(holding.time_ns).map(|age| numbers::duration(Duration::from_nanos(age)));
            let age = age.map_or(String::new(), |age| format!(", {age} old"));
            let others = match under.holders.len() - 1 {
                0 => String::new(),
                count => format!(" + {count}"),
            };
            let block = format!("{}{age}{others}  ", numbers::bytes(holding.bytes as f64));
            let name = name_line(&device.sites[holding.site].text, width.saturating_sub(block.width()), theme);
            let mut spans = vec![Span::styled(block, theme.strong)];
            spans.extend(name.spans);
            Line::from(spans)
        }
        None if held => Line::styled(clip("nobody is known to hold it: not sampled", width), theme.dim),
        None => Line::default(),
    });
    lines
}

/// A stream as the program has it: the driver's handle.
fn stream_name(stream: u64) -> String {
    match stream {
        // Null, and the driver's words for the two default streams.
        0..=2 => "the default stream".to_owned(),
        handle => format!("stream {handle:#x}"),
    }
}

const COUNTER_COLUMNS: &[Column] = &[
    Column { title: "Counter", width: 0, right: false, rank: 0 },
    Column { title: "Value", width: 10, right: true, rank: 0 },
];

/// Which counters there is room for: those of the ladder that say something come before the rest.
fn shown_counters(device: &DeviceRow, room: usize) -> Vec<DeviceCounter> {
    let climbed = LADDER.into_iter().filter(|counter| device.pool.get(*counter) > 0);
    let mut shown: Vec<DeviceCounter> = climbed.chain(FIRST).collect();
    let rest = DeviceCounter::ALL.iter().filter(|counter| !shown.contains(counter)).copied().collect::<Vec<_>>();
    shown.extend(rest);
    shown.truncate(room);
    shown
}

fn counters(theme: &Theme, device: &DeviceRow, area: Rect, buf: &mut Buffer) {
    let inner = inside(area);
    let shown = shown_counters(device, usize::from(inner.height.saturating_sub(1)));
    let all = named("counters").map(opener).unwrap_or_default();
    let right = format!("{} of {}: {all} explains them", shown.len(), DEVICE_COUNTERS.len());
    let right = Line::styled(right, theme.dim);
    panel(area, buf, theme, "Counters", right);
    let text = Rect { x: inner.x.saturating_sub(2), width: inner.width + 2, ..inner };
    let (hidden, rows) = (Hidden::default(), shown.len());
    let table = Table { columns: COUNTER_COLUMNS, hidden, fill_min: 12, sorted: None, selected: None, rows };
    table.draw(text, buf, theme, |row, column, width| {
        let info = &DEVICE_COUNTERS[shown[row] as usize];
        let value = device.pool.get(shown[row]) as f64;
        match (column, info.unit) {
            (0, _) => cell(clip(&words(info.name), width.into()), theme.text),
            (_, Unit::Bytes) => cell(numbers::bytes(value), theme.strong),
            (_, Unit::Count) => cell(numbers::scaled(value), theme.strong),
            (_, Unit::Nanoseconds) => cell(numbers::nanoseconds(value), theme.strong),
        }
    });
}

/// `peak_usage` as `Peak usage`.
fn words(name: &str) -> String {
    let words = name.trim_end_matches("_bytes").trim_end_matches("_ns").replace('_', " ");
    let mut chars = words.chars();
    chars.next().map(|c| c.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

const BACK: &str = "← the map";

/// Columns that the title of the stack and the frame take.
const TITLE: usize = 11;

/// The stack of a holder.
fn stack(theme: &Theme, model: &Model, (device, holder): (&DeviceRow, &Holder), area: Rect, buf: &mut Buffer) {
    let held = device.held.get(holder.at).zip(device.sites.get(holder.at));
    let held = held.map_or_else(String::new, |(held, site)| {
        let blocks = numbers::counted(site.in_use.objects, "block");
        format!("{} in {blocks}  ", numbers::bytes(held.bytes))
    });
    // It loses its figures before it loses the way back.
    let room = usize::from(area.width).saturating_sub(TITLE + BACK.width());
    let held = if held.width() < room { held } else { String::new() };
    let right = Line::styled(format!("{held}{BACK}"), theme.dim);
    let inner = panel(area, buf, theme, "Stack", right);
    let Some(site) = model.whole.sites.get(holder.site) else { return };
    let frames: Vec<_> = frames_of(&model.whole, site).collect();
    let stack = Stack { frames: &frames, names: holder.names, incomplete: site.incomplete };
    stack.draw(None, None, inner, buf, theme);
}
