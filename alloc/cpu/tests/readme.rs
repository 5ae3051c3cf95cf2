//! The README's table of settings is the pool's.

use std::fmt::Write;
use std::path::PathBuf;

use poolscope_cpu::settings::{COMMAND_VARIABLES, Change, SETTINGS};

const HEAD: &str = "| variable | takes | default | changes | what |\n|---|---|---|---|---|\n";

fn table() -> String {
    let mut table = HEAD.to_owned();
    for setting in &SETTINGS {
        let name = setting.variable.to_str().unwrap();
        let default = setting.range.show(setting.default);
        let changes = match setting.change {
            Change::AtStart => "at the start",
            Change::Anytime => "at any time",
        };
        writeln!(table, "| `{name}` | {} | `{default}` | {changes} | {} |", setting.range, setting.help).unwrap();
    }
    for (name, takes, help) in COMMAND_VARIABLES {
        writeln!(table, "| `{name}` | {takes} | | | {help} |").unwrap();
    }
    table
}

/// The README, and where in it the table lies.
fn readme() -> (PathBuf, String, std::ops::Range<usize>) {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md"));
    let page = std::fs::read_to_string(&path).unwrap();
    let start = page.find("| variable |").expect("the README has a table of settings");
    let end = start + page[start..].find("\n\n").expect("something follows the table") + 1;
    (path, page, start..end)
}

#[test]
fn the_readme_has_the_table_of_settings() {
    let (_, page, place) = readme();
    assert!(
        page[place] == table(),
        "README.md is behind the settings. Write its table anew:\n\
         cargo test -p poolscope-cpu --test readme -- --ignored"
    );
}

#[test]
#[ignore = "writes README.md"]
fn write_the_table_into_the_readme() {
    let (path, mut page, place) = readme();
    page.replace_range(place, &table());
    std::fs::write(path, page).unwrap();
}
