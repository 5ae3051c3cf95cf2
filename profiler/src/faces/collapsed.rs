//! Collapsed stacks: a line each, `main;parse;grow 4096`, which flamegraph.pl, inferno, speedscope and others read.

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::model::profile::{Metric, Profile};

/// Writes one figure of all call paths, those of one path added up, in the order of their names. What rounds to nothing
/// is left out.
pub fn write_collapsed(profile: &Profile, metric: Metric, mut out: impl Write) -> io::Result<()> {
    let mut paths: BTreeMap<String, f64> = BTreeMap::new();
    for site in &profile.sites {
        // A line is a stack: a name must not end it.
        *paths.entry(profile.path(site).replace(['\n', '\r'], " ")).or_default() += metric.of(site);
    }
    for (path, value) in paths {
        let value = value.round() as i64;
        if value != 0 {
            writeln!(out, "{path} {value}")?;
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing;

    #[test]
    fn a_path_is_a_line_and_equal_paths_are_one() {
        let profile = testing::profile(&[("main;a", 100.4), ("main;b", 0.2), ("main;a", 2.0)]);
        let mut text = Vec::new();
        write_collapsed(&profile, Metric::InUseBytes, &mut text).expect("is written");
        assert_eq!(String::from_utf8(text).expect("is text"), "main;a 102\n");
    }
}
