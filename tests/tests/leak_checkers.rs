//! docs/benchmarks-heapcheck.md: each scenario and real programs under `poolscope check`, LeakSanitizer and valgrind.

use std::path::{Path, PathBuf};

use poolscope_e2e::compiler::compile_into;
use poolscope_e2e::leak_scenarios::{CLEAN, Expected, LOSING, OTHERS, SCENARIOS};
use poolscope_e2e::{Output, Pool, Program, repository};
use serde_json::Value;

const LSAN: &str = "/usr/lib/x86_64-linux-gnu/liblsan.so.0";
/// Seconds that a tool has for a program.
const LIMIT: &str = "200";

fn page() -> PathBuf {
    repository().join("docs/benchmarks-heapcheck.md")
}

fn all_programs() -> impl Iterator<Item = &'static str> {
    CLEAN.iter().chain(LOSING).chain(OTHERS).copied()
}

/// A command as a cell has it.
fn in_table(program: &str) -> String {
    format!("`{}`", program.replace('|', "\\|"))
}

#[test]
fn every_scenario_and_program_is_in_the_table() {
    let text = std::fs::read_to_string(page()).expect("is there");
    for Expected { scenario, .. } in SCENARIOS {
        assert!(
            text.contains(&format!("| {scenario} |")),
            "{scenario} is missing: run this file's test that writes the tables"
        );
    }
    for program in all_programs() {
        assert!(
            text.contains(&format!("| {} |", in_table(program))),
            "{program} is missing: run this file's test that writes the tables"
        );
    }
}

/// What a tool has found: leaked bytes and blocks. Or why it has no answer.
type Found = Result<(u64, u64), String>;

fn run_limited(program: Program) -> Result<Output, String> {
    let output = program.run();
    match output.code() {
        124 | 137 => Err("does not end".into()),
        _ => Ok(output),
    }
}

/// Runs a command under a limit. A signal that ends it is an exit code, as in a shell.
fn limited(pool: &Pool, command: &[&str]) -> Program {
    let shell = ["-c", "timeout -k 1 \"$@\"; exit $?", "sh", LIMIT];
    Program::new("sh").args(shell).args(command).dir(pool.files().path()).limit(300)
}

/// What files of a folder say that begin with `name`, together.
fn logs(pool: &Pool, name: &str) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(pool.files().path()).expect("a folder").flatten() {
        if entry.file_name().to_string_lossy().starts_with(name) {
            text += &std::fs::read_to_string(entry.path()).unwrap_or_default();
            std::fs::remove_file(entry.path()).expect("is removed");
        }
    }
    text
}

fn by_poolscope(pool: &Pool, command: &[&str]) -> Found {
    let output = pool.poolscope().args(["check", "--json", "--no-program-rules", "--"]).args(command).run();
    let report: Value = serde_json::from_str(&output.stdout).map_err(|_| "no report".to_owned())?;
    if output.code() == 24 {
        return Err("says that it could not check".into());
    }
    Ok((report["bytes"].as_u64().expect("bytes"), report["objects"].as_u64().expect("objects")))
}

/// The numbers of a line, in their order.
fn numbers(line: &str) -> Vec<u64> {
    line.split_whitespace().filter_map(|word| word.replace(',', "").parse().ok()).collect()
}

fn by_lsan(pool: &Pool, command: &[&str], preload: &str) -> Found {
    let preload = format!("LD_PRELOAD={preload}");
    let tool = ["env", preload.as_str(), "LSAN_OPTIONS=log_path=lsan.log:exitcode=23"];
    let output = run_limited(limited(pool, &[&tool, command].concat()))?;
    let text = logs(pool, "lsan.log");
    if text.contains("fatal error") || text.contains("AddressSanitizer:DEADLYSIGNAL") {
        return Err("ends with an error".into());
    }
    if output.code() >= 128 || output.stderr.contains("Segmentation fault") {
        return Err("crashes".into());
    }
    let leaks = text.lines().filter(|line| line.contains("leak of "));
    // Direct leak of 1337 byte(s) in 1 object(s) allocated from:
    Ok(leaks.map(numbers).fold((0, 0), |(bytes, blocks), found| (bytes + found[0], blocks + found[1])))
}

fn by_valgrind(pool: &Pool, command: &[&str]) -> Found {
    let tool = ["valgrind", "--leak-check=full", "--trace-children=yes", "--log-file=valgrind.log.%p"];
    let output = run_limited(limited(pool, &[&tool, command].concat()));
    let text = logs(pool, "valgrind.log");
    output?;
    if !text.contains("HEAP SUMMARY") {
        return Err("has no report".into());
    }
    let lines = text.lines().filter(|line| line.contains("definitely lost:") || line.contains("indirectly lost:"));
    let found = lines.map(|line| numbers(line.split_once("lost:").expect("a summary").1));
    Ok(found.fold((0, 0), |(bytes, blocks), found| (bytes + found[0], blocks + found[1])))
}

fn amount((bytes, blocks): (u64, u64)) -> String {
    match blocks {
        0 => "nothing".into(),
        1 => format!("{bytes} B in 1 block"),
        _ => format!("{bytes} B in {blocks} blocks"),
    }
}

/// `right`, or what the tool says instead.
fn judged(found: &Found, expected: (u64, u64)) -> String {
    match found {
        // LeakSanitizer counts a block of no bytes as one of one byte.
        Ok((bytes, blocks)) if *blocks == expected.1 && bytes.abs_diff(expected.0) <= 1 => "right".into(),
        Ok(found) => format!("wrong: {}", amount(*found)),
        Err(why) => why.clone(),
    }
}

fn scenarios() -> String {
    let pool = Pool::new();
    let file = |name: &str| pool.files().join(name);
    let (plain, lsan, library) = (file("leaks"), file("leaks-lsan"), file("libtls.so"));
    let flags = ["-O1", "-g", "-fno-builtin", "-pthread"];
    compile_into(&plain, Path::new("tests/csrc/leaks.c"), &flags, &["-ldl"]);
    compile_into(&lsan, Path::new("tests/csrc/leaks.c"), &[&flags[..], &["-fsanitize=leak"]].concat(), &["-ldl"]);
    compile_into(&library, Path::new("tests/csrc/leaks_tls.c"), &["-O1", "-shared", "-fPIC"], &[]);
    let mut rows =
        String::from("| scenario | leaked | poolscope | LeakSanitizer | valgrind |\n|---|---|---|---|---|\n");
    let mut right = [0; 3];
    for Expected { scenario, direct, indirect } in SCENARIOS {
        let sizes = direct.iter().chain(*indirect);
        let expected = (sizes.clone().sum(), sizes.count() as u64);
        let command =
            |program: &Path| [program.display().to_string(), (*scenario).to_owned(), library.display().to_string()];
        let (plain, lsan) = (command(&plain), command(&lsan));
        let (plain, lsan) = (plain.each_ref().map(String::as_str), lsan.each_ref().map(String::as_str));
        let all = [by_poolscope(&pool, &plain), by_lsan(&pool, &lsan, ""), by_valgrind(&pool, &plain)];
        let said = all.each_ref().map(|found| judged(found, expected));
        right.iter_mut().zip(&said).for_each(|(right, said)| *right += usize::from(said == "right"));
        rows += &format!("| {scenario} | {} | {} |\n", amount(expected), said.join(" | "));
    }
    let of = SCENARIOS.len();
    rows + &format!("| right of {of} | | {} | {} | {} |\n", right[0], right[1], right[2])
}

fn programs() -> String {
    let pool = Pool::new();
    let mut rows = String::from("| program | poolscope | LeakSanitizer | valgrind |\n|---|---|---|---|\n");
    pool.files().write("empty.c", "int main(void) { return 0; }\n");
    for program in all_programs() {
        let shell = format!("exec {program}");
        let command = ["sh", "-c", &shell];
        let mut said = Vec::new();
        for found in [by_poolscope(&pool, &command), by_lsan(&pool, &command, LSAN), by_valgrind(&pool, &command)] {
            said.push(found.map_or_else(|why| why, amount));
        }
        rows += &format!("| {} | {} |\n", in_table(program), said.join(" | "));
    }
    rows
}

/// Puts a text between `<!-- NAME -->` and `<!-- end -->`.
fn replace(page: &str, name: &str, text: &str) -> String {
    let begin = format!("<!-- {name} -->\n");
    let (before, rest) = page.split_once(&begin).expect("has a place for it");
    let (_, after) = rest.split_once("<!-- end -->").expect("has an end");
    format!("{before}{begin}{text}<!-- end -->{after}")
}

#[test]
#[ignore = "writes docs/benchmarks-heapcheck.md"]
fn write_the_tables() {
    let mut text = std::fs::read_to_string(page()).expect("is there");
    text = replace(&text, "scenarios", &scenarios());
    text = replace(&text, "programs", &programs());
    std::fs::write(page(), text).expect("is written");
}

#[test]
fn a_forked_child_loses_what_leaksanitizer_says_however_it_was_compiled() {
    let pool = Pool::new();
    let mut said = Vec::new();
    for optimised in ["-O0", "-O2"] {
        let program = pool.files().join(format!("forked{optimised}"));
        compile_into(&program, Path::new("tests/csrc/forked_child.c"), &["-g", "-fno-builtin", optimised], &[]);
        let program = program.to_str().expect("a path");
        for (place, blocks) in
            ["main", "function"].into_iter().flat_map(|place| [1, 5, 20].map(|blocks| (place, blocks)))
        {
            let command = [program, place, &blocks.to_string()];
            let (ours, theirs) = (by_poolscope(&pool, &command), by_lsan(&pool, &command, LSAN));
            assert_eq!(ours, theirs, "{optimised} {command:?}");
            said.push((blocks, ours.expect("a report").1));
        }
    }
    // A pointer that is left over hides one block at most.
    assert!(said.iter().all(|(blocks, found)| (blocks - 1..=*blocks).contains(found)), "{said:?}");
    assert!(said.iter().any(|(blocks, found)| blocks == found), "{said:?}");
}
