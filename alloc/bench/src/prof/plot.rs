//! The picture: a bar for each tool, by the ratio to glibc on a logarithmic scale.

use plotters::prelude::*;
use poolscope_bench::Result;
use poolscope_bench::plot::{OURS, letters, svg};
use poolscope_bench::results::RowResult;
use poolscope_bench::statistics::Spread;

use crate::about::{BASE, Results};

const LINE: i32 = 16;
const NAMES: i32 = 230;
const WIDTH: i32 = 1000;
const HEAD: i32 = 40;
/// Ratios beyond these are drawn at the edge.
const LEAST: f64 = 0.25;
const MOST: f64 = 64.0;

/// The SVG's text.
pub fn render(results: &Results) -> Result<String> {
    let bars: Vec<(&str, Vec<(&str, Spread)>)> =
        results.rows.iter().map(|row| (row.id.as_str(), ratios(results, row))).collect();
    let lines: i32 = bars.iter().map(|(_, tools)| tools.len() as i32 + 2).sum();
    let height = HEAD + lines * LINE + 10;
    let title = "Time until everything is written, to the same program on glibc without a profiler (logarithmic)";
    let x = |ratio: f64| {
        let part = (ratio.clamp(LEAST, MOST) / LEAST).ln() / (MOST / LEAST).ln();
        NAMES + (part * f64::from(WIDTH - NAMES - 70)) as i32
    };
    svg((WIDTH as u32, height as u32), title, |area| {
        for mark in [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0] {
            let color = if mark == 1.0 { BLACK.mix(0.6) } else { BLACK.mix(0.15) };
            area.draw(&PathElement::new(vec![(x(mark), HEAD), (x(mark), height - 10)], color))?;
            area.draw(&Text::new(format!("{mark}x"), (x(mark) - 8, HEAD - 14), letters(11)))?;
        }
        let mut y = HEAD;
        for (program, tools) in &bars {
            area.draw(&Text::new(*program, (8, y + 2), ("sans-serif", 13).into_font().style(FontStyle::Bold)))?;
            y += LINE;
            for (tool, ratio) in tools {
                let color = if tool.starts_with("poolscope") { OURS } else { RGBColor(86, 140, 190) };
                area.draw(&Text::new(*tool, (24, y + 2), letters(11)))?;
                let (from, to) = (x(1.0).min(x(ratio.median)), x(1.0).max(x(ratio.median)));
                area.draw(&Rectangle::new([(from, y + 3), (to.max(from + 1), y + LINE - 4)], color.filled()))?;
                let middle = y + LINE / 2;
                area.draw(&PathElement::new(vec![(x(ratio.least), middle), (x(ratio.most), middle)], BLACK))?;
                let at = x(ratio.most).max(to) + 5;
                area.draw(&Text::new(format!("{:.2}", ratio.median), (at, y + 2), letters(11)))?;
                y += LINE;
            }
            y += LINE;
        }
        Ok(())
    })
}

fn ratios<'a>(results: &'a Results, row: &RowResult) -> Vec<(&'a str, Spread)> {
    let ratio = |tool: &'a str| Some((tool, row.against(tool, BASE, "seconds", |one, base| one / base)?));
    results.contestants.iter().filter_map(|tool| ratio(&tool.name)).collect()
}
