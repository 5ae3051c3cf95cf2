//! A recording's report as one HTML page with charts, which needs nothing from anywhere else.
//!
//! The page, its style and its script are files beside this one. The script only sorts tables. Everything that comes
//! from the program (names, arguments) is escaped.

mod charts;
mod tables;

use std::fmt::Write as _;
use std::io::{self, Write};

use crate::build::site_name::site_text;
use crate::faces::flamegraph;
use crate::faces::text::frame_text;
use crate::model::profile::Metric;
use crate::recording::faces::labels::{
    PART_COLUMNS, View, growth, lifetime_label, part_row, size_label, stream_label, thread_label, time, views,
};
use crate::recording::replay::analysis::{Analysis, Count, Figures, MemoryFigures, StreamFigures};
use crate::words::figures::{bytes, count, grouped};
use crate::words::markup::{escaped, filled};
use tables::{cell, number, row, table};

/// Sites in each table.
const ROWS: usize = 40;
/// Callers that name a site, beside the function itself: many allocate by a few functions of their own.
const CALLERS: usize = 4;

/// The page's own files.
const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const FLAME: &str = include_str!("flame.html");

/// Writes the page.
pub fn write_page(analysis: &Analysis, mut out: impl Write) -> io::Result<()> {
    let mut sections = head(analysis);
    for view in views(analysis) {
        sections += &of_memory(view)?;
    }
    let command = escaped(&analysis.session.command());
    let parts = [("command", command.as_str()), ("style", STYLE), ("script", SCRIPT), ("sections", &sections)];
    out.write_all(filled(PAGE, &parts).as_bytes())?;
    out.flush()
}

/// The sections of one memory.
fn of_memory(view: View<'_>) -> io::Result<String> {
    let View { analysis, memory } = view;
    let name = view.name();
    let mut text = match &name {
        Some(name) => format!("<h1>{}</h1>\n<dl>{}</dl>\n", escaped(name), totals(memory)),
        None => String::new(),
    };
    let mut section = |title: &str, body: &str| {
        text += &match &name {
            Some(name) => section(&format!("{name}: {title}"), body),
            None => section(title, body),
        }
    };
    if memory.parts.len() > 1 {
        section("Parts", &parts(memory));
    }
    section("In use over time", &charts::timeline(memory));
    section("Allocations over time", &charts::rates(memory));
    let peak = &memory.peak;
    let title = format!("Peak: {} at {}", bytes(peak.count.bytes as f64), time(peak.time_us));
    section(&title, &sites(view, |site| site.peak, |_| Vec::new(), &[]));
    section("Flamegraph of the peak", &flame(view)?);
    let lifetime = |site: &Figures| vec![time(site.lifetime_us / site.freed.objects.max(1))];
    section("Allocated", &sites(view, |site| site.allocated, lifetime, &["mean lifetime"]));
    let part = |site: &Figures| {
        vec![format!("{:.0}%", 100.0 * site.temporary.objects as f64 / site.allocated.objects.max(1) as f64)]
    };
    let note = "<p>Freed by the same thread before it allocated anything else, or little else.</p>";
    let table = sites(view, |site| site.temporary, part, &["of its allocations"]);
    section("Temporary allocations", &format!("{note}{table}"));
    section("In use at the end", &sites(view, |site| site.at_end, |_| Vec::new(), &[]));
    if analysis.has_free_stacks() {
        let note = "<p>Call paths that freed blocks, whoever had allocated them.</p>";
        let table = sites(view, |site| site.freed_here, |_| Vec::new(), &[]);
        section("Freed, by who frees", &format!("{note}{table}"));
    }
    let grown = |site: &Figures| Count {
        objects: site.at_end.objects.saturating_sub(site.at_start.objects),
        bytes: growth(site).max(0) as u64,
    };
    let to = analysis.question.to_us.min(analysis.end_us);
    let title = format!("Growth from {} to {}", time(analysis.question.from_us), time(to));
    section(&title, &sites(view, grown, |_| Vec::new(), &[]));
    section("Sizes", &bars(&memory.sizes, size_label));
    section("Lifetimes", &bars(&memory.lifetimes, lifetime_label));
    section("Threads", &threads(view));
    if view.is_host() {
        section("Nearly empty pages", &pages(view));
    } else {
        section("Streams", &streams(memory));
    }
    Ok(text)
}

fn section(title: &str, body: &str) -> String {
    format!("<section><h2>{}</h2>\n{body}</section>\n", escaped(title))
}

fn item(name: &str, value: &str) -> String {
    format!("<div><dt>{name}</dt><dd>{}</dd></div>", escaped(value))
}

fn head(analysis: &Analysis) -> String {
    let host = analysis.host();
    let mut text = String::from("<dl>");
    text += &item("recorded for", &time(analysis.end_us));
    text += &totals(host);
    text += &item("threads", &grouped(host.threads.len() as u64));
    text += &item("lost", &count(analysis.summary.lost(), "event"));
    text += &item("file", &bytes(analysis.file_bytes as f64));
    text.push_str("</dl>\n");
    for caution in analysis.cautions() {
        let _ = writeln!(text, "<p class=\"caution\">{}</p>", escaped(caution));
    }
    text
}

/// The figures that a memory's part of the page begins with.
fn totals(memory: &MemoryFigures) -> String {
    let total = &memory.total;
    let mut text = item("allocations", &grouped(total.allocated.objects));
    text += &item("allocated", &bytes(total.allocated.bytes as f64));
    text += &item("peak", &bytes(memory.peak.count.bytes as f64));
    text += &item("in use at the end", &bytes(total.at_end.bytes as f64));
    if memory.unknown_frees > 0 {
        text += &item("frees of blocks from before", &grouped(memory.unknown_frees));
    }
    text
}

fn parts(memory: &MemoryFigures) -> String {
    let rows = memory.parts.iter().enumerate().map(|(at, part)| row(&part_row(at + 1, part).map(|text| cell(&text))));
    table("", &PART_COLUMNS, &rows.collect::<String>())
}

fn bars(list: &[Count], label: impl Fn(usize) -> String) -> String {
    let most = list.iter().map(|count| count.objects).max().unwrap_or(0);
    if most == 0 {
        return "<p>none</p>\n".to_owned();
    }
    let rows = list.iter().enumerate().filter(|(_, row)| row.objects > 0).map(|(at, count)| {
        let width = 100.0 * count.objects as f64 / most as f64;
        let bar = format!("<td><i style=\"width:{width:.1}%\"></i></td>");
        row(&[cell(&label(at)), cell(&grouped(count.objects)), cell(&bytes(count.bytes as f64)), bar])
    });
    table("bars", &["", "blocks", "bytes", ""], &rows.collect::<String>())
}

/// A table of sites with one figure, and more columns if any; each row folds its call path out.
fn sites(
    view: View<'_>,
    of: impl Fn(&Figures) -> Count,
    more: impl Fn(&Figures) -> Vec<String>,
    heads: &[&str],
) -> String {
    let list = view.ranked(|site| of(site).bytes, ROWS);
    if list.is_empty() {
        return "<p>none</p>\n".to_owned();
    }
    let profile = &view.analysis.profile;
    let total: u64 = view.sites().map(|(_, figures)| of(figures).bytes).sum();
    let heads = [&["bytes", "blocks", "share"], heads, &["site"]].concat();
    let rows = list.into_iter().map(|(site, figures)| {
        let Count { objects, bytes: size } = of(figures);
        let share = 100.0 * size as f64 / total.max(1) as f64;
        let mut cells =
            vec![number(size, &bytes(size as f64)), number(objects, &grouped(objects)), cell(&format!("{share:.1}%"))];
        cells.extend(more(figures).iter().map(|column| cell(column)));
        let frames: String =
            profile.frames(site).map(|frame| format!("<li>{}</li>", escaped(&frame_text(frame)))).collect();
        let title = escaped(&site_text(profile, site, CALLERS));
        cells.push(format!("<td><details><summary>{title}</summary><ol>{frames}</ol></details></td>"));
        row(&cells)
    });
    table("sites", &heads, &rows.collect::<String>())
}

fn threads(view: View<'_>) -> String {
    let View { analysis, memory } = view;
    let did_something = |&thread: &usize| view.is_host() || memory.threads[thread].did_something();
    let mut list: Vec<usize> = (0..memory.threads.len()).filter(did_something).collect();
    list.sort_by_key(|&thread| std::cmp::Reverse(memory.threads[thread].allocated.objects));
    let rows = list.iter().take(ROWS).map(|&thread| {
        let figures = &memory.threads[thread];
        let ring = analysis.summary.threads.get(thread).map(|known| known.ring as usize);
        let lost = ring.and_then(|ring| analysis.summary.losses.get(ring)).map_or(0, |ring| ring.allocs + ring.frees);
        let cells = [
            thread_label(analysis, thread),
            grouped(figures.allocated.objects),
            bytes(figures.allocated.bytes as f64),
            grouped(figures.frees),
            grouped(figures.frees_of_others),
            grouped(figures.temporary.objects),
            bytes(figures.at_end.bytes as f64),
            grouped(lost),
        ];
        row(&cells.map(|text| cell(&text)))
    });
    let heads = ["thread", "allocations", "bytes", "frees", "of others'", "temporary", "in use", "lost"];
    let mut text = table("", &heads, &rows.collect::<String>());
    if list.len() > ROWS {
        let _ = writeln!(text, "<p>and {}</p>", count((list.len() - ROWS) as u64, "other thread"));
    }
    text
}

fn streams(memory: &MemoryFigures) -> String {
    let mut list: Vec<&StreamFigures> = memory.streams.iter().collect();
    list.sort_by_key(|stream| std::cmp::Reverse(stream.allocated.objects));
    let rows = list.iter().take(ROWS).map(|stream| {
        let cells = [
            stream_label(stream.handle),
            grouped(stream.allocated.objects),
            bytes(stream.allocated.bytes as f64),
            grouped(stream.frees),
        ];
        row(&cells.map(|text| cell(&text)))
    });
    let mut text = table("", &["stream", "allocations", "bytes", "frees"], &rows.collect::<String>());
    if list.len() > ROWS {
        let _ = writeln!(text, "<p>and {}</p>", count((list.len() - ROWS) as u64, "other stream"));
    }
    text
}

fn pages(view: View<'_>) -> String {
    let pages = &view.analysis.pages;
    let mut text = format!(
        "<p>{} of {} are at most a quarter full at the end and hold {} free. By how full pages of {} are:</p>",
        grouped(pages.sparse),
        count(pages.pages, "page"),
        bytes(pages.held_free as f64),
        bytes(pages.page_bytes as f64)
    );
    text += &charts::tenths(&pages.tenths);
    let held = |site: &Figures| Count { objects: site.sparse.objects, bytes: site.held_free };
    let used = |site: &Figures| vec![bytes(site.sparse.bytes as f64)];
    text + "<p>Who holds them, by the free bytes that each holds:</p>" + &sites(view, held, used, &["in use"])
}

/// The flamegraph, as a picture of its own in the page.
fn flame(view: View<'_>) -> io::Result<String> {
    let profile = view.analysis.profile.at_peak().unwrap_or_else(|| view.analysis.profile.clone());
    let profile = profile.only(view.memory.place.memory());
    let mut svg = Vec::new();
    flamegraph::write_flamegraph(&profile, Metric::InUseBytes, "in use at the peak", &mut svg)?;
    let svg = String::from_utf8_lossy(&svg);
    let start = svg.find("<svg").unwrap_or(0);
    // A document of its own: the graph's script takes the first image that it finds for its own.
    let page = filled(FLAME, &[("svg", &svg[start..])]);
    let height = svg.split("height=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or("400");
    Ok(format!("<iframe class=\"flame\" height=\"{}\" srcdoc=\"{}\"></iframe>\n", escaped(height), escaped(&page)))
}
