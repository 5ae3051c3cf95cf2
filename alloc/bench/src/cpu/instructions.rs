//! Instructions per operation, counted by callgrind: they do not depend on what else the machine does. What was counted
//! once for a library and a row is read from a file from then on.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::process::{Command, Stdio};

use poolscope_bench::Result;
use poolscope_bench::harness::write;
use poolscope_bench::progress::progress;
use poolscope_bench::results::{Figures, RowResult};

use crate::catalogue::{How, Row};
use crate::measure::Programs;
use crate::peers::Allocator;
use crate::process;

/// Few enough for a tenth of a second a row. A sample or two of ours fall into them: those who want the fast path alone
/// look at the pool without sampling.
const OPERATIONS: u64 = 10_000;

/// By library and program, then by row.
type Cache = BTreeMap<String, BTreeMap<String, f64>>;

/// Adds the counts to the results: for all rows with one thread that can also run on empty functions.
pub fn count(rows: &[Row], allocators: &[Allocator], programs: &Programs, folder: &Path, results: &mut [RowResult]) {
    if !cfg!(target_arch = "x86_64") {
        return println!("Instructions are not counted: the request to callgrind is written for x86-64 only.");
    }
    if Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_err() {
        return println!("Instructions are not counted: there is no valgrind.");
    }
    let rows: Vec<(usize, String)> =
        rows.iter().enumerate().filter_map(|(index, row)| Some((index, countable(row)?))).collect();
    let file = folder.join("bench-cpu-instructions.json");
    let mut cache: Cache =
        std::fs::read_to_string(&file).ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    for allocator in allocators {
        progress(&format!("instructions, {}", allocator.name));
        let known = cache.entry(key(allocator, programs)).or_default();
        let missing: Vec<&str> =
            rows.iter().map(|(_, args)| args.as_str()).filter(|args| !known.contains_key(*args)).collect();
        if !missing.is_empty() {
            match counted(allocator, programs, &missing) {
                Ok(counts) => known.extend(missing.iter().map(|&args| args.to_owned()).zip(counts)),
                Err(error) => println!("Instructions of {} are not counted: {error}", allocator.name),
            }
        }
        for (index, args) in &rows {
            if let (Some(cell), Some(&count)) = (results[*index].cells.get_mut(&allocator.name), known.get(args)) {
                cell.add(Figures::from([("instructions".to_owned(), count)]));
            }
        }
    }
    progress("");
    let text = serde_json::to_string_pretty(&cache).unwrap_or_default();
    if let Err(error) = write(&file, &text) {
        println!("{error}");
    }
}

/// The row's workload, if it is one of malloc and free calls only.
fn countable(row: &Row) -> Option<String> {
    let How::Workload { args, .. } = &row.how else { return None };
    matches!(args[0].as_str(), "lifo" | "batch" | "random").then(|| args.join(" "))
}

/// Another library or another program has another key.
fn key(allocator: &Allocator, programs: &Programs) -> String {
    let mut hasher = DefaultHasher::new();
    std::fs::read(&programs.workloads).unwrap_or_default().hash(&mut hasher);
    allocator.version.hash(&mut hasher);
    allocator.environment.hash(&mut hasher);
    allocator.library.as_ref().map(|library| std::fs::read(library).unwrap_or_default()).hash(&mut hasher);
    OPERATIONS.hash(&mut hasher);
    format!("{} {:016x}", allocator.name, hasher.finish())
}

/// Instructions per operation of each workload, without those of the loop around the calls.
fn counted(allocator: &Allocator, programs: &Programs, workloads: &[&str]) -> Result<Vec<f64>> {
    let folder = std::env::temp_dir().join(format!("bench-cpu-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let counts = dumps(allocator, programs, workloads, &folder);
    let _ = std::fs::remove_dir_all(&folder);
    counts
}

fn dumps(allocator: &Allocator, programs: &Programs, workloads: &[&str], folder: &Path) -> Result<Vec<f64>> {
    // valgrind itself runs on the preloaded library too; its tool does not.
    let mut command = process::on(allocator, "valgrind");
    command.args(["--quiet", "--tool=callgrind", "--instr-atstart=no", "--vgdb=no"]);
    command.arg(format!("--callgrind-out-file={}", folder.join("dump").display()));
    command.arg(&programs.workloads).arg("count").arg(OPERATIONS.to_string()).args(workloads);
    let lines = process::output(command)?;
    let total = |number: usize| {
        let path = folder.join(format!("dump.{number}"));
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let total = text.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse::<f64>().ok());
        total.ok_or(format!("{} has no total", path.display()))
    };
    lines
        .lines()
        .enumerate()
        .map(|(index, line)| {
            let figures =
                line.split_once(' ').and_then(|(done, empty)| Some((done.parse().ok()?, empty.parse().ok()?)));
            let (done, empty): (f64, f64) = figures.ok_or(format!("not a count: {line}"))?;
            Ok((total(2 * index + 1)? - total(2 * index + 2)?) / done + empty)
        })
        .collect()
}
