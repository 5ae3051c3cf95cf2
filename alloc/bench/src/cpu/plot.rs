//! The picture: a line for each workload, and on it a dot for each allocator, by its ratio to the best one.

use plotters::prelude::*;
use poolscope_bench::Result;
use poolscope_bench::plot::{Area, Drawn, colors, legend, letters, svg};

use crate::comparison::{Figure, Results, Workload, workloads};
use crate::peers::Role;

const LINE: u32 = 15;
const HEAD: u32 = 74;
const FOOT: u32 = 40;
const NAMES: u32 = 140;
const PANEL: u32 = 500;
/// Ratios beyond it are drawn at the edge.
const MOST: f64 = 16.0;

/// The SVG's text.
pub fn render(results: &Results) -> Result<String> {
    let (times, peaks) = (workloads(results, Figure::Time), workloads(results, Figure::Peak));
    // What has memory only stands below what has both.
    let mut names: Vec<&str> = times.iter().map(|workload| workload.name).collect();
    names
        .extend(peaks.iter().map(|workload| workload.name).filter(|name| !times.iter().any(|time| time.name == *name)));
    let size = (NAMES + 2 * PANEL, HEAD + LINE * names.len() as u32 + FOOT);
    let title = format!("Ratio to the best, by workload; {}, {} rounds", results.machine.processor, results.rounds);
    let dots = dots(results);
    svg(size, &title, |area| {
        legend(area, &dots, dots.len().max(1), 98)?;
        for (line, name) in names.iter().enumerate() {
            area.draw(&Text::new((*name).to_owned(), (8, middle(line) - 5), letters(11)))?;
        }
        for (index, (title, workloads)) in
            [("Time", &times), ("Largest resident memory", &peaks)].into_iter().enumerate()
        {
            panel(&dots, &names, title, workloads, area, (NAMES + PANEL * index as u32) as i32)?;
        }
        Ok(())
    })
}

/// Where the line of a workload lies.
fn middle(line: usize) -> i32 {
    (HEAD + LINE * line as u32 + LINE / 2) as i32
}

/// The allocators with the colours and the sizes of their dots.
fn dots(results: &Results) -> Vec<(&str, RGBColor, i32)> {
    let part: Vec<_> =
        results.about.allocators.iter().filter(|allocator| allocator.role != Role::SamplingOff).collect();
    let is_ours = |role: Role| role == Role::Ours;
    let colors = colors(part.iter().map(|allocator| is_ours(allocator.role)));
    let dot = |allocator: &crate::peers::Allocator| if is_ours(allocator.role) { 5 } else { 3 };
    part.iter().zip(colors).map(|(allocator, color)| (allocator.name.as_str(), color, dot(allocator))).collect()
}

fn panel(
    dots: &[(&str, RGBColor, i32)],
    names: &[&str],
    title: &str,
    workloads: &[Workload<'_>],
    area: &Area<'_>,
    left: i32,
) -> Drawn {
    let (from, to) = (left + 12, left + PANEL as i32 - 20);
    let x = |ratio: f64| from + (f64::from(to - from) * ratio.clamp(1.0, MOST).ln() / MOST.ln()) as i32;
    let (top, bottom) = (HEAD as i32, middle(names.len()));
    area.draw(&Text::new(title.to_owned(), (from, top - 20), letters(12)))?;
    for ratio in [1.0, 1.5, 2.0, 4.0, 8.0, MOST] {
        area.draw(&PathElement::new([(x(ratio), top), (x(ratio), bottom)], RGBColor(205, 205, 205)))?;
        let beyond = if ratio == MOST { "≥ " } else { "" };
        area.draw(&Text::new(format!("{beyond}{ratio}"), (x(ratio) - 6, bottom + 6), letters(11)))?;
    }
    for (line, name) in names.iter().enumerate() {
        let y = middle(line);
        area.draw(&PathElement::new([(from, y), (to, y)], RGBColor(235, 235, 235)))?;
        let Some(workload) = workloads.iter().find(|workload| workload.name == *name) else { continue };
        // Ours last, so that nothing hides it.
        for (allocator, color, radius) in dots.iter().rev() {
            if let Some(&ratio) = workload.ratios.get(allocator) {
                area.draw(&Circle::new((x(ratio), y), *radius, color.filled()))?;
            }
        }
    }
    Ok(())
}
