//! The picture: a line for each workload, and on it a dot for each allocator, by its ratio to the best one.

use plotters::coord::Shift;
use plotters::prelude::*;
use poolscope_bench::palette::{COLORS, OURS};

use crate::Result;
use crate::peers::Role;
use crate::results::{Figure, Results, Workload};

const LINE: u32 = 15;
const HEAD: u32 = 74;
const FOOT: u32 = 40;
const NAMES: u32 = 140;
const PANEL: u32 = 500;
/// Ratios beyond it are drawn at the edge.
const MOST: f64 = 16.0;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The SVG's text.
pub fn render(results: &Results) -> Result<String> {
    let (times, peaks) = (results.workloads(Figure::Time), results.workloads(Figure::Peak));
    // What has memory only stands below what has both.
    let mut names: Vec<&str> = times.iter().map(|workload| workload.name).collect();
    names
        .extend(peaks.iter().map(|workload| workload.name).filter(|name| !times.iter().any(|time| time.name == *name)));
    let size = (NAMES + 2 * PANEL, HEAD + LINE * names.len() as u32 + FOOT);
    let mut svg = String::new();
    draw(results, &names, [("Time", &times), ("Largest resident memory", &peaks)], &mut svg, size)
        .map_err(|error| format!("the plot can't be drawn: {error}"))?;
    Ok(svg)
}

fn draw(
    results: &Results,
    names: &[&str],
    panels: [(&str, &[Workload<'_>]); 2],
    svg: &mut String,
    size: (u32, u32),
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(svg, size).into_drawing_area();
    area.fill(&WHITE)?;
    legend(results, &area)?;
    let label = ("sans-serif", 11).into_font().color(&BLACK);
    for (line, name) in names.iter().enumerate() {
        area.draw(&Text::new((*name).to_owned(), (8, middle(line) - 5), label.clone()))?;
    }
    for (index, (title, workloads)) in panels.into_iter().enumerate() {
        panel(results, names, title, workloads, &area, (NAMES + PANEL * index as u32) as i32)?;
    }
    area.present()?;
    Ok(())
}

/// Where the line of a workload lies.
fn middle(line: usize) -> i32 {
    (HEAD + LINE * line as u32 + LINE / 2) as i32
}

/// The colour and the size of the allocators' dots.
fn style(results: &Results) -> Vec<(&str, RGBColor, i32)> {
    let mut colors = COLORS.iter().cycle();
    let part = results.allocators.iter().filter(|allocator| allocator.role != Role::SamplingOff);
    part.map(|allocator| match allocator.role {
        Role::Ours => (allocator.name.as_str(), OURS, 5),
        _ => (allocator.name.as_str(), *colors.next().unwrap_or(&BLACK), 3),
    })
    .collect()
}

fn legend(results: &Results, area: &Area<'_>) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let font = ("sans-serif", 12).into_font().color(&BLACK);
    let title = format!("Ratio to the best, by workload; {}, {} rounds", results.machine.processor, results.rounds);
    area.draw(&Text::new(title, (8, 8), ("sans-serif", 14).into_font().color(&BLACK)))?;
    for (index, (name, color, radius)) in style(results).into_iter().enumerate() {
        let x = 14 + 98 * index as i32;
        area.draw(&Circle::new((x, 38), radius, color.filled()))?;
        area.draw(&Text::new(name.to_owned(), (x + 9, 32), font.clone()))?;
    }
    Ok(())
}

fn panel(
    results: &Results,
    names: &[&str],
    title: &str,
    workloads: &[Workload<'_>],
    area: &Area<'_>,
    left: i32,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let font = ("sans-serif", 11).into_font().color(&BLACK);
    let (from, to) = (left + 12, left + PANEL as i32 - 20);
    let x = |ratio: f64| from + (f64::from(to - from) * ratio.clamp(1.0, MOST).ln() / MOST.ln()) as i32;
    let (top, bottom) = (HEAD as i32, middle(names.len()));
    area.draw(&Text::new(title.to_owned(), (from, top - 20), ("sans-serif", 12).into_font().color(&BLACK)))?;
    for ratio in [1.0, 1.5, 2.0, 4.0, 8.0, MOST] {
        area.draw(&PathElement::new([(x(ratio), top), (x(ratio), bottom)], RGBColor(205, 205, 205)))?;
        let beyond = if ratio == MOST { "≥ " } else { "" };
        area.draw(&Text::new(format!("{beyond}{ratio}"), (x(ratio) - 6, bottom + 6), font.clone()))?;
    }
    for (line, name) in names.iter().enumerate() {
        let y = middle(line);
        area.draw(&PathElement::new([(from, y), (to, y)], RGBColor(235, 235, 235)))?;
        let Some(workload) = workloads.iter().find(|workload| workload.name == *name) else { continue };
        // Ours last, so that nothing hides it.
        for (allocator, color, radius) in style(results).into_iter().rev() {
            if let Some(&ratio) = workload.ratios.get(allocator) {
                area.draw(&Circle::new((x(ratio), y), radius, color.filled()))?;
            }
        }
    }
    Ok(())
}
