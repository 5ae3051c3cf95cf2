//! ARCHITECTURE.md is a map, and short. What it, the pages in docs/design and docs/decisions and CONTRIBUTING.md name
//! is there: sources, folders, and tests.

use std::collections::BTreeSet;

use poolscope_e2e::{Program, repository};

/// The words of ARCHITECTURE.md at most: a map that fits in the head. What is more belongs into docs/design.
const WORDS: usize = 2500;

fn read(page: &str) -> String {
    std::fs::read_to_string(repository().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// The files below a folder of the repository, as `./FOLDER/FILE`.
fn files(folder: &str) -> Vec<String> {
    let args = [folder, "-name", "target", "-prune", "-o", "-name", ".git", "-prune", "-o", "-type", "f", "-print"];
    let found = Program::new("find").args(args).dir(repository()).run().success().stdout;
    found.lines().map(|file| format!("./{}", file.trim_start_matches("./"))).collect()
}

/// The pages that describe the sources.
fn pages() -> Vec<String> {
    let mut pages = vec!["ARCHITECTURE.md".to_owned(), "CONTRIBUTING.md".to_owned()];
    for folder in ["docs/design", "docs/decisions"] {
        pages.extend(files(folder).into_iter().filter(|file| file.ends_with(".md")));
    }
    assert!(pages.len() > 20, "{pages:?}");
    pages
}

/// What stands between backquotes in a page's text; not in its blocks.
fn quoted(page: &str) -> BTreeSet<String> {
    let text = read(page);
    let mut in_block = false;
    let prose = text.lines().filter(|line| {
        let is_fence = line.starts_with("```");
        in_block ^= is_fence;
        !in_block && !is_fence
    });
    prose.flat_map(|line| line.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// A path of the sources: a file with an ending that ours have, or a folder.
fn is_path(word: &str) -> bool {
    let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c)) && !word.starts_with('/');
    let file = [".rs", ".md", ".toml", ".h", ".hpp", ".sh", ".py", ".c", ".cpp"].iter().any(|end| word.ends_with(end));
    plain && (file || word.ends_with('/'))
}

/// A test's name is a sentence: four words or more.
fn is_test(word: &str) -> bool {
    let plain = word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    plain && !word.starts_with('_') && word.matches('_').count() >= 3
}

#[test]
fn the_map_is_short() {
    let words = read("ARCHITECTURE.md").split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
    assert!(words <= WORDS, "ARCHITECTURE.md has {words} words, and {WORDS} are allowed");
}

#[test]
fn every_path_that_a_page_names_is_there() {
    let files = files(".");
    let mut named = 0;
    for page in pages() {
        for name in quoted(&page).iter().filter(|word| is_path(word)) {
            named += 1;
            let is_it = |file: &String| match name.strip_suffix('/') {
                Some(_) => file.contains(&format!("/{name}")),
                None => file.ends_with(&format!("/{name}")),
            };
            assert!(files.iter().any(is_it), "{page} names {name}, which is not there");
        }
    }
    assert!(named > 150, "{named} paths are named");
}

#[test]
fn every_test_that_a_page_names_is_there() {
    let args = ["-rhoE", "--include=*.rs", "--exclude-dir=target", r"fn [a-z0-9_]+", "."];
    let functions = Program::new("grep").args(args).dir(repository()).run().success().stdout;
    let functions: BTreeSet<&str> = functions.lines().filter_map(|line| line.strip_prefix("fn ")).collect();
    let mut named = 0;
    for page in pages() {
        for name in quoted(&page).iter().filter(|word| is_test(word)) {
            named += 1;
            assert!(functions.contains(name.as_str()), "{page} names {name}, and there is no such function");
        }
    }
    assert!(named > 30, "{named} tests are named");
}
