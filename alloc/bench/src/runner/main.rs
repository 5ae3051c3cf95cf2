//! `bench-cpu`: the pool and its peers in one go. Each round runs every row on every allocator, one allocator right
//! after the other and in another order each time, so that a machine that slows down slows all of them.

mod attach;
mod catalogue;
mod goals;
mod instructions;
mod measure;
mod pack;
mod peers;
mod redis;
mod report;
mod results;
mod sampling;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Parser;
use poolscope_bench::machine::Machine;
use poolscope_bench::statistics::Spread;

use catalogue::{Extent, Row};
use measure::Programs;
use peers::{Allocator, Role};
use results::{Cell, Results, RowResult};

/// An error is a line for the person who started the benchmark.
pub type Result<T> = std::result::Result<T, String>;

/// Fewer rounds show whether something works, and are no result.
const LEAST_ROUNDS: usize = 5;

#[derive(Parser)]
#[command(about = "The pool beside its peers: time, memory and instructions")]
struct Options {
    /// Rounds of all rows on all allocators
    #[arg(long, value_name = "N", default_value_t = LEAST_ROUNDS)]
    rounds: usize,
    /// Three rounds, which is too few to call it a result
    #[arg(long, conflicts_with = "rounds")]
    quick: bool,
    /// Only rows whose name begins with one of these
    #[arg(long, value_name = "BEGINNING", value_delimiter = ',')]
    only: Vec<String>,
    /// Only these allocators; NAME=LIBRARY brings another one in
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    allocators: Vec<String>,
    /// Numbers of threads in the rows that scale
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2,4,8,16")]
    threads: Vec<usize>,
    /// Milliseconds that a workload runs before it is measured; otherwise half as long as it is measured
    #[arg(long, value_name = "MS")]
    warm_up: Option<u64>,
    /// List the rows and the allocators, and end
    #[arg(long)]
    list: bool,
    /// Folder of the libraries; without it they are gathered and compiled beside this program
    #[arg(long, value_name = "DIR")]
    libraries: Option<PathBuf>,
    /// Put the figures as Markdown between the marks of this page
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Measure nothing, and fill a folder that runs the benchmark on a machine without Cargo and network
    #[arg(long, value_name = "DIR")]
    pack: Option<PathBuf>,
    /// Folder of what is written
    #[arg(long, value_name = "DIR", default_value = "out")]
    output: PathBuf,
}

fn main() {
    // SAFETY: nothing of this program's handles the signal. A reader that has seen enough of the table ends it quietly.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    if let Err(error) = run(&Options::parse()) {
        eprintln!("bench-cpu: {error}");
        std::process::exit(1);
    }
}

fn run(options: &Options) -> Result<()> {
    let here = std::env::current_exe().map_err(|error| format!("this program has no path: {error}"))?;
    let here = here.parent().ok_or("this program is in no folder")?;
    let libraries = libraries(options, here)?;
    let known = peers::read(&libraries)?;
    if let Some(folder) = &options.pack {
        return pack::pack(folder, here, &libraries, &known);
    }
    let allocators = choose(&known, &options.allocators)?;
    let rows = rows(options)?;
    if options.list {
        rows.iter().for_each(|row| println!("{}", row.id));
        println!();
        allocators.iter().for_each(|allocator| println!("{:<12} {}", allocator.name, allocator.version));
        return Ok(());
    }
    let rounds = if options.quick { 3 } else { options.rounds.max(1) };
    let machine = Machine::this();
    println!("{machine}\n{rounds} rounds of {} rows on {} allocators", rows.len(), allocators.len());

    let programs = Programs {
        workloads: here.join("workloads"),
        command: here.join("poolscope"),
        warm_up: options.warm_up.map(Duration::from_millis),
    };
    let mut measured = measure_all(&rows, &allocators, rounds, &programs);
    instructions::count(&rows, &allocators, &programs, &options.output, &mut measured);
    let sampling = sampling::measure(&rows, &allocators, &programs).and_then(said("The cost of sampling"));
    let ours = allocators.iter().find(|allocator| allocator.role == Role::Ours);
    // It belongs to no row.
    let ours = ours.filter(|_| options.only.is_empty() || options.only.iter().any(|row| row == "attach"));
    let attach = ours.map(|ours| attach::measure(&programs, ours)).and_then(said("The cost of a dashboard"));
    let results = Results { machine, rounds, allocators, rows: measured, sampling, attach };
    let json = serde_json::to_string_pretty(&results).map_err(|error| error.to_string())?;
    write(&options.output.join("bench-cpu.json"), &json)?;
    write(&options.output.join("bench-cpu.svg"), &report::plot::render(&results)?)?;
    if let Some(page) = &options.markdown {
        let old = std::fs::read_to_string(page).ok();
        let new = report::markdown::insert(old.as_deref(), &results)
            .map_err(|error| format!("{}: {error}", page.display()))?;
        write(page, &new)?;
    }
    print!("{}", report::table::render(&results));
    if rounds < LEAST_ROUNDS {
        println!("\n{rounds} rounds are not a result: it takes {LEAST_ROUNDS}.");
    }
    println!("\nAll figures are in {0}/bench-cpu.json, a picture in {0}/bench-cpu.svg.", options.output.display());
    Ok(())
}

fn rows(options: &Options) -> Result<Vec<Row>> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut rows = catalogue::rows(&Extent { threads: options.threads.clone(), processors });
    if !options.only.is_empty() {
        rows.retain(|row| options.only.iter().any(|pattern| row.id.starts_with(pattern.as_str())));
    }
    for missing in
        rows.iter().flat_map(Row::needs).filter(|program| !Path::new(program).exists()).collect::<BTreeSet<_>>()
    {
        println!("There is no {missing}: the rows that need it are left out.");
    }
    rows.retain(|row| row.needs().iter().all(|program| Path::new(program).exists()));
    if rows.is_empty() { Err("no row's name begins so; --list shows them".to_owned()) } else { Ok(rows) }
}

/// The folder of the libraries, gathered if none was named.
fn libraries(options: &Options, here: &Path) -> Result<PathBuf> {
    if let Some(folder) = &options.libraries {
        return Ok(folder.clone());
    }
    let folder = here.join("peers");
    peers::gather(&folder, &here.join("libpoolscope.so"))?;
    Ok(folder)
}

fn choose(known: &[Allocator], names: &[String]) -> Result<Vec<Allocator>> {
    if names.is_empty() {
        return Ok(known.to_vec());
    }
    let choose = |name: &String| match name.split_once('=') {
        Some((name, library)) => peers::guest(name, library),
        None => known.iter().find(|allocator| allocator.name == *name).cloned().ok_or_else(|| {
            let known: Vec<&str> = known.iter().map(|allocator| allocator.name.as_str()).collect();
            format!("no allocator {name}; there are {}", known.join(", "))
        }),
    };
    names.iter().map(choose).collect()
}

#[derive(Default)]
struct Samples {
    times: Vec<f64>,
    peaks: Vec<f64>,
    wastes: Vec<f64>,
    failure: Option<String>,
}

impl Samples {
    fn cell(&self) -> Cell {
        Cell {
            time: Spread::of(&self.times),
            peak: Spread::of(&self.peaks),
            waste: Spread::of(&self.wastes),
            instructions: None,
            failure: self.failure.clone(),
        }
    }
}

fn measure_all(rows: &[Row], allocators: &[Allocator], rounds: usize, programs: &Programs) -> Vec<RowResult> {
    let started = Instant::now();
    let mut samples: Vec<Vec<Samples>> =
        rows.iter().map(|_| allocators.iter().map(|_| Samples::default()).collect()).collect();
    for round in 0..rounds {
        for (index, row) in rows.iter().enumerate() {
            progress(&format!("round {} of {rounds}, {:<24} {:>4} s", round + 1, row.id, started.elapsed().as_secs()));
            for turn in 0..allocators.len() {
                // Another one begins in each row and round.
                let turn = (turn + round + index) % allocators.len();
                let samples = &mut samples[index][turn];
                if samples.failure.is_some() {
                    continue;
                }
                match programs.measure(row, &allocators[turn]) {
                    Ok(figures) => {
                        samples.times.extend(figures.time);
                        samples.peaks.extend(figures.peak);
                        samples.wastes.extend(figures.waste);
                    }
                    Err(failure) => samples.failure = Some(failure),
                }
            }
        }
    }
    progress("");
    println!("Measured for {} s.", started.elapsed().as_secs());
    let result = |(row, samples): (&Row, Vec<Samples>)| RowResult {
        id: row.id.clone(),
        family: row.family,
        cells: allocators
            .iter()
            .zip(&samples)
            .map(|(allocator, samples)| (allocator.name.clone(), samples.cell()))
            .collect::<BTreeMap<_, _>>(),
    };
    rows.iter().zip(samples).map(result).collect()
}

/// Prints the error of a part that could not be measured.
fn said<T>(what: &str) -> impl FnOnce(Result<T>) -> Option<T> {
    move |result| result.map_err(|error| println!("{what} is not measured: {error}")).ok()
}

/// Shows what goes on in the last line of a terminal.
fn progress(line: &str) {
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        let _ = write!(terminal, "\r\x1b[K{line}").and_then(|()| terminal.flush());
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(path, text))
        .map_err(|error| format!("{} can't be written: {error}", path.display()))
}
