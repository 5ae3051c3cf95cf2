//! The table on the terminal.

use std::fmt::Write;

use crate::catalogue::Family;
use crate::goals;
use crate::results::{Cell, Figure, Results, RowResult};

const ID: usize = 24;
const COLUMN: usize = 10;

/// All families, one after the other: times, then memory, then instructions, as far as there are any.
pub fn render(results: &Results) -> String {
    let mut text = String::new();
    let mut rows = results.rows.as_slice();
    while let Some(first) = rows.first() {
        let end = rows.iter().position(|row| row.family != first.family).unwrap_or(rows.len());
        let (family, rest) = rows.split_at(end);
        for figure in [Figure::Time, Figure::Peak, Figure::Waste, Figure::Instructions] {
            if figure.is_shown(first.family) {
                table(&mut text, results, family, figure);
            }
        }
        rows = rest;
    }
    means(&mut text, results);
    sampling(&mut text, results);
    goals(&mut text, results);
    text
}

fn sampling(text: &mut String, results: &Results) {
    let Some(sampling) = &results.sampling else { return };
    text.push_str("\nSampling on against off\n");
    for rows in sampling.rows.chunks(4) {
        let line: String = rows.iter().map(|row| format!("{:<42}", row.to_string())).collect();
        let _ = writeln!(text, "  {}", line.trim_end());
    }
}

fn goals(text: &mut String, results: &Results) {
    let _ = writeln!(text, "\nGoals");
    for goal in goals::all(results) {
        let met = goal.met.map_or("-", |met| if met { "met" } else { "MISSED" });
        let _ = writeln!(text, "  {:<34}{:<40}{met:<8}{}", goal.what, goal.limit, goal.reached);
    }
}

fn means(text: &mut String, results: &Results) {
    let _ = write!(text, "\nGeometric mean over all workloads of the ratio to the best one\n{:ID$}", "");
    for allocator in &results.allocators {
        let _ = write!(text, "{:>COLUMN$}", allocator.name);
    }
    for (name, figure) in [("time", Figure::Time), ("memory", Figure::Peak)] {
        let _ = write!(text, "\n{name:ID$}");
        for allocator in &results.allocators {
            let mean = results.mean(&allocator.name, figure);
            let _ = write!(text, "{:>COLUMN$}", mean.map_or("-".to_owned(), |mean| format!("{mean:.2}")));
        }
    }
    text.push('\n');
}

fn table(text: &mut String, results: &Results, rows: &[RowResult], figure: Figure) {
    if rows.iter().all(|row| results.best(row, figure).is_none() && failures(row).is_empty()) {
        return;
    }
    let family = rows[0].family;
    let _ = write!(text, "\n{}: {}\n{:ID$}", family.title(), figure.unit(family), "");
    for allocator in &results.allocators {
        let _ = write!(text, "{:>COLUMN$}", allocator.name);
    }
    let _ = writeln!(text, "   to the best peer");
    for row in rows {
        let _ = write!(text, "{:ID$}", row.id);
        for allocator in &results.allocators {
            let cell = row.cells.get(&allocator.name);
            let _ = write!(text, "{:>COLUMN$}", cell.map_or_else(String::new, |cell| shown(cell, family, figure)));
        }
        if let (Some(ratio), Some((peer, _))) = (results.ratio(row, figure), results.best_peer(row, figure)) {
            let mark = goals::missed(results, row, figure).map_or(String::new(), |limit| format!("  MISSED ({limit})"));
            let _ = write!(text, "   {ratio:5.2} {peer:<10}{}{mark}", spread(results, row, figure));
        }
        text.push('\n');
    }
    if figure == Figure::Time {
        for (name, failure) in rows.iter().flat_map(failures) {
            let _ = writeln!(text, "  {name} failed: {failure}");
        }
    }
}

/// The figure in the unit of its table.
pub fn shown(cell: &Cell, family: Family, figure: Figure) -> String {
    let value = match (cell.get(figure), figure) {
        (None, _) => return if cell.failure.is_some() { "failed" } else { "-" }.to_owned(),
        (Some(nanoseconds), Figure::Time) => nanoseconds / family.unit().1,
        (Some(bytes), Figure::Peak) => return format!("{:.1}", bytes / f64::from(1 << 20)),
        (Some(part), Figure::Waste) => return format!("{:.1}", part * 100.0),
        (Some(count), Figure::Instructions) => count,
    };
    match value {
        ..100.0 => format!("{value:.2}"),
        ..1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// How far the pool's rounds lie from their median, in per cent.
fn spread(results: &Results, row: &RowResult, figure: Figure) -> String {
    let cell = results.ours().and_then(|ours| row.cells.get(ours));
    let spread = match figure {
        Figure::Time => cell.and_then(|cell| cell.time),
        Figure::Peak => cell.and_then(|cell| cell.peak),
        Figure::Waste => cell.and_then(|cell| cell.waste),
        Figure::Instructions => None,
    };
    spread.map_or(String::new(), |spread| {
        let off = |value: f64| (value / spread.median - 1.0) * 100.0;
        format!(" {:+4.0}..{:+.0}%", off(spread.least), off(spread.most))
    })
}

fn failures(row: &RowResult) -> Vec<(String, &str)> {
    row.cells
        .iter()
        .filter_map(|(name, cell)| Some((format!("{name} in {}", row.id), cell.failure.as_deref()?)))
        .collect()
}
