//! The guide's and the header's lists of the settings of device pools are the table's.

use std::fmt::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

use poolscope_gpu::{Change, Config, Pool, PoolError, SETTINGS, Simulated};

/// Columns of a comment in the header.
const WIDTH: usize = 120;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn changes(change: Change) -> &'static str {
    match change {
        Change::WhenMade => "when the pool is made",
        Change::Anytime => "at any time",
    }
}

fn table() -> String {
    let mut table = "| variable | takes | default | changes | what |\n|---|---|---|---|---|\n".to_owned();
    for setting in &SETTINGS {
        let default = setting.range.show(setting.default);
        let (variable, range, help) = (setting.variable, &setting.range, setting.help);
        writeln!(table, "| `{variable}` | {range} | `{default}` | {} | {help} |", changes(setting.change)).unwrap();
    }
    table
}

fn comment() -> String {
    let mut comment = String::new();
    for setting in &SETTINGS {
        let default = setting.range.show(setting.default);
        let when = if setting.change == Change::Anytime { "" } else { " Decided when the pool is made." };
        let words = format!("\"{}\", {}; {default}. {}{when}", setting.name, setting.range, setting.help);
        let mut line = " *".to_owned();
        for word in words.split(' ') {
            if line.len() + 1 + word.len() > WIDTH {
                writeln!(comment, "{line}").unwrap();
                line = " *    ".to_owned();
            }
            line += " ";
            line += word;
        }
        writeln!(comment, "{line}").unwrap();
    }
    comment
}

/// A file, its text, where in it the list lies, and what that should be.
fn lists() -> [(PathBuf, String, Range<usize>, String); 2] {
    let place = |path: &str, after: &str, until: &str| {
        let path = repository().join(path);
        let text = std::fs::read_to_string(&path).unwrap();
        let start = text.find(after).unwrap_or_else(|| panic!("{after}")) + after.len();
        let end = start + text[start..].find(until).expect("the list ends");
        (path, text, start..end)
    };
    let (guide, page, table_place) = place("docs/guide/settings.md", "## Device pools\n\n", "\n\n");
    let (header, text, comment_place) = place(
        "alloc/plugin/include/poolscope_gpu.h",
        " * The settings, what they take, and their defaults:\n *\n",
        " */",
    );
    [(guide, page, table_place.start..table_place.end + 1, table()), (header, text, comment_place, comment())]
}

#[test]
fn the_guide_and_the_header_list_the_settings() {
    for (path, text, place, wanted) in lists() {
        assert!(
            text[place] == wanted,
            "{} is behind the settings. Write its list anew:\n\
             cargo test -p poolscope-gpu --test settings -- --ignored",
            path.display()
        );
    }
}

#[test]
#[ignore = "writes docs/guide/settings.md and poolscope_gpu.h"]
fn write_the_lists() {
    for (path, mut text, place, wanted) in lists() {
        text.replace_range(place, &wanted);
        std::fs::write(path, text).unwrap();
    }
}

#[test]
fn a_pool_refuses_settings_that_it_does_not_take_and_keeps_its_own() {
    let pool = Pool::new(std::sync::Arc::new(Simulated::new(64 << 20)), Config::default()).unwrap();
    for config in [
        Config { alignment: 100, ..Config::default() },
        Config { batch_alloc_count: 0, ..Config::default() },
        Config { defrag_threshold: f64::NAN, ..Config::default() },
        Config { defrag_interval_ms: 0, ..Config::default() },
    ] {
        assert!(matches!(pool.set_config(config), Err(PoolError::Config(_))));
    }
    assert_eq!(pool.config(), Config::default());
}
