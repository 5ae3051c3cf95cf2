//! The part of the first page that shows a process now: figures, memory over time, what was found, call sites, devices.
//! The page's script asks for it again and again, and puts it in the place of the one before.

use std::fmt::Write as _;
use std::time::Duration;

use poolscope_wire::{DeviceCounter, Total};

use super::watched::Look;
use crate::build::by_names;
use crate::build::site_name::site_text;
use crate::findings::Facts;
use crate::model::accounting::Part;
use crate::model::growth::{Growth, SHORTEST_NS, Slope};
use crate::model::profile::Site;
use crate::model::snapshot::{DevicePool, Snapshot};
use crate::reading::Reading;
use crate::words::figures::{bytes, count, duration, whole};
use crate::words::markup::{escaped, filled};

const LIVE: &str = include_str!("templates/live.html");
const TILE: &str = include_str!("templates/tile.html");
const SITE: &str = include_str!("templates/site.html");
const FINDING: &str = include_str!("templates/finding.html");
const DEVICES: &str = include_str!("templates/devices.html");
const DEVICE: &str = include_str!("templates/device.html");
const CHART: &str = include_str!("templates/chart.html");

/// Rows of the table of call sites.
const SITES: usize = 12;

/// Callers that a row names.
const CALLERS: usize = 2;

/// Findings that are shown.
const FINDINGS: usize = 5;

/// What a process looks like now.
pub(super) fn live(reading: &Reading, look: &Look) -> String {
    let snapshot = &reading.snapshot;
    let facts = Facts::of(snapshot, Some(&reading.profile));
    // Who looks at a process for the first time has what the process itself has noted.
    let watched_ns = look.watched_ns;
    let (total, of_devices) = (look.total, &look.devices[..]);
    let watched =
        Facts { growths: &look.growths, devices: of_devices, total, total_ns: watched_ns, watched_ns, ..facts };
    let known = if watched_ns >= SHORTEST_NS { watched } else { facts };
    let findings: String = known.findings().iter().take(FINDINGS).map(finding).collect();
    let lived = snapshot.moment_ns().unwrap_or(0).saturating_sub(snapshot.process.start_monotonic_ns);
    let state = format!("{}, {}", snapshot.process.state.said(), duration(Duration::from_nanos(lived)));
    let watched = match look.watched_ns {
        0 => "since now".to_owned(),
        ns => format!("for {}", duration(Duration::from_nanos(ns))),
    };
    filled(
        LIVE,
        &[
            ("state", &escaped(&state)),
            ("tiles", &tiles(snapshot, &facts)),
            ("chart", &chart(snapshot, look)),
            ("findings", &findings),
            ("watched", &watched),
            ("sites", &sites(reading, look)),
            ("devices", &devices(&snapshot.devices)),
        ],
    )
}

fn finding(finding: &crate::findings::Finding) -> String {
    filled(FINDING, &[("severity", finding.severity.word()), ("sentence", &escaped(&finding.sentence))])
}

fn tiles(snapshot: &Snapshot, &Facts { accounting, total, total_ns, .. }: &Facts<'_>) -> String {
    let tile = |name: &str, figure: String, note: String| {
        filled(TILE, &[("name", name), ("figure", &escaped(&figure)), ("note", &escaped(&note))])
    };
    let shown = |value: u64| bytes(value as f64);
    let slope = match (total.is_clear(), total_ns) {
        (true, _) => slope_text(total),
        (false, 0) => String::new(),
        (false, _) => "steady".to_owned(),
    };
    // The chart has what the process touched.
    let untouched = match accounting.untouched {
        0 => String::new(),
        untouched => format!("{} of it never touched", shown(untouched)),
    };
    let notes = [slope, untouched].into_iter().filter(|note| !note.is_empty()).collect::<Vec<_>>();
    let mut tiles = tile("in use", shown(accounting.in_use), notes.join(", "));
    let free = shown(accounting.get(Part::Free));
    tiles += &tile("caches", shown(accounting.caches()), format!("and {free} in free pages"));
    let rss = accounting.rss.map_or_else(|| "gone".to_owned(), shown);
    let outside = accounting.not_the_pool().map(|outside| format!("{} is not the pool's", shown(outside)));
    tiles += &tile("resident", rss, outside.unwrap_or_default());
    let most = snapshot.most().unwrap_or_default();
    let since = most.time_ns.saturating_sub(snapshot.process.start_monotonic_ns);
    let when = if most.bytes == 0 {
        String::new()
    } else {
        format!("{} after the start", duration(Duration::from_nanos(since)))
    };
    tiles + &tile("peak in use", shown(most.bytes), when)
}

fn slope_text(slope: Slope) -> String {
    let sign = if slope.per_minute() > 0.0 { "+" } else { "" };
    format!("{sign}{} a minute", bytes(slope.per_minute()))
}

/// The sites that grow, the fastest first, and then those that have most in use.
fn sites(reading: &Reading, look: &Look) -> String {
    let mut sites = by_names::with_growths(&reading.profile, &look.growths);
    sites.retain(|(site, _)| site.in_use.bytes > 0.0);
    let speed = |growth: &Growth| if growth.slope.grows() { growth.slope.per_minute() } else { 0.0 };
    sites.sort_by(|(a, of_a), (b, of_b)| {
        speed(of_b).total_cmp(&speed(of_a)).then(b.in_use.bytes.total_cmp(&a.in_use.bytes))
    });
    sites.iter().take(SITES).map(|(site, growth)| row(reading, site, growth)).collect()
}

fn row(reading: &Reading, site: &Site, growth: &Growth) -> String {
    let memory = site.memory().describe();
    let name = site_text(&reading.profile, site, CALLERS);
    let name = if memory.is_empty() { name } else { format!("{name}  ({memory})") };
    let slope = if growth.slope.is_clear() { slope_text(growth.slope) } else { String::new() };
    filled(
        SITE,
        &[
            ("class", if growth.slope.grows() { "grows" } else { "" }),
            ("in_use", &bytes(site.in_use.bytes)),
            ("blocks", &count(whole(site.in_use.objects), "block")),
            ("slope", &slope),
            ("line", &sparkline(&growth.series)),
            ("name", &escaped(&name)),
        ],
    )
}

/// A small line; nothing where there is nothing to see.
fn sparkline(series: &[f32]) -> String {
    let most = series.iter().copied().fold(0.0, f32::max);
    if most <= 0.0 {
        return String::new();
    }
    let points = series.iter().enumerate().map(|(at, value)| {
        let x = 60.0 * at as f32 / (series.len() - 1).max(1) as f32;
        format!("{x:.1},{:.1}", 14.0 - 13.0 * value / most)
    });
    points.collect::<Vec<_>>().join(" ")
}

fn devices(pools: &[DevicePool]) -> String {
    if pools.is_empty() {
        return String::new();
    }
    let rows: String = pools.iter().map(device).collect();
    filled(DEVICES, &[("rows", &rows)])
}

fn device(pool: &DevicePool) -> String {
    let (used, held) = (pool.get(DeviceCounter::CurrentUsage), pool.get(DeviceCounter::Held));
    let whole = pool.memory_bytes.max(held).max(1) as f64;
    let memory = if pool.memory_bytes == 0 { "unknown".to_owned() } else { bytes(pool.memory_bytes as f64) };
    filled(
        DEVICE,
        &[
            ("label", &escaped(&pool.label())),
            ("name", &escaped(&pool.name)),
            ("used", &bytes(used as f64)),
            ("held", &bytes(held as f64)),
            ("memory", &memory),
            ("used_part", &format!("{:.1}", 100.0 * used as f64 / whole)),
            ("held_part", &format!("{:.1}", 100.0 * held.saturating_sub(used) as f64 / whole)),
            ("fragmentation", &format!("{:.0} %", 100.0 * pool.fragmentation())),
        ],
    )
}

/// Width and height of the drawing, without what is written around it.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 200.0;

/// Host memory since the start: what is in use and what the pool keeps, one on the other, and the resident set as far
/// as this server has seen it.
fn chart(snapshot: &Snapshot, look: &Look) -> String {
    let totals = &snapshot.history.totals;
    let now_ns = snapshot.moment_ns().unwrap_or(0);
    let first_ns = totals.first().map_or(snapshot.process.start_monotonic_ns, |first| first.time_ns);
    let span = now_ns.saturating_sub(first_ns);
    if totals.is_empty() || span == 0 {
        return String::new();
    }
    let stack = |total: &Total| {
        let used = total.in_use.saturating_sub(total.untouched);
        let caches = used.saturating_add(total.caches);
        let free = caches.saturating_add(total.free);
        [used, caches, free, free.saturating_add(total.metadata)]
    };
    let most_of_pool = totals.iter().map(|total| stack(total)[3]).max().unwrap_or(0);
    let most = look.rss.iter().map(|&(_, rss)| rss).max().unwrap_or(0).max(most_of_pool).max(1);
    let x = |time_ns: u64| WIDTH * time_ns.saturating_sub(first_ns).min(span) as f64 / span as f64;
    let y = |value: u64| HEIGHT - HEIGHT * value.min(most) as f64 / most as f64;
    // The largest area lies below the others.
    let mut areas = String::new();
    for (layer, class) in ["used", "caches", "free", "metadata"].into_iter().enumerate().rev() {
        let mut path = format!("M0 {HEIGHT}");
        for total in totals {
            let _ = write!(path, "H{:.1}V{:.1}", x(total.time_ns), y(stack(total)[layer]));
        }
        let _ = write!(areas, "<path class=\"{class}\" d=\"{path}H{WIDTH}V{HEIGHT}Z\"/>");
    }
    let points = look.rss.iter().filter(|&&(time_ns, _)| time_ns >= first_ns);
    let rss: Vec<String> = points.map(|&(time_ns, rss)| format!("{:.1},{:.1}", x(time_ns), y(rss))).collect();
    filled(
        CHART,
        &[
            ("areas", &areas),
            ("rss", &rss.join(" ")),
            ("most", &bytes(most as f64)),
            ("half", &bytes(most as f64 / 2.0)),
            ("span", &duration(Duration::from_nanos(span))),
        ],
    )
}
