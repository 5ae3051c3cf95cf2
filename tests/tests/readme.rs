//! What README.md and the guides say is so: their commands run as they are written, the costs are the benchmark's, and
//! links lead somewhere.
//!
//! A block of the language `sh` under the line `<!-- test -->` runs. The blocks of a page run in its order, in one
//! shell that stops at the first command that fails, in the root of the repository. Variables and functions last from
//! block to block, as they do for a reader who pastes them into a terminal. A guide begins after the README's block
//! under `<!-- test: setup -->`.

use std::collections::{BTreeMap, BTreeSet};

use poolscope_e2e::{Program, Scratch, artifacts, repository};

const README: &str = "README.md";

fn read(page: &str) -> String {
    std::fs::read_to_string(repository().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// A block of a page that runs.
struct Block {
    /// The line that it begins on.
    line: usize,
    is_setup: bool,
    text: String,
}

/// The marked blocks of a page. Others of the language `sh` would be commands that nobody tries.
fn marked_blocks(page: &str) -> Vec<Block> {
    let text = read(page);
    let lines: Vec<&str> = text.lines().collect();
    let mut blocks = Vec::new();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| **line == "```sh") {
        let mark = if at == 0 { "" } else { lines[at - 1] };
        let is_setup = mark == "<!-- test: setup -->";
        assert!(is_setup || mark == "<!-- test -->", "{page}:{}: {line} without a mark above it", at + 1);
        let body = lines[at + 1..].iter().take_while(|line| **line != "```");
        blocks.push(Block { line: at + 2, is_setup, text: body.map(|line| format!("{line}\n")).collect() });
    }
    assert_eq!(blocks.len(), text.matches("<!-- test").count(), "{page} has a mark without a block ```sh under it");
    blocks
}

/// Runs the marked blocks of a page.
fn run(page: &str) {
    // What a page leaves running in the background ends with it.
    let mut script = "set -eu -o pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n".to_owned();
    let mut add = |page: &str, blocks: &[Block]| {
        for Block { line, text, .. } in blocks {
            script += &format!("echo \"== {page}:{line}\" >&2\n{text}");
        }
    };
    if page != README {
        add(README, &marked_blocks(README).into_iter().filter(|block| block.is_setup).collect::<Vec<_>>());
    }
    add(page, &marked_blocks(page));

    // `make demo` and the like must find what is built already, and leave nothing in the repository.
    let (scratch, segments) = (Scratch::new(), Scratch::in_shared_memory());
    let target = artifacts::release();
    let output = Program::new("bash")
        .arg(scratch.write("page.sh", &script))
        .dir(repository())
        .env("TMPDIR", scratch.path())
        // `poolscope gc` on a page must not remove what the reader's own programs left.
        .env("POOLSCOPE_DIR", segments.path())
        .env("CARGO_TARGET_DIR", target.parent().expect("the release folder lies in the target folder"))
        .limit(300)
        .run();
    assert_eq!(output.code(), 0, "{}", output.report());
}

macro_rules! pages_that_run {
    ($($test:ident: $page:literal,)*) => {
        /// The pages whose commands run.
        const PAGES: &[&str] = &[$($page),*];
        $(
            #[test]
            fn $test() {
                run($page);
            }
        )*
    };
}

pages_that_run! {
    the_commands_of_the_guide_to_installing_run_as_written: "docs/guide/installing.md",
    the_commands_of_the_readme_run_as_written: "README.md",
    the_commands_of_the_dashboards_guide_run_as_written: "docs/guide/dashboard.md",
    the_commands_of_the_guide_to_profiles_run_as_written: "docs/guide/profiles.md",
    the_commands_of_the_guide_to_http_run_as_written: "docs/guide/http.md",
    the_commands_of_the_guide_to_recordings_run_as_written: "docs/guide/recordings.md",
    the_commands_of_the_guide_to_leaks_run_as_written: "docs/guide/leaks.md",
    the_commands_of_the_guide_to_dead_processes_run_as_written: "docs/guide/dead-processes.md",
    the_commands_of_the_guide_to_embedding_run_as_written: "docs/guide/embedding.md",
    the_commands_of_the_guide_to_device_memory_run_as_written: "docs/guide/device-memory.md",
    the_commands_of_the_guide_to_tensors_run_as_written: "docs/guide/tensors.md",
}

/// The Markdown files of a folder of the repository, by their paths from the root.
fn pages_in(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(repository().join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("the name is text"));
    names.filter(|name| name.ends_with(".md")).map(|name| format!("{folder}{name}")).collect()
}

#[test]
fn every_guide_with_commands_runs_and_the_readme_links_it() {
    let guides = pages_in("docs/guide/");
    assert!(guides.len() >= 10, "{guides:?}");
    let readme = read(README);
    for guide in &guides {
        assert!(readme.contains(&format!("({guide})")), "README.md does not link {guide}");
        let is_run = PAGES.contains(&guide.as_str());
        assert_eq!(is_run, !marked_blocks(guide).is_empty(), "{guide}: pages_that_run! has the pages with commands");
    }
}

/// Pages run side by side.
#[test]
fn no_two_pages_write_the_same_file() {
    let mut of_page = BTreeMap::new();
    for page in PAGES {
        for block in marked_blocks(page) {
            for rest in block.text.split("out/").skip(1) {
                let name: String =
                    rest.chars().take_while(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c)).collect();
                let other = *of_page.entry(name.clone()).or_insert(page);
                assert_eq!(other, page, "both write out/{name}");
            }
        }
    }
    assert!(of_page.len() > 10, "{of_page:?}");
}

/// Two screens.
#[test]
fn the_readme_is_short() {
    let lines = read(README).lines().count();
    assert!(lines <= 120, "README.md has {lines} lines: what is more belongs into a guide");
}

/// A command that no page names is one that nobody finds.
#[test]
fn the_readme_names_every_command() {
    let help = Program::new(artifacts::poolscope()).arg("--help").run().silent_success().stdout;
    let commands = help.split_once("Commands:\n").expect("a list").1.split_once("\n\n").expect("an end").0;
    // What is indented further goes on with the line above.
    let names = commands.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let names: BTreeSet<&str> = names.filter(|name| !["", "help"].contains(name)).collect();
    assert!(names.len() > 10, "{names:?}");
    let readme = read(README);
    let guides = readme.split_once("\n## Guides\n").expect("the list of guides").1;
    for name in names {
        assert!(guides.contains(&format!("`{name}`")), "the README's list of guides has no `{name}`");
    }
}

/// The rows of the first table below a heading, by their cells. What follows a comma in the heading does not count.
fn table(page: &str, heading: &str) -> Vec<Vec<String>> {
    let rows = page.lines().skip_while(|line| line.split(',').next() != Some(heading));
    let rows = rows.skip_while(|line| !line.starts_with('|'));
    let rows = rows.take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// The README's table of costs as it is, and as the benchmark's figures have it.
fn costs() -> (String, String) {
    let (readme, figures) = (read(README), read("docs/benchmarks-profiler.md"));
    let costs = table(&readme, "## What it costs");
    let (head, rows) = (&costs[0], &costs[2..]);
    assert!(rows.len() > 3 && head.len() > 3, "{costs:?}");
    let (mut is, mut should_be) = (String::new(), String::new());
    for row in rows {
        let measured = head[2..].iter().map(|program| {
            let measured = table(&figures, &format!("### {program}"));
            let of_tool = measured.into_iter().find(|measured| measured[0] == row[0]);
            of_tool.map_or(String::new(), |measured| measured[2].split(' ').next().unwrap_or_default().to_owned())
        });
        let line =
            |cells: &[String]| format!("| {} |\n", cells.join(" | ")).replace("|  |", "| |").replace("|  |", "| |");
        is += &line(row);
        should_be += &line(&row[..2].iter().cloned().chain(measured).collect::<Vec<_>>());
    }
    (is, should_be)
}

#[test]
fn the_costs_in_the_readme_are_those_of_the_benchmark() {
    let (is, should_be) = costs();
    assert!(
        is == should_be,
        "docs/benchmarks-profiler.md has other figures. Write the README's table anew:\n\
         cargo test -p poolscope-e2e --test readme -- --ignored\n{should_be}"
    );
}

#[test]
#[ignore = "writes README.md"]
fn write_the_costs_into_the_readme() {
    let (is, should_be) = costs();
    let readme = read(README);
    assert!(readme.contains(&is), "the table is not written as it would be: {is}");
    std::fs::write(repository().join(README), readme.replace(&is, &should_be)).expect("README.md is written");
}

/// The anchor of a heading, as Markdown renderers make it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// Every link to a file of the repository, or to a heading in one, leads somewhere.
#[test]
fn the_links_lead_somewhere() {
    let pages: Vec<String> =
        ["", "docs/", "docs/guide/", "docs/design/", "docs/decisions/"].into_iter().flat_map(pages_in).collect();
    assert!(pages.iter().any(|page| page == README) && pages.len() > 10, "{pages:?}");
    for name in &pages {
        let page = read(name);
        let folder = repository().join(name).parent().expect("it lies in a folder").to_owned();
        for link in page.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            if file.contains("://") {
                continue;
            }
            let path = if file.is_empty() { repository().join(name) } else { folder.join(file) };
            assert!(path.exists(), "{name} links {file}");
            if !heading.is_empty() {
                let target = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}, {link}: {error}"));
                let mut headings = target.lines().filter(|line| line.starts_with('#'));
                let is_there = headings.any(|line| anchor(line.trim_start_matches('#').trim()) == heading);
                assert!(is_there, "{name} links {link}, and there is no such heading");
            }
        }
    }
}
