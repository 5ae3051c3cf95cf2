//! A recording's report as text.

use std::fmt::Write as _;

use crate::build::site_name::site_text;
use crate::recording::faces::labels::{
    PART_COLUMNS, View, growth, lifetime_label, part_row, size_label, stream_label, thread_label, time, views,
};
use crate::recording::file::reader::Tail;
use crate::recording::replay::analysis::{Analysis, Count, Figures, MemoryFigures, NEARLY_EMPTY, StreamFigures};
use crate::words::figures::{bytes, count, grouped};

/// Callers that name a site, beside the function itself: many allocate by a few functions of their own.
const CALLERS: usize = 4;

/// A figure that sites are listed by.
type Ranked = (&'static str, fn(&Figures) -> Count);

fn share(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { 100.0 * part as f64 / of as f64 }
}

/// A bar of at most twenty signs.
fn bar(part: u64, most: u64) -> String {
    "#".repeat(if most == 0 { 0 } else { (part as f64 / most as f64 * 20.0).ceil() as usize })
}

/// A table of the parts, if there are several.
fn parts(view: View<'_>, text: &mut String) {
    if view.memory.parts.len() < 2 {
        return;
    }
    let _ = writeln!(text, "\nParts");
    let rows = view.memory.parts.iter().enumerate().map(|(at, part)| part_row(at + 1, part));
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
pub fn to_text(analysis: &Analysis, rows: usize) -> String {
    let mut text = String::new();
    head(analysis, &mut text);
    for view in views(analysis) {
        if let Some(name) = view.name() {
            let _ = writeln!(text, "\n{name}\n{}", "=".repeat(name.len()));
        }
        of_memory(view, rows, &mut text);
    }
    text
}

/// What there is to say of one memory.
fn of_memory(view: View<'_>, rows: usize, text: &mut String) {
    let View { analysis, memory } = view;
    parts(view, text);
    let sites = |text: &mut String, title: &str, (what, of): Ranked, rest: &dyn Fn(&Figures) -> String| {
        let total: u64 = view.sites().map(|(_, figures)| of(figures).bytes).sum();
        let _ = writeln!(text, "\n{title}");
        let list = view.ranked(|site| of(site).bytes, rows);
        if list.is_empty() {
            let _ = writeln!(text, "  none");
            return;
        }
        let _ = writeln!(text, "  {what:>10} {:>12} {:>6}  site", "blocks", "share");
        for (site, figures) in list {
            let Count { objects, bytes: size } = of(figures);
            let _ = writeln!(
                text,
                "  {:>10} {:>12} {:>5.1}%  {}{}",
                bytes(size as f64),
                grouped(objects),
                share(size, total),
                site_text(&analysis.profile, site, CALLERS),
                rest(figures)
            );
        }
    };
    let peak = &memory.peak;
    let title = format!(
        "Peak: {} in {} at {}",
        bytes(peak.count.bytes as f64),
        count(peak.count.objects, "block"),
        time(peak.time_us)
    );
    sites(text, &title, ("at peak", |site| site.peak), &|_| String::new());
    sites(text, "Allocated", ("allocated", |site| site.allocated), &|site| {
        let mean = site.lifetime_us.checked_div(site.freed.objects);
        mean.map_or_else(String::new, |mean| format!("  (live {} on average)", time(mean)))
    });
    let between = analysis.question.temporary;
    let title = if between == 0 {
        "Temporary: freed by the same thread before it allocated anything else".to_owned()
    } else {
        format!("Temporary: freed by the same thread after at most {} of its own", count(between, "other allocation"))
    };
    sites(text, &title, ("allocated", |site| site.temporary), &|site| {
        format!("  ({:.0}% of its allocations)", share(site.temporary.objects, site.allocated.objects))
    });
    sites(text, "In use at the end", ("in use", |site| site.at_end), &|_| String::new());
    if analysis.has_free_stacks() {
        let title = "Freed, by who frees, whoever allocated it";
        sites(text, title, ("freed", |site| site.freed_here), &|_| String::new());
    }
    growth_text(view, rows, text);
    histograms(memory, text);
    threads(view, rows, text);
    streams(memory, rows, text);
    if view.is_host() {
        pages(view, rows, text);
    }
}

fn head(analysis: &Analysis, text: &mut String) {
    let session = &analysis.session;
    let parts = match analysis.host().parts.len() {
        0 | 1 => String::new(),
        parts => format!(" in {parts} parts"),
    };
    let (command, pid) = (session.command(), session.pid);
    let _ = writeln!(text, "{command} (pid {pid}), recorded for {}{parts}", time(analysis.end_us));
    let events: u64 = analysis.memories.iter().map(|memory| memory.total.allocated.objects).sum();
    let _ = writeln!(
        text,
        "{}; {}, {:.2} bytes an allocation",
        totals(analysis.host()),
        count(analysis.host().threads.len() as u64, "thread"),
        analysis.file_bytes as f64 / events.max(1) as f64,
    );
    unmatched(analysis.host(), text);
    for view in views(analysis) {
        let Some(name) = view.name() else { continue };
        let streams = count(view.memory.streams.len() as u64, "stream");
        let _ = writeln!(text, "{name}: {}; {streams}", totals(view.memory));
        unmatched(view.memory, text);
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

fn totals(memory: &MemoryFigures) -> String {
    let total = &memory.total;
    format!(
        "{} of {}, {}, in use at the end {} in {}",
        count(total.allocated.objects, "allocation"),
        bytes(total.allocated.bytes as f64),
        count(total.freed.objects, "free"),
        bytes(total.at_end.bytes as f64),
        count(total.at_end.objects, "block"),
    )
}

/// Frees that have no allocation, and allocations that have no free.
fn unmatched(memory: &MemoryFigures, text: &mut String) {
    if memory.unknown_frees > 0 {
        let frees = count(memory.unknown_frees, "free");
        let _ = writeln!(text, "{frees} of blocks whose allocation is not in the recording");
    }
    if memory.lost_frees > 0 {
        let frees = count(memory.lost_frees, "free");
        let _ = writeln!(text, "{frees} were lost, and found out when the address was allocated anew");
    }
}

fn growth_text(view: View<'_>, rows: usize, text: &mut String) {
    let analysis = view.analysis;
    let question = &analysis.question;
    let to = question.to_us.min(analysis.end_us);
    let _ = writeln!(text, "\nGrowth from {} to {}", time(question.from_us), time(to));
    let list = view.ranked(|site| growth(site).max(0) as u64, rows);
    if list.is_empty() {
        let _ = writeln!(text, "  none");
        return;
    }
    let _ = writeln!(text, "  {:>10} {:>10} {:>10}  site", "growth", "before", "after");
    for (site, figures) in list {
        let _ = writeln!(
            text,
            "  {:>10} {:>10} {:>10}  {}",
            format!("+{}", bytes(growth(figures) as f64)),
            bytes(figures.at_start.bytes as f64),
            bytes(figures.at_end.bytes as f64),
            site_text(&analysis.profile, site, CALLERS)
        );
    }
}

fn histograms(memory: &MemoryFigures, text: &mut String) {
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
    table(text, "Sizes, in bytes", &memory.sizes, &size_label);
    let common = memory.common_sizes.iter().take(10);
    let common: Vec<String> = common.map(|(size, n)| format!("{size} ({})", grouped(*n))).collect();
    let _ = writeln!(text, "  most often: {}", common.join(", "));
    table(text, "Lifetimes of what was freed", &memory.lifetimes, &lifetime_label);
}

fn threads(view: View<'_>, rows: usize, text: &mut String) {
    let View { analysis, memory } = view;
    let _ = writeln!(text, "\nThreads");
    let _ = writeln!(
        text,
        "  {:>14} {:>10} {:>14} {:>14} {:>10} {:>10}  thread",
        "allocations", "bytes", "frees", "of others'", "temporary", "in use"
    );
    let did_something = |&thread: &usize| view.is_host() || memory.threads[thread].did_something();
    let mut list: Vec<usize> = (0..memory.threads.len()).filter(did_something).collect();
    list.sort_by_key(|&thread| std::cmp::Reverse(memory.threads[thread].allocated.objects));
    for &thread in list.iter().take(rows) {
        let figures = &memory.threads[thread];
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

fn streams(memory: &MemoryFigures, rows: usize, text: &mut String) {
    if memory.streams.is_empty() {
        return;
    }
    let _ = writeln!(text, "\nStreams");
    let _ = writeln!(text, "  {:>14} {:>10} {:>14}  stream", "allocations", "bytes", "frees");
    let mut list: Vec<&StreamFigures> = memory.streams.iter().collect();
    list.sort_by_key(|stream| std::cmp::Reverse(stream.allocated.objects));
    for stream in list.iter().take(rows) {
        let _ = writeln!(
            text,
            "  {:>14} {:>10} {:>14}  {}",
            grouped(stream.allocated.objects),
            bytes(stream.allocated.bytes as f64),
            grouped(stream.frees),
            stream_label(stream.handle)
        );
    }
    if list.len() > rows {
        let _ = writeln!(text, "  and {}", count((list.len() - rows) as u64, "other stream"));
    }
}

fn pages(view: View<'_>, rows: usize, text: &mut String) {
    let analysis = view.analysis;
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
    let list = view.ranked(|site| site.held_free, rows);
    if list.is_empty() {
        return;
    }
    let _ = writeln!(text, "  {:>10} {:>10} {:>10}  who holds them", "held free", "in use", "blocks");
    for (site, figures) in list {
        let _ = writeln!(
            text,
            "  {:>10} {:>10} {:>10}  {}",
            bytes(figures.held_free as f64),
            bytes(figures.sparse.bytes as f64),
            grouped(figures.sparse.objects),
            site_text(&analysis.profile, site, CALLERS)
        );
    }
}
