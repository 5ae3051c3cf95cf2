//! What the report shows of the allocators.

use poolscope_bench::report::Report;
use poolscope_bench::results::{Cell, RowResult};
use poolscope_bench::table::{Column, Table};

use crate::catalogue::Family;
use crate::comparison::{self, Figure, Results};
use crate::goals;

/// The width of the rows' names, and of an allocator's column.
const ID: usize = 24;
const COLUMN: usize = 10;
/// Of one row's cost of sampling, of which four stand in a line.
const COST: usize = 42;

/// All families, one after the other: times, then memory, then instructions, as far as there are any.
pub fn report(results: &Results) -> Report {
    let mut tables = Vec::new();
    for rows in results.rows.chunk_by(|one, other| Family::of(&one.id) == Family::of(&other.id)) {
        let family = Family::of(&rows[0].id);
        let shown = Figure::ALL.into_iter().filter(|figure| figure.is_shown(family));
        tables.extend(shown.filter_map(|figure| table(results, rows, family, figure)));
    }
    tables.push(means(results));
    tables.extend(sampling(results));
    Report { tables, notes: Vec::new() }
}

fn columns(results: &Results) -> Vec<Column> {
    results.contestants.iter().map(|allocator| Column::right(allocator.name.clone(), COLUMN)).collect()
}

fn table(results: &Results, rows: &[RowResult], family: Family, figure: Figure) -> Option<Table> {
    let failures: Vec<String> = rows.iter().flat_map(RowResult::failures).collect();
    if rows.iter().all(|row| results.about.best(row, figure).is_none()) && failures.is_empty() {
        return None;
    }
    let line = |row: &RowResult| {
        let cell = |name: &String| row.cells.get(name).map_or_else(String::new, |cell| shown(cell, family, figure));
        let cells = results.contestants.iter().map(|allocator| cell(&allocator.name));
        (row.id.clone(), cells.chain([to_best_peer(results, row, figure)]).collect())
    };
    Some(Table {
        group: family.title().to_owned(),
        title: figure.unit(family),
        columns: columns(results).into_iter().chain([Column::left("to the best peer", 0)]).collect(),
        lines: rows.iter().map(line).collect(),
        names: ID,
        notes: if figure == Figure::Time { failures } else { Vec::new() },
    })
}

/// The ratio, whose it is to, how far the pool's rounds lie from their median in per cent, and the goal if it is
/// missed.
fn to_best_peer(results: &Results, row: &RowResult, figure: Figure) -> String {
    let (Some(ratio), Some((peer, _))) = (results.about.ratio(row, figure), results.about.best_peer(row, figure))
    else {
        return String::new();
    };
    let ours = results.about.ours().and_then(|ours| row.cells.get(ours)?.spread(figure.name()));
    let spread = ours.filter(|_| figure != Figure::Instructions).map_or(String::new(), |spread| {
        let off = |value: f64| (value / spread.median - 1.0) * 100.0;
        format!(" {:+4.0}..{:+.0}%", off(spread.least), off(spread.most))
    });
    let mark = goals::missed(results, row, figure).map_or(String::new(), |limit| format!("  MISSED ({limit})"));
    format!("{ratio:5.2} {peer:<10}{spread}{mark}").trim_end().to_owned()
}

fn means(results: &Results) -> Table {
    let line = |(name, figure): (&str, Figure)| {
        let mean =
            |name: &String| comparison::mean(results, name, figure).map_or("-".to_owned(), |it| format!("{it:.2}"));
        (name.to_owned(), results.contestants.iter().map(|allocator| mean(&allocator.name)).collect())
    };
    Table {
        group: "Geometric mean over all workloads of the ratio to the best one".to_owned(),
        columns: columns(results),
        lines: [("time", Figure::Time), ("memory", Figure::Peak)].map(line).into(),
        names: ID,
        ..Table::default()
    }
}

fn sampling(results: &Results) -> Option<Table> {
    let costs = &results.about.sampling.as_ref()?.rows;
    let line = |costs: &[crate::sampling::RowCost]| -> String {
        costs.iter().map(|cost| format!("{:<COST$}", cost.to_string())).collect::<String>().trim_end().to_owned()
    };
    Some(Table {
        group: "Sampling on against off".to_owned(),
        notes: costs.chunks(4).map(line).collect(),
        ..Table::default()
    })
}

/// The figure in the unit of its table.
fn shown(cell: &Cell, family: Family, figure: Figure) -> String {
    let value = match (cell.median(figure.name()), figure) {
        (None, _) => return if cell.failure.is_some() { "failed" } else { "-" }.to_owned(),
        (Some(nanoseconds), Figure::Time) => nanoseconds / family.unit().1,
        (Some(bytes), Figure::Peak | Figure::Left) => return format!("{:.1}", bytes / f64::from(1 << 20)),
        (Some(part), Figure::Waste) => return format!("{:.1}", part * 100.0),
        (Some(count), Figure::Instructions) => count,
        (Some(ratio), Figure::Mean | Figure::Worst) => ratio,
    };
    match value {
        ..100.0 => format!("{value:.2}"),
        ..1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
