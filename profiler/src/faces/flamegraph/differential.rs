//! Differential flamegraphs: the later profile's widths, coloured by what changed.
//!
//! `inferno` reads folded lines with two counts and draws red what grew and blue what shrank, without saying so; the
//! legend is ours.

use std::collections::BTreeMap;
use std::io::{self, Write};

use inferno::flamegraph::{self, Options};

use crate::faces::flamegraph::{MAX_TOTAL, style, write_empty};
use crate::model::difference::{Difference, totals};
use crate::model::profile::{Metric, Totals};
use crate::words::figures;

/// Writes what changed in one metric as SVG that can be searched and zoomed in a browser.
///
/// Widths are the later profile's: what is gone entirely has no box, and is named in the subtitle. If the later profile
/// is empty, there is a small picture that says so.
pub fn write_differential(
    difference: &Difference<'_>,
    metric: Metric,
    title: &str,
    mut out: impl Write,
) -> io::Result<()> {
    let mut paths: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for path in &difference.paths {
        let (before, after) = (figure(totals(&path.before), metric), figure(totals(&path.after), metric));
        let known = paths.entry(&path.path).or_default();
        known.0 = known.0.saturating_add(before);
        known.1 = known.1.saturating_add(after);
    }
    if paths.values().all(|&(_, after)| after == 0) {
        return write_empty(metric, title, out);
    }
    // `inferno` adds the values up in 64 bits and does not check.
    let largest = MAX_TOTAL / paths.len() as u64;
    let lines: Vec<String> = paths
        .iter()
        .map(|(path, &(before, after))| format!("{path} {} {}", before.min(largest), after.min(largest)))
        .collect();
    let mut options = Options::default();
    options.title = title.to_owned();
    options.subtitle = Some(subtitle(&paths, metric));
    metric.unit().clone_into(&mut options.count_name);
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)?;
    let svg = String::from_utf8(svg).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    out.write_all(style::finished(&svg, &LEGEND, &sentence(metric)).as_bytes())?;
    out.flush()
}

fn figure(totals: Totals, metric: Metric) -> u64 {
    figures::whole(metric.of_totals(&totals))
}

/// `12.0 MiB before, 15.0 MiB after; gone entirely, without a box: 1.00 MiB in 2 paths`.
fn subtitle(paths: &BTreeMap<&str, (u64, u64)>, metric: Metric) -> String {
    let shown = |value: u64| {
        if metric.is_bytes() { figures::bytes(value as f64) } else { figures::grouped(value) }
    };
    let sum = |of: fn(&(u64, u64)) -> u64| paths.values().map(of).fold(0, u64::saturating_add);
    let (before, after) = (sum(|value| value.0), sum(|value| value.1));
    let gone: Vec<u64> = paths.values().filter(|value| value.0 > 0 && value.1 == 0).map(|value| value.0).collect();
    let mut text = format!("{}: {} before, {} after", metric.describe(), shown(before), shown(after));
    if !gone.is_empty() {
        let bytes = gone.iter().fold(0, |sum: u64, value| sum.saturating_add(*value));
        text += &format!("; gone, without a box: {} in {}", shown(bytes), figures::count(gone.len() as u64, "path"));
    }
    text
}

/// What the colours mean: those of `inferno`'s scale for the largest change.
const LEGEND: [(&str, &str); 3] = [
    ("rgb(255,100,100)", "red: more than before"),
    ("rgb(100,100,255)", "blue: less"),
    ("rgb(250,250,250)", "white: the same"),
];

/// What else there is to say of the colours, and of the widths.
fn sentence(metric: Metric) -> String {
    format!("of its own, without its callees; the darker, the more. Width: {} after.", metric.describe())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::profile::Profile;
    use crate::model::testing::profile;

    fn svg(before: &Profile, after: &Profile) -> String {
        let mut out = Vec::new();
        write_differential(&Difference::new(before, after), Metric::InUseBytes, "a < b", &mut out).expect("writes");
        String::from_utf8(out).expect("is text")
    }

    /// The colour of a function's box.
    fn fill<'a>(svg: &'a str, function: &str) -> &'a str {
        let box_of = &svg[svg.find(&format!("<title>{function} ")).unwrap_or_else(|| panic!("{function}: {svg}"))..];
        let colour = &box_of[box_of.find("fill=\"").expect("is filled") + 6..];
        &colour[..colour.find('"').expect("ends")]
    }

    #[test]
    fn what_grew_is_red_what_shrank_is_blue_and_the_legend_says_so() {
        let before = profile(&[("main;grew", 100.0), ("main;shrank", 200.0), ("main;same", 70.0), ("main;gone", 9.0)]);
        let after = profile(&[("main;grew", 200.0), ("main;shrank", 100.0), ("main;same", 70.0)]);
        let svg = svg(&before, &after);
        assert_eq!(fill(&svg, "grew"), "rgb(255,100,100)");
        assert_eq!(fill(&svg, "shrank"), "rgb(100,100,255)");
        assert_eq!(fill(&svg, "same"), "rgb(250,250,250)");
        for text in [
            "a &lt; b",
            "bytes in use: 379 B before, 370 B after; gone, without a box: 9 B in 1 path",
            "red: more than before",
            "blue: less",
            "Width: bytes in use after.",
        ] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
    }

    #[test]
    fn nothing_left_is_a_picture_that_says_so() {
        let svg = svg(&profile(&[("main", 5.0)]), &Profile::default());
        assert!(svg.contains("Nothing to draw"), "{svg}");
    }
}
