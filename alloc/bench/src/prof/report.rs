//! The faces of the results: a table for the terminal, a page of Markdown, a picture. Each only reads.

use std::fmt::Write;

use plotters::prelude::*;
use poolscope_bench::Result;
use poolscope_bench::palette::OURS;

use crate::goals;
use crate::results::{Cell, ProgramResult, Results};

/// The tools in the order in which they are shown.
const TOOLS: [&str; 15] = [
    "glibc",
    "poolscope off",
    "poolscope sampling",
    "poolscope record, written away",
    "poolscope record --lossless",
    "heaptrack, written away",
    "heaptrack",
    "jemalloc off",
    "jemalloc prof",
    "tcmalloc off",
    "tcmalloc sampling",
    "gperftools, every allocation",
    "memray",
    "memray --native",
    "valgrind massif",
];

fn shown(program: &ProgramResult) -> impl Iterator<Item = (&'static str, &Cell)> {
    TOOLS.into_iter().filter_map(|tool| Some((tool, program.cells.get(tool)?)))
}

/// `1.93x (1.90 to 2.01)`.
fn ratio(cell: &Cell) -> String {
    cell.to_glibc
        .map_or("-".to_owned(), |ratio| format!("{:.2}x ({:.2} to {:.2})", ratio.median, ratio.least, ratio.most))
}

fn seconds(cell: &Cell) -> String {
    cell.seconds.map_or("-".to_owned(), |seconds| format!("{:.3}", seconds.median))
}

/// What a pair takes of the program's own processor time, and how much that is more than on glibc.
fn pair(results: &Results, program: &str, tool: &str, cell: &Cell) -> String {
    let Some(ns) = cell.processor_ns else { return String::new() };
    let more = results.more(program, tool, "glibc").filter(|_| tool != "glibc");
    format!("{:.1}{}", ns.median, more.map_or(String::new(), |more| format!(" ({:+.1})", more.median)))
}

/// Bytes that the tool wrote, of the median run.
fn bytes(cell: &Cell) -> String {
    let mut all: Vec<u64> = cell.runs.iter().map(|ran| ran.bytes).collect();
    all.sort_unstable();
    match all.get(all.len() / 2) {
        None | Some(0) => String::new(),
        Some(&bytes) => format!("{:.2} MB", bytes as f64 / 1e6),
    }
}

fn note(cell: &Cell) -> &'static str {
    if cell.runs.iter().any(|ran| ran.lost) { "events lost, as intended" } else { "" }
}

pub fn text(results: &Results) -> String {
    let mut text = format!(
        "{}; {} rounds in {:.0} s; load at the start {}\n",
        results.machine, results.rounds, results.seconds, results.load
    );
    for program in &results.programs {
        let _ = writeln!(
            text,
            "\n{:<32}{:>9}  {:<24}{:<20}{:>12}",
            program.name, "seconds", "to glibc", "ns a pair", "written"
        );
        for (tool, cell) in shown(program) {
            let pair = pair(results, program.name, tool, cell);
            let (seconds, ratio, bytes) = (seconds(cell), ratio(cell), bytes(cell));
            let line = format!("  {tool:<30}{seconds:>9}  {ratio:<24}{pair:<20}{bytes:>12}  {}", note(cell));
            let _ = writeln!(text, "{}", line.trim_end());
        }
        for (tool, why) in &program.failures {
            let _ = writeln!(text, "  {tool:<30}{why}");
        }
    }
    text.push_str("\nGoals\n");
    for goal in goals::all(results) {
        let met = goal.met.map_or("-", |met| if met { "met" } else { "MISSED" });
        let _ = writeln!(text, "  {:<52}{:<38}{met:<8}{}", goal.what, goal.limit, goal.reached);
    }
    text
}

pub fn markdown(results: &Results) -> String {
    let mut text = format!(
        "\n{}; {} rounds in {:.0} s. The machine's load when it began was {}.\n\n",
        results.machine, results.rounds, results.seconds, results.load
    );
    text.push_str("| goal | limit | | reached |\n|---|---|---|---|\n");
    for goal in goals::all(results) {
        let met = goal.met.map_or("", |met| if met { "met" } else { "**missed**" });
        let _ = writeln!(text, "| {} | {} | {met} | {} |", goal.what, goal.limit, goal.reached);
    }
    for program in &results.programs {
        let of_pairs =
            program.pairs.map_or(String::new(), |pairs| format!(", {:.1} million pairs", pairs as f64 / 1e6));
        let _ = writeln!(text, "\n### {}{of_pairs}\n", program.name);
        let _ = writeln!(text, "| | seconds | to glibc | ns a pair (more than glibc) | written | |");
        let _ = writeln!(text, "|---|---:|---:|---:|---:|---|");
        for (tool, cell) in shown(program) {
            let pair = pair(results, program.name, tool, cell);
            let (seconds, ratio, bytes) = (seconds(cell), ratio(cell), bytes(cell));
            let _ = writeln!(text, "| {tool} | {seconds} | {ratio} | {pair} | {bytes} | {} |", note(cell));
        }
        for (tool, why) in &program.failures {
            let _ = writeln!(text, "| {tool} | | | | | {why} |");
        }
    }
    text
}

const LINE: i32 = 16;
const NAMES: i32 = 230;
const WIDTH: i32 = 1000;
const HEAD: i32 = 40;
/// Ratios beyond it are drawn at the edge.
const MOST: f64 = 64.0;

/// A bar for each tool, by the ratio to glibc on a logarithmic scale.
pub fn svg(results: &Results) -> Result<String> {
    let mut svg = String::new();
    draw(results, &mut svg).map_err(|error| format!("the picture can't be drawn: {error}"))?;
    Ok(svg)
}

fn draw(results: &Results, svg: &mut String) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let lines: i32 = results.programs.iter().map(|program| shown(program).count() as i32 + 2).sum();
    let height = HEAD + lines * LINE + 10;
    let area = SVGBackend::with_string(svg, (WIDTH as u32, height as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    let font = |size: i32| ("sans-serif", size).into_font().color(&BLACK);
    let title = "Time until everything is written, to the same program on glibc without a profiler (logarithmic)";
    area.draw(&Text::new(title, (8, 8), font(14)))?;
    let least: f64 = 0.25;
    let x = |ratio: f64| {
        let part = (ratio.clamp(least, MOST) / least).ln() / (MOST / least).ln();
        NAMES + (part * f64::from(WIDTH - NAMES - 70)) as i32
    };
    for mark in [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0] {
        let color = if mark == 1.0 { BLACK.mix(0.6) } else { BLACK.mix(0.15) };
        area.draw(&PathElement::new(vec![(x(mark), HEAD), (x(mark), height - 10)], color))?;
        area.draw(&Text::new(format!("{mark}x"), (x(mark) - 8, HEAD - 14), font(11)))?;
    }
    let mut y = HEAD;
    for program in &results.programs {
        area.draw(&Text::new(program.name, (8, y + 2), ("sans-serif", 13).into_font().style(FontStyle::Bold)))?;
        y += LINE;
        for (tool, cell) in shown(program) {
            let Some(ratio) = cell.to_glibc else { continue };
            let color = if tool.starts_with("poolscope") { OURS } else { RGBColor(86, 140, 190) };
            area.draw(&Text::new(tool, (24, y + 2), font(11)))?;
            let (from, to) = (x(1.0).min(x(ratio.median)), x(1.0).max(x(ratio.median)));
            area.draw(&Rectangle::new([(from, y + 3), (to.max(from + 1), y + LINE - 4)], color.filled()))?;
            let middle = y + LINE / 2;
            area.draw(&PathElement::new(vec![(x(ratio.least), middle), (x(ratio.most), middle)], BLACK))?;
            let at = x(ratio.most).max(to) + 5;
            area.draw(&Text::new(format!("{:.2}", ratio.median), (at, y + 2), font(11)))?;
            y += LINE;
        }
        y += LINE;
    }
    area.present()?;
    Ok(())
}
