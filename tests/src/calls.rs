//! What a script in a language of its own says of the calls that each of its blocks was allocated in, and what a report
//! has of them.

use std::collections::BTreeMap;

use serde_json::Value;

/// What a script says: the calls of each block by its bytes, names and lines, innermost first.
pub fn said(output: &str) -> BTreeMap<u64, String> {
    let blocks = output.lines().filter_map(|line| line.split_once(' '));
    let blocks = blocks.map(|(bytes, calls)| (bytes.parse().expect("a size"), calls.to_owned()));
    let blocks: BTreeMap<u64, String> = blocks.collect();
    assert!(blocks.len() > 15, "{blocks:?}");
    blocks
}

/// The site that has so many bytes, in use or allocated.
pub fn site_of<'a>(report: &'a Value, what: &str, bytes: u64) -> &'a Value {
    let sites = report["sites"].as_array().expect("has sites");
    let is_it = |site: &&Value| site[what]["bytes"].as_f64() == Some(bytes as f64);
    sites.iter().find(is_it).unwrap_or_else(|| panic!("nobody has {bytes} bytes: {report:#}"))
}

/// Each block's site has the calls that the script says. `call` makes of a frame what the script says of its call, if it
/// is one of the language's.
#[track_caller]
pub fn assert_same(
    report: &Value,
    what: &str,
    said: &BTreeMap<u64, String>,
    call: impl Fn(&Value) -> Option<String> + Copy,
) {
    for (&bytes, expected) in said {
        let site = site_of(report, what, bytes);
        let found: Vec<String> = site["frames"].as_array().expect("has frames").iter().filter_map(call).collect();
        let found = found.join(";");
        // Of the deepest there is as much as there is room for.
        let is_same = match site["incomplete"] == true {
            true => expected.starts_with(&found) && found.matches(';').count() > 100,
            false => found == *expected,
        };
        assert!(is_same, "of {bytes} bytes\nthe script says {expected}\nit was found   {found}");
    }
}
