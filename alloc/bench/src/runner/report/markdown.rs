//! The figures as Markdown.

use std::fmt::Write;

use crate::Result;
use crate::goals;
use crate::peers::Role;
use crate::report::table::shown;
use crate::results::{Figure, Results, RowResult};

/// The page with the figures in place of what lay between the marks; a new page if there is none.
pub fn insert(page: Option<&str>, results: &Results) -> Result<String> {
    poolscope_bench::page::insert(page, &render(results))
}

fn render(results: &Results) -> String {
    let mut text = format!("\n{}; {} rounds.\n\n", results.machine, results.rounds);
    let names = results.allocators.iter().filter(|allocator| allocator.role != Role::SamplingOff);
    let versions: Vec<String> = names.map(|allocator| format!("{} {}", allocator.name, allocator.version)).collect();
    let _ = writeln!(text, "{}.\n", versions.join(", "));

    text.push_str("| goal | limit | | reached |\n|---|---|---|---|\n");
    for goal in goals::all(results) {
        let met = goal.met.map_or("", |met| if met { "met" } else { "**missed**" });
        let _ = writeln!(text, "| {} | {} | {met} | {} |", goal.what, goal.limit, goal.reached);
    }
    let mut rows = results.rows.as_slice();
    while let Some(first) = rows.first() {
        let end = rows.iter().position(|row| row.family != first.family).unwrap_or(rows.len());
        let (family, rest) = rows.split_at(end);
        let _ = writeln!(text, "\n### {}\n", first.family.title());
        for figure in [Figure::Time, Figure::Peak, Figure::Waste, Figure::Instructions] {
            if figure.is_shown(first.family) {
                table(&mut text, results, family, figure);
            }
        }
        rows = rest;
    }
    if let Some(sampling) = &results.sampling {
        let costs: Vec<String> = sampling.rows.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "\n### Sampling on against off\n\n{}.", costs.join(", "));
    }
    text
}

fn table(text: &mut String, results: &Results, rows: &[RowResult], figure: Figure) {
    if rows.iter().all(|row| results.best(row, figure).is_none()) {
        return;
    }
    let family = rows[0].family;
    let names: Vec<&str> = results.allocators.iter().map(|allocator| allocator.name.as_str()).collect();
    let _ = writeln!(text, "{}:\n", figure.unit(family));
    let _ = writeln!(text, "| | {} | to the best peer |", names.join(" | "));
    let _ = writeln!(text, "|---|{}---:|", "---:|".repeat(names.len()));
    for row in rows {
        let _ = write!(text, "| {}", row.id);
        for name in &names {
            let cell = row.cells.get(*name);
            let _ = write!(text, " | {}", cell.map_or_else(String::new, |cell| shown(cell, family, figure)));
        }
        let ratio = results.ratio(row, figure).map_or(String::new(), |ratio| format!("{ratio:.2}"));
        let missed = if goals::missed(results, row, figure).is_some() { " missed" } else { "" };
        let _ = writeln!(text, " | {ratio}{missed} |");
    }
    text.push('\n');
}
