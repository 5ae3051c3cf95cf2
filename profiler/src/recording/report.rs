//! A recording's report as text and as JSON.
//!
//! # The JSON
//!
//! Field names are stable: a field is never renamed or given another meaning, and new ones may be added. Counts are objects
//! `{"objects": integer, "bytes": integer}`; times are microseconds since the recording began. `frames` are innermost first. A site's
//! `freed` is what was freed of what it allocated, its `freed_here` what it freed itself; that one is there if `free_stacks` is true.

use std::fmt::Write as _;

use serde::Serialize;

use super::analysis::{Analysis, Count, Figures, NEARLY_EMPTY, PartFigures};
use super::reader::Tail;
use crate::figures::{bytes, count, grouped};
use crate::profile::Frame;
use crate::report::site_text;

/// Callers that name a site, beside the function itself: many allocate by a few functions of their own.
const CALLERS: usize = 4;

/// The version of the JSON, in its field `version`.
const JSON_VERSION: u32 = 1;

/// A figure that sites are listed by.
type Ranked = (&'static str, fn(&Figures) -> Count);

/// The sites that are first by some figure, with their places in the profile.
pub(super) fn ranked(analysis: &Analysis, by: impl Fn(&Figures) -> u64, rows: usize) -> Vec<usize> {
    let mut sites: Vec<usize> = (0..analysis.sites.len()).filter(|&site| by(&analysis.sites[site]) > 0).collect();
    sites.sort_by_key(|&site| (std::cmp::Reverse(by(&analysis.sites[site])), site));
    sites.truncate(rows);
    sites
}

/// What grew between the two times: bytes, which may be negative.
pub(super) fn growth(figures: &Figures) -> i64 {
    figures.at_end.bytes as i64 - figures.at_start.bytes as i64
}

/// `1.5 s`, `12 ms`, `3 us`.
pub(super) fn time(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        1_000_000..600_000_000 => format!("{:.2} s", us as f64 / 1e6),
        _ => format!("{:.1} min", us as f64 / 60e6),
    }
}

/// What the `decade`th row of lifetimes is.
pub(super) fn lifetime_label(decade: usize) -> String {
    let us = |power: usize| time(10u64.saturating_pow(power as u32));
    match decade {
        0 => "below 1 us".to_owned(),
        _ => format!("{} to {}", us(decade - 1), us(decade)),
    }
}

/// What the `class`th row of sizes is.
pub(super) fn size_label(class: usize) -> String {
    match class {
        0 => "0".to_owned(),
        1 => "1".to_owned(),
        _ => {
            let from = 1u64 << (class - 1);
            let to = from.checked_mul(2).map_or(u64::MAX, |end| end - 1);
            if class <= 13 { format!("{from} to {to}") } else { format!("{} and more", bytes(from as f64)) }
        }
    }
}

/// The name of a thread of the recording: `worker (tid 12)`.
pub(super) fn thread_label(analysis: &Analysis, thread: usize) -> String {
    match analysis.summary.threads.get(thread) {
        Some(known) if known.name.is_empty() => format!("tid {}", known.tid),
        Some(known) => format!("{} (tid {})", known.name, known.tid),
        None => "other threads".to_owned(),
    }
}

fn share(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { 100.0 * part as f64 / of as f64 }
}

/// A bar of at most twenty signs.
fn bar(part: u64, most: u64) -> String {
    "#".repeat(if most == 0 { 0 } else { (part as f64 / most as f64 * 20.0).ceil() as usize })
}

/// The columns of the table of parts.
pub(super) const PART_COLUMNS: [&str; 8] =
    ["part", "from", "for", "allocations", "frees", "peak", "at its end", "process"];

/// A part's row in it, by its number from 1 and the times of the file.
pub(super) fn part_row(number: usize, part: &PartFigures) -> [String; 8] {
    let from = part.session.begins_us;
    [
        number.to_string(),
        time(from),
        time(part.end_us.saturating_sub(from)),
        grouped(part.allocated.objects),
        grouped(part.frees),
        bytes(part.peak.bytes as f64),
        bytes(part.at_end.bytes as f64),
        format!("{} (pid {})", part.session.command(), part.session.pid),
    ]
}

/// A table of the parts, if there are several.
fn parts(analysis: &Analysis, text: &mut String) {
    if analysis.parts.len() < 2 {
        return;
    }
    let _ = writeln!(text, "\nParts");
    let rows = analysis.parts.iter().enumerate().map(|(at, part)| part_row(at + 1, part));
    for [part, from, length, allocations, frees, peak, end, process] in
        std::iter::once(PART_COLUMNS.map(str::to_owned)).chain(rows)
    {
        let _ = writeln!(
            text,
            "  {part:>4} {from:>10} {length:>10} {allocations:>14} {frees:>14} {peak:>10} {end:>10}  {process}"
        );
    }
}

/// The report, `rows` sites in each table.
pub fn text(analysis: &Analysis, rows: usize) -> String {
    let mut text = String::new();
    head(analysis, &mut text);
    parts(analysis, &mut text);
    let sites = |text: &mut String, title: &str, (what, of): Ranked, rest: &dyn Fn(&Figures) -> String| {
        let total: u64 = analysis.sites.iter().map(|site| of(site).bytes).sum();
        let _ = writeln!(text, "\n{title}");
        let list = ranked(analysis, |site| of(site).bytes, rows);
        if list.is_empty() {
            let _ = writeln!(text, "  none");
            return;
        }
        let _ = writeln!(text, "  {what:>10} {:>12} {:>6}  site", "blocks", "share");
        for site in list {
            let figures = &analysis.sites[site];
            let Count { objects, bytes: size } = of(figures);
            let _ = writeln!(
                text,
                "  {:>10} {:>12} {:>5.1}%  {}{}",
                bytes(size as f64),
                grouped(objects),
                share(size, total),
                site_text(&analysis.profile, &analysis.profile.sites[site], CALLERS),
                rest(figures)
            );
        }
    };
    let peak = &analysis.peak;
    let title = format!(
        "Peak: {} in {} at {}",
        bytes(peak.count.bytes as f64),
        count(peak.count.objects, "block"),
        time(peak.time_us)
    );
    sites(&mut text, &title, ("at peak", |site| site.peak), &|_| String::new());
    sites(&mut text, "Allocated", ("allocated", |site| site.allocated), &|site| {
        let mean = site.lifetime_us.checked_div(site.freed.objects);
        mean.map_or_else(String::new, |mean| format!("  (live {} on average)", time(mean)))
    });
    let between = analysis.question.temporary;
    let title = if between == 0 {
        "Temporary: freed by the same thread before it allocated anything else".to_owned()
    } else {
        format!("Temporary: freed by the same thread after at most {} of its own", count(between, "other allocation"))
    };
    sites(&mut text, &title, ("allocated", |site| site.temporary), &|site| {
        format!("  ({:.0}% of its allocations)", share(site.temporary.objects, site.allocated.objects))
    });
    sites(&mut text, "In use at the end", ("in use", |site| site.at_end), &|_| String::new());
    if analysis.has_free_stacks() {
        let title = "Freed, by who frees, whoever allocated it";
        sites(&mut text, title, ("freed", |site| site.freed_here), &|_| String::new());
    }
    growth_text(analysis, rows, &mut text);
    histograms(analysis, &mut text);
    threads(analysis, rows, &mut text);
    pages(analysis, rows, &mut text);
    text
}

fn head(analysis: &Analysis, text: &mut String) {
    let session = &analysis.session;
    let parts = match analysis.parts.len() {
        0 | 1 => String::new(),
        parts => format!(" in {parts} parts"),
    };
    let (command, pid) = (session.command(), session.pid);
    let _ = writeln!(text, "{command} (pid {pid}), recorded for {}{parts}", time(analysis.end_us));
    let total = &analysis.total;
    let _ = writeln!(
        text,
        "{} of {}, {}, in use at the end {} in {}; {}, {:.2} bytes an allocation",
        count(total.allocated.objects, "allocation"),
        bytes(total.allocated.bytes as f64),
        count(total.freed.objects, "free"),
        bytes(total.at_end.bytes as f64),
        count(total.at_end.objects, "block"),
        count(analysis.threads.len() as u64, "thread"),
        analysis.file_bytes as f64 / total.allocated.objects.max(1) as f64,
    );
    if analysis.unknown_frees > 0 {
        let frees = count(analysis.unknown_frees, "free");
        let _ = writeln!(text, "{frees} of blocks whose allocation is not in the recording");
    }
    if analysis.lost_frees > 0 {
        let frees = count(analysis.lost_frees, "free");
        let _ = writeln!(text, "{frees} were lost, and found out when the address was allocated anew");
    }
    for caution in analysis.cautions() {
        let _ = writeln!(text, "! {caution}");
    }
    if analysis.summary.lost() == 0 && analysis.tail == Tail::Finished {
        let waits: u64 = analysis.summary.losses.iter().map(|ring| ring.waits).sum();
        let waited = if waits > 0 { format!("; the program waited {}", count(waits, "time")) } else { String::new() };
        let _ = writeln!(text, "nothing was lost{waited}");
    }
}

fn growth_text(analysis: &Analysis, rows: usize, text: &mut String) {
    let question = &analysis.question;
    let to = question.to_us.min(analysis.end_us);
    let _ = writeln!(text, "\nGrowth from {} to {}", time(question.from_us), time(to));
    let list = ranked(analysis, |site| growth(site).max(0) as u64, rows);
    if list.is_empty() {
        let _ = writeln!(text, "  none");
        return;
    }
    let _ = writeln!(text, "  {:>10} {:>10} {:>10}  site", "growth", "before", "after");
    for site in list {
        let figures = &analysis.sites[site];
        let _ = writeln!(
            text,
            "  {:>10} {:>10} {:>10}  {}",
            format!("+{}", bytes(growth(figures) as f64)),
            bytes(figures.at_start.bytes as f64),
            bytes(figures.at_end.bytes as f64),
            site_text(&analysis.profile, &analysis.profile.sites[site], CALLERS)
        );
    }
}

fn histograms(analysis: &Analysis, text: &mut String) {
    let table = |text: &mut String, title: &str, list: &[Count], label: &dyn Fn(usize) -> String| {
        let _ = writeln!(text, "\n{title}");
        let most = list.iter().map(|count| count.objects).max().unwrap_or(0);
        if most == 0 {
            let _ = writeln!(text, "  none");
        }
        for (at, row) in list.iter().enumerate().filter(|(_, row)| row.objects > 0) {
            let _ = writeln!(
                text,
                "  {:>20} {:>14} {:>10}  {}",
                label(at),
                grouped(row.objects),
                bytes(row.bytes as f64),
                bar(row.objects, most)
            );
        }
    };
    table(text, "Sizes, in bytes", &analysis.sizes, &size_label);
    let common = analysis.common_sizes.iter().take(10);
    let common: Vec<String> = common.map(|(size, n)| format!("{size} ({})", grouped(*n))).collect();
    let _ = writeln!(text, "  most often: {}", common.join(", "));
    table(text, "Lifetimes of what was freed", &analysis.lifetimes, &lifetime_label);
}

fn threads(analysis: &Analysis, rows: usize, text: &mut String) {
    let _ = writeln!(text, "\nThreads");
    let _ = writeln!(
        text,
        "  {:>14} {:>10} {:>14} {:>14} {:>10} {:>10}  thread",
        "allocations", "bytes", "frees", "of others'", "temporary", "in use"
    );
    let mut list: Vec<usize> = (0..analysis.threads.len()).collect();
    list.sort_by_key(|&thread| std::cmp::Reverse(analysis.threads[thread].allocated.objects));
    for &thread in list.iter().take(rows) {
        let figures = &analysis.threads[thread];
        let _ = writeln!(
            text,
            "  {:>14} {:>10} {:>14} {:>14} {:>9.1}% {:>10}  {}",
            grouped(figures.allocated.objects),
            bytes(figures.allocated.bytes as f64),
            grouped(figures.frees),
            grouped(figures.frees_of_others),
            share(figures.temporary.objects, figures.allocated.objects),
            bytes(figures.at_end.bytes as f64),
            thread_label(analysis, thread)
        );
    }
    if list.len() > rows {
        let _ = writeln!(text, "  and {}", count((list.len() - rows) as u64, "other thread"));
    }
}

fn pages(analysis: &Analysis, rows: usize, text: &mut String) {
    let pages = &analysis.pages;
    let _ = writeln!(
        text,
        "\nPages that are nearly empty at the end (a quarter of {} in use, or less): {} of {}, {} held free",
        bytes(pages.page_bytes as f64),
        grouped(pages.sparse),
        grouped(pages.pages),
        bytes(pages.held_free as f64)
    );
    const { assert!(NEARLY_EMPTY == 0.25, "the text says a quarter") };
    if pages.unplaced > 0 {
        let blocks = count(pages.unplaced, "block");
        let _ = writeln!(text, "  {blocks} were allocated after places were last written down, and are not in this");
    }
    let list = ranked(analysis, |site| site.held_free, rows);
    if list.is_empty() {
        return;
    }
    let _ = writeln!(text, "  {:>10} {:>10} {:>10}  who holds them", "held free", "in use", "blocks");
    for site in list {
        let figures = &analysis.sites[site];
        let _ = writeln!(
            text,
            "  {:>10} {:>10} {:>10}  {}",
            bytes(figures.held_free as f64),
            bytes(figures.sparse.bytes as f64),
            grouped(figures.sparse.objects),
            site_text(&analysis.profile, &analysis.profile.sites[site], CALLERS)
        );
    }
}

/// The report as JSON.
pub fn json(analysis: &Analysis) -> serde_json::Result<String> {
    serde_json::to_string_pretty(&Report::new(analysis))
}

#[derive(Clone, Copy, Serialize)]
struct CountJson {
    objects: u64,
    bytes: u64,
}

impl From<Count> for CountJson {
    fn from(count: Count) -> Self {
        Self { objects: count.objects, bytes: count.bytes }
    }
}

#[derive(Serialize)]
struct Report<'a> {
    version: u32,
    pid: u32,
    exe: &'a str,
    args: &'a [String],
    recorded_realtime_ns: u64,
    from_start: bool,
    lossless: bool,
    free_stacks: bool,
    file_bytes: u64,
    recorder_bytes: u64,
    finished: bool,
    ended: &'a str,
    cautions: &'a [String],
    lost: LostJson<'a>,
    parts: Vec<PartJson<'a>>,
    end_us: u64,
    from_us: u64,
    to_us: u64,
    allocated: CountJson,
    freed: CountJson,
    temporary: CountJson,
    in_use: CountJson,
    peak: PeakJson,
    sizes: Vec<SizeJson>,
    common_sizes: Vec<CommonJson>,
    lifetimes: Vec<LifetimeJson>,
    timeline: TimelineJson,
    threads: Vec<ThreadJson<'a>>,
    pages: PagesJson,
    sites: Vec<SiteJson<'a>>,
}

#[derive(Serialize)]
struct PartJson<'a> {
    pid: u32,
    exe: &'a str,
    args: &'a [String],
    recorded_realtime_ns: u64,
    from_us: u64,
    to_us: u64,
    from_start: bool,
    lossless: bool,
    ended: &'a str,
    allocated: CountJson,
    frees: u64,
    peak: CountJson,
    in_use: CountJson,
}

impl<'a> From<&'a PartFigures> for PartJson<'a> {
    fn from(part: &'a PartFigures) -> Self {
        let session = &part.session;
        Self {
            pid: session.pid,
            exe: &session.exe,
            args: &session.args,
            recorded_realtime_ns: session.recorded_realtime_ns,
            from_us: session.begins_us,
            to_us: part.end_us,
            from_start: session.from_start,
            lossless: session.lossless,
            ended: &part.ended,
            allocated: part.allocated.into(),
            frees: part.frees,
            peak: part.peak.into(),
            in_use: part.at_end.into(),
        }
    }
}

#[derive(Serialize)]
struct LostJson<'a> {
    events: u64,
    without_ring: u64,
    unknown_frees: u64,
    found_out_frees: u64,
    unfollowed: u64,
    refused_stacks: u64,
    threads: &'a [super::session::RingLosses],
}

#[derive(Serialize)]
struct PeakJson {
    #[serde(flatten)]
    count: CountJson,
    time_us: u64,
}

#[derive(Serialize)]
struct SizeJson {
    from: u64,
    #[serde(flatten)]
    count: CountJson,
}

#[derive(Serialize)]
struct CommonJson {
    size: u64,
    objects: u64,
}

#[derive(Serialize)]
struct LifetimeJson {
    below_us: u64,
    #[serde(flatten)]
    count: CountJson,
}

#[derive(Serialize)]
struct TimelineJson {
    span_us: u64,
    most_bytes: Vec<u64>,
    most_objects: Vec<u64>,
    allocations: Vec<u64>,
    frees: Vec<u64>,
}

#[derive(Serialize)]
struct ThreadJson<'a> {
    tid: u32,
    name: &'a str,
    allocated: CountJson,
    frees: u64,
    frees_of_others: u64,
    temporary: CountJson,
    in_use: CountJson,
}

#[derive(Serialize)]
struct PagesJson {
    page_bytes: u64,
    pages: u64,
    nearly_empty: u64,
    held_free_bytes: u64,
    tenths: [u64; 10],
    unplaced_blocks: u64,
}

#[derive(Serialize)]
struct SiteJson<'a> {
    frames: Vec<FrameJson<'a>>,
    incomplete: bool,
    allocated: CountJson,
    freed: CountJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    freed_here: Option<CountJson>,
    temporary: CountJson,
    peak: CountJson,
    at_start: CountJson,
    at_end: CountJson,
    lifetime_us: u64,
    nearly_empty_pages: CountJson,
    held_free_bytes: u64,
}

#[derive(Serialize)]
struct FrameJson<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

impl<'a> From<&'a Frame> for FrameJson<'a> {
    fn from(frame: &'a Frame) -> Self {
        Self { name: &frame.name, file: frame.file.as_deref(), line: frame.line }
    }
}

impl<'a> Report<'a> {
    fn new(analysis: &'a Analysis) -> Self {
        let session = &analysis.session;
        let summary = &analysis.summary;
        let sites = analysis.sites.iter().zip(&analysis.profile.sites).map(|(figures, site)| SiteJson {
            frames: analysis.profile.frames(site).map(FrameJson::from).collect(),
            incomplete: site.incomplete,
            allocated: figures.allocated.into(),
            freed: figures.freed.into(),
            freed_here: analysis.has_free_stacks().then(|| figures.freed_here.into()),
            temporary: figures.temporary.into(),
            peak: figures.peak.into(),
            at_start: figures.at_start.into(),
            at_end: figures.at_end.into(),
            lifetime_us: figures.lifetime_us,
            nearly_empty_pages: figures.sparse.into(),
            held_free_bytes: figures.held_free,
        });
        let threads = analysis.threads.iter().enumerate().map(|(at, figures)| {
            let known = summary.threads.get(at);
            ThreadJson {
                tid: known.map_or(0, |thread| thread.tid),
                name: known.map_or("", |thread| &thread.name),
                allocated: figures.allocated.into(),
                frees: figures.frees,
                frees_of_others: figures.frees_of_others,
                temporary: figures.temporary.into(),
                in_use: figures.at_end.into(),
            }
        });
        let from = |class: usize| if class == 0 { 0 } else { 1u64 << (class - 1) };
        let sizes = analysis.sizes.iter().enumerate();
        let lifetimes = analysis.lifetimes.iter().enumerate();
        Report {
            version: JSON_VERSION,
            pid: session.pid,
            exe: &session.exe,
            args: &session.args,
            recorded_realtime_ns: session.recorded_realtime_ns,
            from_start: session.from_start,
            lossless: session.lossless,
            free_stacks: analysis.has_free_stacks(),
            file_bytes: analysis.file_bytes,
            recorder_bytes: summary.recorder_bytes,
            finished: analysis.tail == Tail::Finished,
            ended: &summary.ended,
            cautions: analysis.cautions(),
            lost: LostJson {
                events: summary.lost(),
                without_ring: summary.lost_without_ring,
                unknown_frees: analysis.unknown_frees,
                found_out_frees: analysis.lost_frees,
                unfollowed: analysis.unfollowed,
                refused_stacks: summary.refused_stacks,
                threads: &summary.losses,
            },
            parts: analysis.parts.iter().map(PartJson::from).collect(),
            end_us: analysis.end_us,
            from_us: analysis.question.from_us,
            to_us: analysis.question.to_us.min(analysis.end_us),
            allocated: analysis.total.allocated.into(),
            freed: analysis.total.freed.into(),
            temporary: analysis.total.temporary.into(),
            in_use: analysis.total.at_end.into(),
            peak: PeakJson { count: analysis.peak.count.into(), time_us: analysis.peak.time_us },
            sizes: sizes.map(|(at, count)| SizeJson { from: from(at), count: (*count).into() }).collect(),
            common_sizes: analysis.common_sizes.iter().map(|&(size, objects)| CommonJson { size, objects }).collect(),
            lifetimes: lifetimes
                .map(|(at, count)| LifetimeJson { below_us: 10u64.saturating_pow(at as u32), count: (*count).into() })
                .collect(),
            timeline: TimelineJson {
                span_us: analysis.span_us,
                most_bytes: analysis.timeline.iter().map(|span| span.most_bytes).collect(),
                most_objects: analysis.timeline.iter().map(|span| span.most_objects).collect(),
                allocations: analysis.timeline.iter().map(|span| span.allocs).collect(),
                frees: analysis.timeline.iter().map(|span| span.frees).collect(),
            },
            threads: threads.collect(),
            pages: PagesJson {
                page_bytes: analysis.pages.page_bytes,
                pages: analysis.pages.pages,
                nearly_empty: analysis.pages.sparse,
                held_free_bytes: analysis.pages.held_free,
                tenths: analysis.pages.tenths,
                unplaced_blocks: analysis.pages.unplaced,
            },
            sites: sites.collect(),
        }
    }
}
