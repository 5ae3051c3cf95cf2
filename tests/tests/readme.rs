//! The commands in README.md run as they are written.
//!
//! A block of the language `sh` under the line `<!-- test -->` runs; the blocks run in the order of the page, in one
//! shell that stops at the first command that fails, in the root of the repository. Variables and functions last from
//! block to block, as they do for a reader who pastes them into a terminal.

use poolscope_e2e::{Program, Scratch, artifacts, repository};

/// The text of each marked block, with the line it begins on.
fn marked_blocks(page: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = page.lines().collect();
    let mut blocks = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if line.trim() == "<!-- test -->" {
            assert_eq!(lines.get(at + 1).copied(), Some("```sh"), "line {}: no ```sh under the mark", at + 1);
            let body = lines[at + 2..].iter().take_while(|line| **line != "```");
            blocks.push((at + 3, body.map(|line| format!("{line}\n")).collect()));
        }
    }
    blocks
}

#[test]
fn the_commands_run_as_written() {
    let page = std::fs::read_to_string(repository().join("README.md")).expect("README.md is there");
    let blocks = marked_blocks(&page);
    assert!(blocks.len() >= 4, "the two commands and the three uses are {} marked blocks", blocks.len());

    // `make demo` and the like must find what is built already, and leave nothing in the repository.
    let (scratch, segments) = (Scratch::new(), Scratch::in_shared_memory());
    let mut script = "set -eu -o pipefail\n".to_owned();
    for (line, block) in blocks {
        script += &format!("echo \"== README.md:{line}\" >&2\n{block}");
    }
    let target = artifacts::release();
    let output = Program::new("bash")
        .arg(scratch.write("readme.sh", &script))
        .dir(repository())
        .env("TMPDIR", scratch.path())
        // `poolscope gc` on the page must not remove what the reader's own programs left.
        .env("POOLSCOPE_DIR", segments.path())
        .env("CARGO_TARGET_DIR", target.parent().expect("the release folder lies in the target folder"))
        .limit(300)
        .run();
    assert_eq!(output.code(), 0, "{}", output.report());
}

/// Every link to a file of the repository leads somewhere.
#[test]
fn the_links_lead_somewhere() {
    for name in ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"] {
        let page = std::fs::read_to_string(repository().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        for link in page.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap_or_default();
            if !file.is_empty() && !file.contains("://") {
                assert!(repository().join(file).exists(), "{name} links {file}");
            }
        }
    }
}
