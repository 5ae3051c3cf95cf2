//! The picture: one panel for each family, a line or a group of bars for each contestant, on a logarithmic scale.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontTransform, TextStyle};
use poolscope_bench::Result;
use poolscope_bench::plot::{Area, Drawn, OURS, colors, legend, letters, svg};
use poolscope_bench::statistics::shown;

use crate::about::{PHASES, Results};

const WIDTH: u32 = 1180;
const PANEL: u32 = 300;
const HEAD: u32 = 80;
/// Names in a line of the legend.
const NAMES: usize = 6;

/// Points of one contestant: where on the axis, and how much.
type Line = (String, Vec<(usize, f64)>);

struct Panel {
    title: &'static str,
    /// Names along the axis.
    places: Vec<String>,
    lines: Vec<Line>,
}

/// The SVG's text.
pub fn render(results: &Results) -> Result<String> {
    let panels = panels(results);
    let lines = panels.len().div_ceil(2);
    let names: Vec<&str> = results.contestants.iter().map(|took| took.name.as_str()).collect();
    let colors = colors(names.iter().map(|name| results.about.ours.as_deref() == Some(name)));
    let title = format!("{}, {} rounds; logarithmic scales", results.about, results.rounds);
    svg((WIDTH, HEAD + lines as u32 * PANEL), &title, |area| {
        let dots: Vec<_> = names.iter().zip(&colors).map(|(name, color)| (*name, *color, 4)).collect();
        legend(area, &dots, NAMES, 150)?;
        let (_, rest) = area.split_vertically(HEAD);
        let places = rest.split_evenly((lines, 2));
        panels.iter().zip(&places).try_for_each(|(panel, place)| draw_panel(&colors, panel, place))
    })
}

fn panels(results: &Results) -> Vec<Panel> {
    let family = |title: &'static str, beginning: &str, figure: &str, factor: f64| {
        let rows: Vec<_> = results.family(beginning).collect();
        let line = |name: &str| {
            let points = rows.iter().enumerate().filter_map(|(at, row)| Some((at, row.get(name, figure)? * factor)));
            (name.to_owned(), points.collect())
        };
        Panel {
            title,
            places: rows.iter().map(|row| row.name().to_owned()).collect(),
            lines: results.contestants.iter().map(|took| line(&took.name)).collect(),
        }
    };
    let phases = |title: &'static str, figure: &str| {
        let row = results.family("phases").next();
        let line = |name: &str| {
            let points = PHASES
                .iter()
                .enumerate()
                .filter_map(|(at, (key, _))| Some((at, row?.get(name, &format!("{key}_{figure}"))?)));
            (name.to_owned(), points.collect())
        };
        Panel {
            title,
            places: PHASES.iter().map(|(_, name)| (*name).to_owned()).collect(),
            lines: results.contestants.iter().map(|took| line(&took.name)).collect(),
        }
    };
    let all = if results.about.is_card() {
        vec![
            family("Hot pair, ns", "pair/", "ns", 1.0),
            family("Threads, all sizes as likely: million pairs/s", "threads/", "mpairs", 1.0),
            family("Threads, each doubling as likely: million pairs/s", "threads-doublings/", "mpairs", 1.0),
            family("Traces, warm: ns an operation", "trace/", "warm_ns", 1.0),
            family("Traces: per cent held that nobody asked for", "trace/", "fragmentation", 100.0),
            phases("Four phases: ns an allocation", "ns"),
        ]
    } else {
        vec![
            family("Traces: per cent held that nobody asked for", "trace/", "fragmentation", 100.0),
            family("Traces, cold: ns an operation that the driver charges", "trace/", "cold_driver_ns", 1.0),
        ]
    };
    all.into_iter().filter(|panel| panel.lines.iter().any(|(_, points)| !points.is_empty())).collect()
}

/// How the names along an axis are written.
struct Names {
    style: TextStyle<'static>,
    /// Pixels that they take below the axis.
    height: u32,
}

/// Pixels of a letter, about.
const LETTER: u32 = 7;

impl Names {
    /// Those of a panel: beside each other if they have room, or else upright.
    fn of(places: &[String], width: u32) -> Names {
        let longest = places.iter().map(|place| place.chars().count() as u32).max().unwrap_or(0) * LETTER;
        if longest * places.len() as u32 <= width {
            return Names { style: letters(12).pos(Pos::new(HPos::Center, VPos::Top)), height: 24 };
        }
        let upright = ("sans-serif", 12).into_font().transform(FontTransform::Rotate270);
        let style = upright.color(&BLACK).pos(Pos::new(HPos::Right, VPos::Center));
        Names { style, height: longest + 12 }
    }
}

fn draw_panel(colors: &[RGBColor], panel: &Panel, area: &Area<'_>) -> Drawn {
    let values =
        || panel.lines.iter().flat_map(|(_, points)| points.iter().map(|(_, value)| *value)).filter(|it| *it > 0.0);
    let (least, most) = (values().fold(f64::MAX, f64::min), values().fold(f64::MIN, f64::max));
    if least > most {
        return Ok(());
    }
    let names = Names::of(&panel.places, area.dim_in_pixel().0);
    let mut chart = ChartBuilder::on(area)
        .caption(panel.title, ("sans-serif", 13))
        .margin(8)
        .x_label_area_size(names.height)
        .y_label_area_size(56)
        .build_cartesian_2d(-0.3..panel.places.len() as f64 - 0.7, (least * 0.7..most * 1.4).log_scale())?;
    chart.configure_mesh().disable_x_mesh().disable_x_axis().y_label_formatter(&|value: &f64| shown(*value)).draw()?;
    let corner = area.get_base_pixel();
    for (at, place) in panel.places.iter().enumerate() {
        let (x, y) = chart.backend_coord(&(at as f64, least * 0.7));
        area.draw(&Text::new(place.clone(), (x - corner.0, y - corner.1 + 6), names.style.clone()))?;
    }
    // Ours last, so that nothing hides it.
    for (at, (_, points)) in panel.lines.iter().enumerate().rev() {
        let color = colors[at];
        let ours = color == OURS;
        let points: Vec<(f64, f64)> =
            points.iter().filter(|(_, value)| *value > 0.0).map(|(place, value)| (*place as f64, *value)).collect();
        chart.draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(if ours { 3 } else { 1 })))?;
        chart.draw_series(points.iter().map(|point| Circle::new(*point, if ours { 4 } else { 3 }, color.filled())))?;
    }
    Ok(())
}
