//! The charts of the page, which are drawn as SVG.

use std::fmt::Write as _;

use crate::recording::faces::labels::time;
use crate::recording::replay::analysis::MemoryFigures;
use crate::words::figures::{bytes, count, grouped};
use crate::words::markup::escaped;

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 200.0;
const LEFT: f64 = 80.0;
const BOTTOM: f64 = 24.0;

/// The frame of a chart, with its scales.
fn axes(most: &str, duration_us: u64) -> String {
    let (right, low) = (LEFT + WIDTH, HEIGHT);
    let mut text = format!(
        "<path class=\"axis\" d=\"M{LEFT} 0V{low}H{right}\"/><text x=\"{x}\" y=\"12\" class=\"end\">{}</text>\
         <text x=\"{x}\" y=\"{low}\" class=\"end\">0</text>",
        escaped(most),
        x = LEFT - 6.0
    );
    for quarter in 0..=4u64 {
        let x = LEFT + WIDTH * quarter as f64 / 4.0;
        let _ = write!(
            text,
            "<path class=\"grid\" d=\"M{x} 0V{low}\"/><text x=\"{x}\" y=\"{}\" class=\"mid\">{}</text>",
            low + 16.0,
            time(duration_us / 4 * quarter)
        );
    }
    text
}

fn chart(body: &str) -> String {
    format!("<svg viewBox=\"0 0 {} {}\" role=\"img\">{body}</svg>\n", LEFT + WIDTH + 40.0, HEIGHT + BOTTOM)
}

fn area(values: &[u64], most: u64, class: &str) -> String {
    let step = WIDTH / values.len().max(1) as f64;
    let mut path = format!("M{LEFT} {HEIGHT}");
    for (at, &value) in values.iter().enumerate() {
        let y = HEIGHT - HEIGHT * value as f64 / most.max(1) as f64;
        let x = LEFT + step * at as f64;
        let _ = write!(path, "L{x:.1} {y:.1}L{:.1} {y:.1}", x + step);
    }
    let _ = write!(path, "V{HEIGHT}Z");
    format!("<path class=\"{class}\" d=\"{path}\"/>")
}

/// Invisible columns that say what is under the pointer.
fn tips(memory: &MemoryFigures, tip: impl Fn(usize) -> String) -> String {
    let spans = memory.timeline.len();
    let step = WIDTH / spans.max(1) as f64;
    let mut text = String::new();
    for at in 0..spans {
        let _ = write!(
            text,
            "<rect class=\"tip\" x=\"{:.1}\" y=\"0\" width=\"{step:.2}\" height=\"{HEIGHT}\"><title>{}</title></rect>",
            LEFT + step * at as f64,
            escaped(&tip(at))
        );
    }
    text
}

fn duration(memory: &MemoryFigures) -> u64 {
    memory.span_us.saturating_mul(memory.timeline.len() as u64)
}

/// What was in use over time, with the peak.
pub(super) fn timeline(memory: &MemoryFigures) -> String {
    let values: Vec<u64> = memory.timeline.iter().map(|span| span.most_bytes).collect();
    let most = values.iter().copied().max().unwrap_or(0);
    let mut body = axes(&bytes(most as f64), duration(memory));
    body += &area(&values, most, "bytes");
    let x = LEFT + WIDTH * memory.peak.time_us as f64 / duration(memory).max(1) as f64;
    let _ = write!(body, "<path class=\"peak\" d=\"M{x:.1} 0V{HEIGHT}\"/>");
    body += &tips(memory, |at| {
        let span = &memory.timeline[at];
        let blocks = count(span.most_objects, "block");
        format!("{}: {} in {blocks}", time(memory.span_us * at as u64), bytes(span.most_bytes as f64))
    });
    chart(&body)
}

/// Allocations a second over time.
pub(super) fn rates(memory: &MemoryFigures) -> String {
    let per_second = |events: u64| (events as f64 * 1e6 / memory.span_us.max(1) as f64) as u64;
    let allocs: Vec<u64> = memory.timeline.iter().map(|span| per_second(span.allocs)).collect();
    let most = allocs.iter().copied().max().unwrap_or(0);
    let mut body = axes(&format!("{}/s", grouped(most)), duration(memory));
    body += &area(&allocs, most, "rate");
    body += &tips(memory, |at| {
        let span = &memory.timeline[at];
        let (allocs, frees) = (count(span.allocs, "allocation"), count(span.frees, "free"));
        format!("{}: {allocs}, {frees} in {}", time(memory.span_us * at as u64), time(memory.span_us))
    });
    chart(&body)
}

/// How many pages are how full, by tenths.
pub(super) fn tenths(tenths: &[u64]) -> String {
    let most = tenths.iter().copied().max().unwrap_or(0);
    let step = WIDTH / 10.0;
    let mut body = format!("<path class=\"axis\" d=\"M{LEFT} 0V{HEIGHT}H{}\"/>", LEFT + WIDTH);
    for (at, &tenth) in tenths.iter().enumerate() {
        let height = HEIGHT * tenth as f64 / most.max(1) as f64;
        let x = LEFT + step * at as f64;
        let _ = write!(
            body,
            "<rect class=\"bar\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\"><title>{}</title></rect>\
             <text x=\"{:.1}\" y=\"{}\" class=\"mid\">{}-{}%</text>",
            x + 4.0,
            HEIGHT - height,
            step - 8.0,
            count(tenth, "page"),
            x + step / 2.0,
            HEIGHT + 16.0,
            at * 10,
            at * 10 + 10
        );
    }
    let _ = write!(body, "<text x=\"{}\" y=\"12\" class=\"end\">{}</text>", LEFT - 6.0, grouped(most));
    chart(&body)
}
