//! Two profiles compared, as text.

use std::fmt::Write as _;

use crate::build::site_name::site_text;
use crate::model::difference::{Difference, PathDifference, totals};
use crate::model::profile::{Metric, Profile, Site, Totals};
use crate::words::figures;

/// A path and its figures.
pub(crate) struct Row<'a> {
    pub(crate) path: &'a PathDifference<'a>,
    pub(crate) before: Totals,
    pub(crate) after: Totals,
}

impl Row<'_> {
    /// The later figure without the earlier one.
    pub(crate) fn change(&self, metric: Metric) -> f64 {
        metric.of_totals(&self.after) - metric.of_totals(&self.before)
    }
}

/// The paths, by the size of the change.
pub(crate) fn rows<'a>(difference: &'a Difference<'_>, metric: Metric) -> Vec<Row<'a>> {
    let mut rows: Vec<Row<'a>> = difference
        .paths
        .iter()
        .map(|path| Row { path, before: totals(&path.before), after: totals(&path.after) })
        .collect();
    rows.sort_by(|a, b| b.change(metric).abs().total_cmp(&a.change(metric).abs()).then(a.path.path.cmp(&b.path.path)));
    rows
}

/// A table of the `limit` largest changes.
pub fn difference_text(difference: &Difference<'_>, metric: Metric, limit: usize) -> String {
    let (before, after) = (difference.before.totals(), difference.after.totals());
    let (all_before, all_after) = (metric.of_totals(&before), metric.of_totals(&after));
    let shown = |value: f64| {
        if metric.is_bytes() { figures::bytes(value) } else { figures::grouped(figures::whole(value)) }
    };
    let signed = |value: f64| format!("{}{}", if value < 0.0 { "-" } else { "+" }, shown(value.abs()));
    let mut text = format!(
        "{}: {} before, {} after, {}\n",
        metric.describe(),
        shown(all_before),
        shown(all_after),
        signed(all_after - all_before)
    );
    // pprof's files have whole numbers only.
    let rows: Vec<Row<'_>> =
        rows(difference, metric).into_iter().filter(|row| row.change(metric).abs() >= 0.5).collect();
    if rows.is_empty() {
        text += "No call path changed.\n";
        return text;
    }
    let _ = writeln!(text, "{:>12} {:>12} {:>12}  site < its callers", "change", "before", "after");
    for row in rows.iter().take(limit) {
        let (before, after) = (metric.of_totals(&row.before), metric.of_totals(&row.after));
        let note = if row.path.before.is_empty() {
            " (new)"
        } else if row.path.after.is_empty() {
            " (gone)"
        } else {
            ""
        };
        let _ = writeln!(
            text,
            "{:>12} {:>12} {:>12}  {}{note}",
            signed(row.change(metric)),
            shown(before),
            shown(after),
            shown_path(difference, row.path)
        );
    }
    if rows.len() > limit {
        let _ = writeln!(text, "and {}", figures::count((rows.len() - limit) as u64, "other path"));
    }
    text
}

/// The function that asked for memory and its callers.
fn shown_path(difference: &Difference<'_>, path: &PathDifference<'_>) -> String {
    shown_site(difference, path).map_or_else(String::new, |(profile, site)| site_text(profile, site, CALLERS))
}

/// A site with the path, of the later profile if it has one.
pub(crate) fn shown_site<'a>(
    difference: &'a Difference<'_>,
    path: &PathDifference<'a>,
) -> Option<(&'a Profile, &'a Site)> {
    let of = |profile, sites: &[&'a Site]| sites.first().map(|site| (profile, *site));
    of(difference.after, &path.after).or_else(|| of(difference.before, &path.before))
}

/// Callers of a path in the table: enough to tell paths apart, few enough for a line.
const CALLERS: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faces::json::difference::difference_json;
    use crate::model::testing::profile;

    /// A profile and the file of it, which has whole numbers.
    #[test]
    fn what_differs_by_less_than_a_byte_did_not_change() {
        let (before, after) = (profile(&[("main;same", 70.0)]), profile(&[("main;same", 70.4)]));
        let text = difference_text(&Difference::new(&before, &after), Metric::InUseBytes, 2);
        assert_eq!(text, "bytes in use: 70 B before, 70 B after, +0 B\nNo call path changed.\n");
    }

    #[test]
    fn the_largest_change_comes_first_with_its_sign() {
        let before = profile(&[("main;grew", 1024.0), ("main;gone", 4096.0), ("main;same", 70.0)]);
        let after = profile(&[("main;grew", 3072.0), ("main;deep;er;new", 100.0), ("main;same", 70.0)]);
        let difference = Difference::new(&before, &after);
        assert_eq!(
            difference_text(&difference, Metric::InUseBytes, 2),
            "bytes in use: 5.07 KiB before, 3.17 KiB after, -1.90 KiB\n      \
             change       before        after  site < its callers\n   \
             -4.00 KiB     4.00 KiB          0 B  gone  gone.c:3 < main (gone)\n   \
             +2.00 KiB     1.00 KiB     3.00 KiB  grew  grew.c:1 < main\n\
             and 1 other path\n"
        );
        let json: serde_json::Value =
            serde_json::from_str(&difference_json(&difference).expect("is written")).expect("is JSON");
        assert_eq!(json["sites"].as_array().map(Vec::len), Some(3), "what is the same is left out");
        let new = json["sites"][2]["frames"].as_array().expect("is a list");
        let names: Vec<&str> = new.iter().filter_map(|frame| frame["function"].as_str()).collect();
        assert_eq!((names, &json["sites"][2]["function"]), (vec!["new", "er", "deep", "main"], &"new".into()));
        assert_eq!(json["sites"][0]["after"]["in_use"]["bytes"], 0.0);
    }

    #[test]
    fn equal_profiles_say_so() {
        let one = profile(&[("main", 1024.0)]);
        let text = difference_text(&Difference::new(&one, &one), Metric::AllocatedObjects, 5);
        assert_eq!(text, "objects allocated: 205 before, 205 after, +0\nNo call path changed.\n");
    }
}
