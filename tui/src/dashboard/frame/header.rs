//! The header: whose heap this is, and the figures that matter in every view. Below it the banners: what must not be
//! missed.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

use poolscope_profiler::model::profile::Peak;
use poolscope_profiler::model::snapshot::{Dropped, ProcessState};
use poolscope_profiler::{Memory, Metric};
use poolscope_wire::{DeviceCounter, TierCounter};

use crate::dashboard::input::moment::Moment;
use crate::dashboard::lens::Lens;
use crate::dashboard::model::flame_tree::format_change;
use crate::dashboard::model::{Kin, Model};
use crate::dashboard::panes::VIEWS;
use crate::dashboard::state::State;
use crate::dashboard::theme::Theme;
use crate::dashboard::widgets::bar::bar;
use crate::words::{clip, ended, numbers, printable};

/// One line for the process, two for the figures, and some air on a screen of many rows.
pub(crate) fn height(rows: u16) -> u16 {
    if rows >= 30 { 5 } else { 3 }
}

/// Draws the header.
pub(crate) fn draw(state: &State, area: Rect, buf: &mut Buffer) {
    process_line(state, Rect { height: 1, ..area }, buf);
    let air = u16::from(area.height > 3);
    let top = area.y + 1 + air;
    let cards = cards(state);
    let mut x = area.x + 1;
    let shown = widths(&cards, area.width.saturating_sub(1));
    for ((label, value, style), width) in cards.into_iter().zip(shown) {
        buf.set_string(x, top, label, state.theme.dim);
        buf.set_string(x, top + 1, value, style);
        x += width;
    }
}

/// Between two cards.
const GAP: u16 = 2;

/// The columns of each card that there is room for, with the gap behind it. A figure is shown whole or not at all: the
/// cards at the end go. What is left over is shared out.
fn widths(cards: &[Card], room: u16) -> Vec<u16> {
    const LEAST: u16 = 7;
    let width = |text: &str| unicode_width::UnicodeWidthStr::width(text) as u16;
    let least = cards.iter().map(|(label, value, _)| LEAST.max(width(label)).max(width(value)));
    let mut widths: Vec<u16> = least.map(|width| width + GAP).collect();
    while !widths.is_empty() && widths.iter().sum::<u16>() > room + GAP {
        widths.pop();
    }
    let rest = (room + GAP).saturating_sub(widths.iter().sum()) / widths.len().max(1) as u16;
    widths.into_iter().map(|width| (width + rest).min(24).max(width)).collect()
}

/// Columns of the bar that shows how far a recording is.
const MOMENT: usize = 16;

/// Columns for the server's address.
const SERVER: usize = 40;

fn process_line(state: &State, area: Rect, buf: &mut Buffer) {
    let theme = &state.theme;
    let mut right = Vec::new();
    let (name, rest) = match &state.model {
        None => (state.label.clone(), String::new()),
        Some(model) => {
            let process = &model.snapshot.process;
            if !model.is_of_a_file() {
                right.push(Span::styled(format!("pid {}", process.pid), theme.dim));
            }
            if let Some(server) = &state.server {
                right.push(Span::styled(format!(" by {}", clip(&server.to_string(), SERVER)), theme.dim));
            }
            if process.forked {
                right.push(Span::styled(" forked", theme.dim));
            }
            right.push(Span::raw("  "));
            right.push(state_word(state, model));
            if let Some(uptime) = model.uptime {
                right.push(Span::styled(format!("  up {}", numbers::duration(uptime)), theme.dim));
            }
            let command = model.command();
            let name = model.program();
            (name.clone(), command[name.len().min(command.len())..].to_owned())
        }
    };
    let interval = format!("  every {} ", numbers::short_duration(state.interval));
    right.push(Span::styled(interval, theme.dim));
    if let Some(own) = state.own {
        let cost = format!(" dashboard {:.1}% {} ", own.cpu * 100.0, numbers::bytes(own.rss as f64));
        right.push(Span::styled(cost, theme.faint));
    }
    // What does not fit beside the name goes, the least important first.
    let name_width = unicode_width::UnicodeWidthStr::width(name.as_str()).min(16);
    while right.len() > 1 && right.iter().map(Span::width).sum::<usize>() + name_width + 3 > usize::from(area.width) {
        right.pop();
    }
    let right = Line::from(right);
    let right_width = (right.width() as u16).min(area.width);
    right.render(Rect { x: area.right() - right_width, width: right_width, ..area }, buf);
    let left = usize::from(area.width.saturating_sub(right_width + 3));
    buf.set_string(area.x + 1, area.y, clip(&name, left), theme.strong);
    let used = unicode_width::UnicodeWidthStr::width(name.as_str()).min(left);
    buf.set_string(area.x + 1 + used as u16, area.y, clip(&rest, left - used), theme.dim);
}

fn state_word(state: &State, model: &Model) -> Span<'static> {
    let theme = &state.theme;
    if let Some(moment) = state.moment {
        return Span::styled(if moment.plays { "▶ playing" } else { "‖ recorded" }, theme.ok);
    }
    if model.is_of_a_file() {
        return Span::styled("■ a profile in a file", theme.ok);
    }
    match (state.ended, model.snapshot.process.state) {
        (Some(ended), _) => Span::styled(format!("■ {}", ended.short()), theme.alert),
        (None, ProcessState::Running) => Span::styled("● running", theme.ok),
        (None, ProcessState::Exited) => Span::styled("■ exited", theme.alert),
        (None, ProcessState::Killed) => Span::styled("■ gone", theme.alert),
    }
}

/// Label, value and style of each figure.
fn cards(state: &State) -> Vec<Card> {
    let theme = &state.theme;
    let Some(model) = &state.model else {
        return ["LIVE", "RSS", "ALLOCATING", "DROPPED", "SAMPLES", "PERIOD"]
            .map(|label| (label.to_owned(), "-".to_owned(), theme.dim))
            .to_vec();
    };
    let bold = |style: Style| style.add_modifier(ratatui::style::Modifier::BOLD);
    let live = match (model.in_use, model.live_error()) {
        (None, Some(error)) => numbers::estimate(model.live.bytes, error),
        _ => numbers::bytes(model.live_bytes()),
    };
    let live_word = if model.live_is_estimate() { "LIVE (EST.)" } else { "LIVE" };
    let mut cards = vec![(live_word.to_owned(), live, bold(theme.live))];
    // Of a process that is gone, and of the peak, nobody knows it.
    let is_now = model.snapshot.process.state == ProcessState::Running && !model.at_peak;
    let rss = model.memory.map(|memory| numbers::bytes(memory.rss as f64));
    cards.extend(rss.or(is_now.then(|| "-".to_owned())).map(|rss| ("RSS".to_owned(), rss, bold(theme.rss))));
    cards.extend(model.devices.iter().map(|device| {
        let in_use = device.pool.get(DeviceCounter::CurrentUsage) as f64;
        (format!("DEVICE {}", device.pool.label().to_uppercase()), numbers::bytes(in_use), bold(theme.live))
    }));
    cards.extend(growing(model, theme));
    cards.extend(peak(model, theme));
    let rate = model.rates.map(|rates| numbers::byte_rate(rates.alloc_bytes)).or(is_now.then(|| "-".to_owned()));
    cards.extend(rate.map(|rate| ("ALLOCATING".to_owned(), rate, bold(theme.alloc))));
    let dropped = model.snapshot.dropped.total();
    let drop_style = if dropped > 0 { theme.badge } else { theme.ok };
    let drop_text = if dropped > 0 { format!(" {} ", numbers::scaled(dropped as f64)) } else { "0".to_owned() };
    // Where every block is recorded, nothing is a sample.
    let (samples, period) = match model.snapshot.exact {
        true => ("all".to_owned(), "exact".to_owned()),
        false => (
            numbers::scaled(model.tier(TierCounter::Samples) as f64),
            numbers::bytes(model.snapshot.period_bytes as f64),
        ),
    };
    cards.push(("DROPPED".to_owned(), drop_text, drop_style));
    cards.push(("SAMPLES".to_owned(), samples, theme.strong));
    cards.push(("PERIOD".to_owned(), period, theme.strong));
    cards
}

type Card = (String, String, Style);

/// Bytes a minute that a level is uncertain by, of which nothing need be said.
const WORTH_SAYING: f64 = 262_144.0;

/// How the bytes in use have developed in the last minutes, if the pool counts them.
fn growing(model: &Model, theme: &Theme) -> Option<Card> {
    model.most.filter(|_| !model.at_peak)?;
    let Some(slope) = model.trend else { return Some(("GROWING".to_owned(), "-".to_owned(), theme.dim)) };
    let (text, style) = match (slope.grows(), slope.is_clear()) {
        (true, _) => (format!("+{}/min ▲", numbers::bytes(slope.per_minute())), theme.alert),
        (false, true) if slope.per_minute() < 0.0 => (format!("{}/min", numbers::bytes(slope.per_minute())), theme.ok),
        (false, true) => (format!("+{}/min", numbers::bytes(slope.per_minute())), theme.warn),
        // What goes up and down by much hides a small growth.
        (false, false) if slope.error() > WORTH_SAYING => {
            (format!("level ±{}", numbers::bytes(slope.error())), theme.text)
        }
        (false, false) => ("level".to_owned(), theme.text),
    };
    Some(("GROWING".to_owned(), text, style))
}

/// The most that was in use, and when that was.
fn peak(model: &Model, theme: &Theme) -> Option<Card> {
    let most = model.most?;
    let start = model.snapshot.process.start_monotonic_ns;
    let when = match model.snapshot.process.state {
        ProcessState::Running => {
            let ago = Duration::from_nanos(model.snapshot.taken_ns.saturating_sub(most.time_ns));
            if ago < Duration::from_secs(1) { "now".to_owned() } else { format!("{} ago", numbers::duration(ago)) }
        }
        _ => format!("after {}", numbers::duration(Duration::from_nanos(most.time_ns.saturating_sub(start)))),
    };
    Some((format!("PEAK {when}"), numbers::bytes(most.bytes as f64), theme.strong))
}

/// What must not be missed, most urgent first.
pub(crate) fn banners(state: &State) -> Vec<(String, Style)> {
    let theme: &Theme = &state.theme;
    let mut out = Vec::new();
    if let Some(model) = &state.model {
        let name = model.program();
        let last = "This is the last reading.";
        match (state.ended, model.snapshot.process.state) {
            // The picture is older than its end: the last reading is still to come, or is not shown.
            (Some(ended), ProcessState::Running) => out.push((format!(" ■ {name} {ended}."), theme.badge)),
            (Some(ended), _) => out.push((format!(" ■ {name} {ended}. {last}"), theme.badge)),
            (None, ProcessState::Exited) if model.is_of_a_file() => {}
            (None, ProcessState::Exited) => out.push((format!(" ■ {name} exited. {last}"), theme.badge)),
            (None, ProcessState::Killed) => {
                out.push((format!(" ■ {name} {}. {last}", ended::gone(model.ending.as_ref())), theme.badge));
            }
            (None, ProcessState::Running) => {}
        }
        if let Some(now) = &model.successor {
            let pid = model.snapshot.process.pid;
            out.push((format!("   Process {pid} is {} now.", printable(now)), theme.dim));
        }
        if let Some(why) = drops(&model.snapshot.dropped) {
            out.push((format!(" ▲ Figures are too low: {why}."), theme.badge));
        }
    }
    if let Some(line) = state.model.as_ref().and_then(|model| family(model)) {
        out.push((line, theme.dim));
    }
    match (&state.trouble, state.ended) {
        (_, Some(ended)) if state.model.is_none() => {
            let text = format!(" ■ {} {ended} before a first reading.", state.label);
            out.push((text, theme.badge));
        }
        (Some(trouble), _) if !state.is_over() => out.push((format!(" ▲ Cannot read: {trouble}"), theme.badge)),
        _ => {}
    }
    if let Some(Moment { at_us, end_us, .. }) = state.moment {
        let seconds = |us: u64| format!("{:.2} s", us as f64 / 1e6);
        let (at, end) = (seconds(at_us), seconds(end_us));
        let bar = bar(at_us as f64 / end_us.max(1) as f64, MOMENT);
        let text = format!(" {bar:<MOMENT$} {at} of {end}. space plays, ( ) seek, {{ }} start and end");
        out.push((text, theme.tab));
    }
    out.extend(lens_banners(state));
    if state.paused {
        let behind = match (&state.model, &state.latest) {
            (Some(shown), Some(latest)) => latest.snapshot.taken_ns.saturating_sub(shown.snapshot.taken_ns),
            _ => 0,
        };
        let behind = Duration::from_nanos(behind);
        let text = format!(" ‖ Paused, {} behind. Recording goes on; space resumes.", numbers::duration(behind));
        out.push((text, theme.tab));
    }
    out
}

/// The call sites of the peak are of a moment that is told from the one when most was in use.
fn is_before_the_peak(read: &Model) -> bool {
    let kept = read.whole.peak_of(read.whole.usual_memory()).and_then(|peak| peak.after_ns);
    let start = read.snapshot.process.start_monotonic_ns;
    let most = read.most.map(|most| most.time_ns.saturating_sub(start));
    kept.zip(most).is_some_and(|(kept, most)| kept.abs_diff(most) > 1_000_000_000)
}

/// What is shown is not all, or not now.
fn lens_banners(state: &State) -> Vec<(String, Style)> {
    let (Some(read), Some(model), lens) = (&state.read, &state.model, &state.lens) else { return Vec::new() };
    let mut out = Vec::new();
    if lens.at_peak {
        // Pinned memory has a peak of its own, which no line has room for beside those of the devices.
        let peaks = &read.whole.device_peaks;
        let is_device = |memory: &Memory| matches!(memory, Memory::Device(_));
        let any = peaks.iter().any(|(memory, _)| is_device(memory));
        let peaks = peaks.iter().filter(|(memory, _)| !any || is_device(memory));
        let of_device = |&(memory, peak): &(Memory, Peak)| {
            let after = peak.after_ns.map(|ns| format!("after {}", numbers::duration(Duration::from_nanos(ns))));
            format!("{} {}", memory.describe(), after.unwrap_or_else(|| "now".to_owned()))
        };
        let devices: Vec<String> = peaks.map(of_device).collect();
        let when = match VIEWS[state.view].name {
            "gpu" if !devices.is_empty() => devices.join(", "),
            _ => Lens::peak_of(read).unwrap_or_default(),
        };
        let (at, why) = match VIEWS[state.view].name != "gpu" && is_before_the_peak(read) {
            true => ("Near", ": call sites are kept as it grows by 3 %"),
            false => ("At", ""),
        };
        let not_kept = match VIEWS[state.view].name {
            "overview" | "sites" | "flame" | "gpu" | "leaks" => "",
            _ => " What this view shows is not kept of it, and is as it is now.",
        };
        out.push((format!(" ▲ {at} the peak, {when}{why}. P shows now.{not_kept}"), state.theme.tab));
    }
    if let Some((words, changed)) = lens.compared(read, &state.kept) {
        let changed = changed.map(|bytes| format!(": {} in use", format_change(Metric::InUseBytes, bytes)));
        let text = format!(" Δ Compared with {words}{}. D chooses another, Esc none.", changed.unwrap_or_default());
        out.push((text, state.theme.tab));
    }
    if let Some((from, to)) = lens.range {
        let now = read.snapshot.taken_ns as f64 / 1e9;
        let ago = |at: f64| numbers::duration(Duration::from_secs_f64((now - at).max(0.0)));
        let sum = match (model.live.samples, model.live_error()) {
            (0, _) => "nothing sampled".to_owned(),
            (_, None) => numbers::bytes(model.live.bytes),
            (_, Some(error)) => numbers::estimate(model.live.bytes, error),
        };
        let text =
            format!(" ↔ Allocated from {} to {} ago and still in use: {sum}. Esc shows all.", ago(from), ago(to));
        out.push((text, state.theme.tab));
    }
    out
}

/// The processes that it started, the largest first: a person who looks at a shell or a compiler's driver means those.
fn family(model: &Model) -> Option<String> {
    model.family.first()?;
    let each = |kin: &Kin| {
        let mark = if kin.on_pool { "●" } else { "○" };
        format!("{mark} {} {} {}", printable(&kin.child.name), kin.child.pid, numbers::bytes(kin.child.rss as f64))
    };
    let all: Vec<String> = model.family.iter().map(each).collect();
    let key = if model.family.iter().any(|kin| kin.on_pool) { "  o watches one" } else { "" };
    Some(format!("{FAMILY}{}{key}", all.join("  ")))
}

/// What the line of the processes begins with that the watched one started.
const FAMILY: &str = " ▸ It started ";

/// Whether a line of the banners is the one of the processes that the watched one started.
pub(crate) fn is_of_family(state: &State, line: u16) -> bool {
    banners(state).get(usize::from(line)).is_some_and(|(text, _)| text.starts_with(FAMILY))
}

fn drops(dropped: &Dropped) -> Option<String> {
    let parts: Vec<String> = [
        (dropped.live, "samples found no room in the live table"),
        (dropped.stacks, "samples whose stack found no room"),
        (dropped.torn, "records changed while they were read"),
        (dropped.invalid, "damaged records"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, what)| format!("{} {what}", numbers::grouped(count)))
    .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Draws the banners, each over the whole width.
pub(crate) fn draw_banners(state: &State, area: Rect, buf: &mut Buffer) {
    for (line, (text, style)) in banners(state).into_iter().take(usize::from(area.height)).enumerate() {
        let y = area.y + line as u16;
        buf.set_style(Rect { y, height: 1, ..area }, style);
        buf.set_string(area.x, y, clip(&text, usize::from(area.width)), style);
    }
}
