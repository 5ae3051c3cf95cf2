//! What the report shows of the contestants.

use poolscope_bench::report::Report;
use poolscope_bench::results::RowResult;
use poolscope_bench::statistics::shown;
use poolscope_bench::table::{Column, Table};

use crate::about::{PHASES, Results};

/// The width of the contestants' names.
const NAMES: usize = 18;

/// All tables, and what has to be known to read them.
pub fn report(results: &Results) -> Report {
    Report { tables: tables(results), notes: notes(results) }
}

fn spread(row: &RowResult, contestant: &str, figure: &str, factor: f64, marks: bool) -> String {
    let Some(cell) = row.cells.get(contestant) else { return "-".to_owned() };
    let Some(spread) = cell.spread(figure) else {
        return if cell.failure.is_some() { "failed" } else { "-" }.to_owned();
    };
    let median = shown(spread.median * factor);
    if !marks || spread.count < 2 || spread.median == 0.0 {
        return median;
    }
    let off = |value: f64| (value / spread.median - 1.0) * 100.0;
    format!("{median} ({:+.0}..{:+.0}%)", off(spread.least), off(spread.most))
}

fn table(results: &Results, title: &str, columns: &[(String, &RowResult, String, f64)], marks: bool) -> Option<Table> {
    let lines: Vec<(String, Vec<String>)> = results
        .contestants
        .iter()
        .map(|took| {
            let cells = columns
                .iter()
                .map(|(_, row, figure, factor)| spread(row, &took.name, figure, *factor, marks))
                .collect();
            (took.name.clone(), cells)
        })
        .filter(|(_, cells): &(String, Vec<String>)| cells.iter().any(|cell| cell != "-"))
        .collect();
    let columns: Vec<Column> = columns.iter().map(|(name, ..)| Column::right(name.clone(), 0)).collect();
    let shown = !lines.is_empty() && !columns.is_empty();
    shown.then(|| Table { title: title.to_owned(), columns, lines, names: NAMES, ..Table::default() })
}

fn tables(results: &Results) -> Vec<Table> {
    let mut tables = Vec::new();
    let mut family = |title: &str, beginning: &str, figure: &str, factor: f64, marks: bool| {
        let columns: Vec<_> =
            results.family(beginning).map(|row| (row.name().to_owned(), row, figure.to_owned(), factor)).collect();
        tables.extend(table(results, title, &columns, marks));
    };
    let card = results.about.is_card();
    family("Hot pair, one thread: ns for an allocation and its free", "pair/", "ns", 1.0, true);
    let threads = "Threads, each with a stream and 64 blocks of 256 B to 1 MiB";
    let even = format!("{threads}, all sizes as likely: million pairs/s in all");
    family(&even, "threads/", "mpairs", 1.0, true);
    let doublings = format!("{threads}, each doubling as likely: million pairs/s in all");
    family(&doublings, "threads-doublings/", "mpairs", 1.0, true);
    let first = "The same sizes from the first moment on, 100,000 pairs a thread: million pairs/s in all";
    family(first, "first-moment/", "mpairs", 1.0, true);
    if card {
        family("Traces, second pass: ns an operation", "trace/", "second_ns", 1.0, true);
        family("Traces, warm: ns an operation", "trace/", "warm_ns", 1.0, true);
        family("Traces, cold: ns an operation", "trace/", "cold_ns", 1.0, true);
    }
    family("Traces: 1 - peak live / peak reserved, in per cent", "trace/", "fragmentation", 100.0, false);
    family("Traces: peak reserved in MiB", "trace/", "peak_reserved", 1.0 / f64::from(1 << 20), false);
    family("Traces, cold: calls to the driver in 1,000 operations", "trace/", "cold_calls", 1.0, false);
    family("Traces, warm: calls to the driver in 1,000 operations", "trace/", "warm_calls", 1.0, false);
    family("Traces, cold: ns an operation that an H200's driver charges", "trace/", "cold_driver_ns", 1.0, false);
    family("Traces, second pass: the same", "trace/", "second_driver_ns", 1.0, false);
    family("Traces, warm: ns an operation that an H200's driver charges", "trace/", "warm_driver_ns", 1.0, false);
    let of = if card { "" } else { " that an H200's driver charges" };
    for (figure, which) in [("p50", "half of the operations"), ("p99", "99 of 100"), ("p999", "999 of 1,000")] {
        let title = format!("Three passes from the first moment on, {which}: at most so many us{of}");
        family(&title, "tail/", figure, 1e-3, false);
    }
    family(&format!("The same, the longest operation: us{of}"), "tail/", "longest", 1e-3, false);
    let phases = |figure: &str, factor: f64| -> Vec<(String, &RowResult, String, f64)> {
        let row = results.family("phases").next();
        let columns =
            PHASES.iter().filter_map(|(key, name)| Some(((*name).to_owned(), row?, format!("{key}_{figure}"), factor)));
        columns.collect()
    };
    let first = |figure: &str| {
        let row = results.family("phases").next();
        row.map(|row| vec![("first".to_owned(), row, figure.to_owned(), 1.0)]).unwrap_or_default()
    };
    if card {
        tables.extend(table(results, "Four phases: ns an allocation", &phases("ns", 1.0), true));
        tables.extend(table(results, "The first 21 times: ns an allocation, mean", &first("first_mean_ns"), true));
    }
    let title = "The first 21 times: ns an allocation that an H200's driver charges";
    tables.extend(table(results, title, &first("first_driver_ns"), false));
    let title = "Four phases: ns an allocation that an H200's driver charges";
    tables.extend(table(results, title, &phases("driver_ns", 1.0), false));
    tables.extend(table(results, "Four phases: calls to the driver in 1,000 operations", &phases("calls", 1.0), false));
    let held = results.family("phases").flat_map(|row| {
        [
            ("MiB".to_owned(), row, "peak_reserved".to_owned(), 1.0 / f64::from(1 << 20)),
            ("per cent that nobody asked for".to_owned(), row, "fragmentation".to_owned(), 100.0),
        ]
    });
    tables.extend(table(results, "Four phases: peak reserved", &held.collect::<Vec<_>>(), false));
    tables
}

/// The change of each phase to the first, beside the table of the phases.
fn notes(results: &Results) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(row) = results.family("phases").next().filter(|_| results.about.is_card()) {
        let change = |name: &str, key: &str| Some(format!("{:+.0}%", row.get(name, &format!("{key}_change"))? * 100.0));
        let all = results.contestants.iter().filter_map(|took| {
            Some(format!("{} {} and {}", took.name, change(&took.name, "after_50")?, change(&took.name, "after_150")?))
        });
        notes.push(format!(
            "Four phases, against the baseline of the same turn: {}.",
            all.collect::<Vec<_>>().join(", ")
        ));
    }
    let loops: Vec<f64> =
        results.family("trace/").flat_map(|row| row.cells.values().filter_map(|cell| cell.median("loop_ns"))).collect();
    if let Some(most) = loops.into_iter().reduce(f64::max) {
        notes.push(format!("The replay's own loop is part of every figure: at most {} ns an operation.", shown(most)));
    }
    if results.contestants.iter().any(|took| took.name == "cupy") {
        notes.push(
            "cupy is called from Python, which has no native way to its blocks, and runs one thread at a time."
                .to_owned(),
        );
    }
    notes.extend(results.rows.iter().flat_map(RowResult::failures).map(|failure| format!("{failure}.")));
    notes
}
