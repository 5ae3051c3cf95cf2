//! What the report shows of the tools.

use poolscope_bench::report::Report;
use poolscope_bench::results::{Cell, RowResult};
use poolscope_bench::table::{Column, Table};

use crate::about::{BASE, Results};

/// A table for each program.
pub fn report(results: &Results) -> Report {
    let mut notes = Vec::new();
    if let Some(scrape) = &results.about.scrape {
        notes.push(format!("A scrape each second costs {scrape}; {} were answered.", scrape.scrapes));
    }
    Report { tables: results.rows.iter().map(|row| table(results, row)).collect(), notes }
}

fn table(results: &Results, row: &RowResult) -> Table {
    let pairs = results.about.pairs.get(row.id.as_str());
    let pairs = pairs.map_or(String::new(), |pairs| format!(", {:.1} million pairs", *pairs as f64 / 1e6));
    let shown = results.contestants.iter().filter_map(|tool| Some((&tool.name, row.cells.get(&tool.name)?)));
    let line = |(tool, cell): (&String, &Cell)| {
        let cells = [seconds(cell), ratio(row, tool), pair(row, tool), bytes(cell), note(cell).to_owned()];
        (tool.clone(), cells.into())
    };
    Table {
        group: format!("{}{pairs}", row.id),
        columns: vec![
            Column::right("seconds", 9),
            Column::left("to glibc", 26),
            Column::left("ns a pair (more than glibc)", 20),
            Column::right("written", 12),
            Column::left("", 0),
        ],
        lines: shown.filter(|(_, cell)| !cell.figures.is_empty()).map(line).collect(),
        names: 30,
        notes: row.failures().collect(),
        ..Table::default()
    }
}

fn seconds(cell: &Cell) -> String {
    cell.median("seconds").map_or("-".to_owned(), |seconds| format!("{seconds:.3}"))
}

/// `1.93x (1.90 to 2.01)`.
fn ratio(row: &RowResult, tool: &str) -> String {
    row.against(tool, BASE, "seconds", |one, base| one / base)
        .map_or("-".to_owned(), |ratio| format!("{:.2}x ({:.2} to {:.2})", ratio.median, ratio.least, ratio.most))
}

/// What a pair takes of the program's own processor time, and how much that is more than on glibc.
fn pair(row: &RowResult, tool: &str) -> String {
    let Some(ns) = row.get(tool, "processor_ns") else { return String::new() };
    let more = row.against(tool, BASE, "processor_ns", |one, base| one - base).filter(|_| tool != BASE);
    format!("{ns:.1}{}", more.map_or(String::new(), |more| format!(" ({:+.1})", more.median)))
}

/// Bytes that the tool wrote, of the median run.
fn bytes(cell: &Cell) -> String {
    let bytes = cell.median("bytes").filter(|bytes| *bytes > 0.0);
    bytes.map_or(String::new(), |bytes| format!("{:.2} MB", bytes / 1e6))
}

fn note(cell: &Cell) -> &'static str {
    if cell.figures.contains_key("lost") { "events lost, as intended" } else { "" }
}
