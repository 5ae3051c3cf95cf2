//! Flamegraphs: folded lines, and the SVG that `inferno` draws from them.

mod colours;
pub mod differential;
mod style;

use std::collections::BTreeMap;
use std::io::{self, Write};

use inferno::flamegraph::{self, Options};

use crate::model::profile::{Metric, Profile};
use crate::words::figures;
use crate::words::markup::{escaped, filled};

/// The most that a picture's values may add up to: an exbibyte.
pub(crate) const MAX_TOTAL: u64 = 1 << 60;

/// Writes a flamegraph as SVG that can be searched and zoomed in a browser.
///
/// A profile in which the metric is 0 everywhere gives a small picture that says so.
pub fn write_flamegraph(profile: &Profile, metric: Metric, title: &str, out: impl Write) -> io::Result<()> {
    write_paths(profile, &paths(profile, metric), metric, title, out)
}

/// The same of a part of a profile, or of its functions in another order: paths `main;parse;read`, each with its value.
pub fn write_paths(
    profile: &Profile,
    paths: &[(String, u64)],
    metric: Metric,
    title: &str,
    mut out: impl Write,
) -> io::Result<()> {
    if paths.is_empty() {
        return write_empty(metric, title, out);
    }
    // `inferno` adds the values up in 64 bits and does not check; a damaged segment may hold anything.
    let largest = MAX_TOTAL / paths.len() as u64;
    let lines: Vec<String> = paths.iter().map(|(path, value)| line(path, (*value).min(largest))).collect();
    let mut options = Options::default();
    options.title = title.to_owned();
    let total: f64 = paths.iter().map(|(_, value)| *value as f64).sum();
    options.subtitle = Some(subtitle(profile, metric, total));
    metric.unit().clone_into(&mut options.count_name);
    // The same function has the same colour in every picture.
    options.hash = true;
    let mut palette = colours::palette(profile);
    options.palette_map = Some(&mut palette);
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)?;
    let svg = String::from_utf8(svg).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    out.write_all(style::finished(&svg, &colours::LEGEND, "").as_bytes())?;
    out.flush()
}

/// The profile as folded lines, `main;parse;read 4096`: outermost function first, sorted, each path once.
pub fn folded(profile: &Profile, metric: Metric) -> Vec<String> {
    paths(profile, metric).iter().map(|(path, value)| line(path, *value)).collect()
}

fn line(path: &str, value: u64) -> String {
    format!("{path} {value}")
}

fn paths(profile: &Profile, metric: Metric) -> Vec<(String, u64)> {
    let mut paths: BTreeMap<String, f64> = BTreeMap::new();
    for site in &profile.sites {
        let value = metric.of(site);
        if value > 0.0 {
            *paths.entry(profile.path(site)).or_default() += value;
        }
    }
    let whole = paths.into_iter().map(|(path, value)| (path, figures::whole(value)));
    whole.filter(|&(_, value)| value > 0).collect()
}

fn subtitle(profile: &Profile, metric: Metric, total: f64) -> String {
    let total = if metric.is_bytes() { figures::bytes(total) } else { figures::grouped(figures::whole(total)) };
    let source = if profile.exact {
        "exact".to_owned()
    } else {
        format!("estimated from samples, one in {} on average", figures::bytes(profile.period_bytes as f64))
    };
    format!("{}: {total} ({source})", metric.describe())
}

/// The picture of nothing.
const EMPTY: &str = include_str!("empty.svg");

pub(crate) fn write_empty(metric: Metric, title: &str, mut out: impl Write) -> io::Result<()> {
    let svg = filled(EMPTY, &[("title", &escaped(title)), ("what", metric.describe())]);
    out.write_all(svg.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing;

    fn svg(profile: &Profile, title: &str) -> String {
        let mut out = Vec::new();
        write_flamegraph(profile, Metric::InUseBytes, title, &mut out).expect("writes");
        String::from_utf8(out).expect("is text")
    }

    #[test]
    fn equal_paths_are_added_and_semicolons_do_not_split_names() {
        let profile = testing::profile(&[("main;a", 100.0), ("main;b", 7.0), ("main;a", 50.4)]);
        assert_eq!(folded(&profile, Metric::InUseBytes), ["main;a 150", "main;b 7"]);
        assert_eq!(folded(&profile, Metric::AllocatedObjects), ["main;a 30", "main;b 1"]);
        let mut profile = testing::profile(&[("f", 1.0)]);
        std::sync::Arc::make_mut(&mut profile.locations)[0].frames[0].name = "a;b c".to_owned();
        assert_eq!(folded(&profile, Metric::InUseBytes), ["a:b c 1"]);
    }

    #[test]
    fn a_flamegraph_names_the_functions_and_escapes_them() {
        let svg = svg(&testing::profile(&[("main;Vec<u8>::push", 100.0)]), "a <b> & c");
        assert!(svg.contains("Vec&lt;u8&gt;::push"), "{svg}");
        assert!(svg.contains("a &lt;b&gt; &amp; c"), "{svg}");
        assert!(svg.contains("bytes in use: 100 B"), "{svg}");
    }

    #[test]
    fn impossible_values_are_drawn_too() {
        svg(&testing::profile(&[("a", f64::MAX), ("b", 1e19), ("c", f64::INFINITY), ("d", f64::NAN)]), "huge");
    }

    #[test]
    fn an_empty_profile_is_a_picture_that_says_so() {
        let svg = svg(&Profile::default(), "heap of <x>");
        assert!(svg.contains("Nothing to draw: the profile holds no bytes in use."), "{svg}");
        assert!(svg.contains("heap of &lt;x&gt;"), "{svg}");
    }
}
