//! `bench-cpu`: the pool and its peers in one go. Each round runs every row on every allocator, one allocator right
//! after the other and in another order each time, so that a machine that slows down slows all of them.

mod attach;
mod catalogue;
mod comparison;
mod goals;
mod instructions;
mod measure;
mod pack;
mod peers;
mod plot;
mod process;
mod redis;
mod sampling;
mod tables;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use poolscope_bench::Result;
use poolscope_bench::harness::{self, finish};
use poolscope_bench::machine::Machine;
use poolscope_bench::options::{Common, LEAST_ROUNDS, named};
use poolscope_bench::results::Contestant;
use poolscope_bench::rounds::{Measured, Plan};

use catalogue::{Extent, Row};
use comparison::{Host, Results};
use measure::Programs;
use peers::{Allocator, Role};

#[derive(Parser)]
#[command(about = "The pool beside its peers: time, memory and instructions")]
struct Options {
    #[command(flatten)]
    common: Common,
    /// Three rounds, which is too few to call it a result
    #[arg(long, conflicts_with = "rounds")]
    quick: bool,
    /// Only these allocators; NAME=LIBRARY brings another one in
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    allocators: Vec<String>,
    /// Numbers of threads in the rows that scale
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2,4,8,16")]
    threads: Vec<usize>,
    /// Milliseconds that a workload runs before it is measured; otherwise half as long as it is measured
    #[arg(long, value_name = "MS")]
    warm_up: Option<u64>,
    /// Folder of the libraries; without it they are gathered and compiled beside this program
    #[arg(long, value_name = "DIR")]
    libraries: Option<PathBuf>,
    /// Measure nothing, and fill a folder that runs the benchmark on a machine without Cargo and network
    #[arg(long, value_name = "DIR")]
    pack: Option<PathBuf>,
}

fn main() -> ExitCode {
    harness::main("bench-cpu", run)
}

fn run(options: &Options) -> Result<bool> {
    let here = std::env::current_exe().map_err(|error| format!("this program has no path: {error}"))?;
    let here = here.parent().ok_or("this program is in no folder")?;
    let libraries = libraries(options, here)?;
    let known = peers::read(&libraries)?;
    if let Some(folder) = &options.pack {
        return pack::pack(folder, here, &libraries, &known).map(|()| true);
    }
    let allocators = choose(&known, &options.allocators)?;
    let rows = rows(options)?;
    if options.common.list {
        let version = |allocator: &Allocator| (allocator.name.clone(), allocator.version.clone());
        Common::show(rows.iter().map(|row| row.id.clone()), allocators.iter().map(version));
        return Ok(true);
    }
    let rounds = if options.quick { 3 } else { options.common.rounds.unwrap_or(LEAST_ROUNDS).max(1) };
    let machine = Machine::this();
    println!("{machine}\n{rounds} rounds of {} rows on {} allocators", rows.len(), allocators.len());

    let programs = Programs {
        workloads: here.join("workloads"),
        command: here.join("poolscope"),
        warm_up: options.warm_up.map(Duration::from_millis),
    };
    let plan = Plan {
        rows: rows.iter().map(|row| (row.id.clone(), 1)).collect(),
        contestants: allocators.iter().map(|allocator| allocator.name.clone()).collect(),
        rounds,
        within: options.common.within(),
    };
    let Measured { rows: mut measured, rounds, seconds } =
        plan.measure(|turn| Some(programs.measure(&rows[turn.row], &allocators[turn.contestant])));
    instructions::count(&rows, &allocators, &programs, &options.common.output, &mut measured);
    let sampling = sampling::measure(&rows, &allocators, &programs).and_then(said("The cost of sampling"));
    let ours = allocators.iter().find(|allocator| allocator.role == Role::Ours);
    // It belongs to no row.
    let ours = ours.filter(|_| options.common.only.is_empty() || options.common.only.iter().any(|row| row == "attach"));
    let attach = ours.map(|ours| attach::measure(&programs, ours)).and_then(said("The cost of a dashboard"));
    let results = Results {
        machine,
        rounds,
        seconds,
        contestants: allocators.iter().map(contestant).collect(),
        absent: Vec::new(),
        rows: measured,
        goals: Vec::new(),
        about: Host { allocators, sampling, attach },
    };
    let results = results.with_goals(goals::all);
    finish("bench-cpu", &options.common, &results, &tables::report(&results), &plot::render(&results)?, true)?;
    Ok(true)
}

/// The pool without sampling, or with other settings, is the same as with it, of the same version.
fn contestant(allocator: &Allocator) -> Contestant {
    let same =
        allocator.role == Role::SamplingOff || (allocator.role == Role::Guest && !allocator.environment.is_empty());
    let version = if same { "" } else { &allocator.version };
    Contestant { name: allocator.name.clone(), version: version.to_owned() }
}

fn rows(options: &Options) -> Result<Vec<Row>> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let extent = Extent { threads: options.threads.clone(), processors };
    let mut rows = options.common.rows(catalogue::rows(&extent), |row| row.id.clone())?;
    // What takes minutes is asked for by its name.
    rows.retain(|row| !row.is_long() || options.common.only.contains(&row.id));
    for missing in
        rows.iter().flat_map(Row::needs).filter(|program| !Path::new(program).exists()).collect::<BTreeSet<_>>()
    {
        println!("There is no {missing}: the rows that need it are left out.");
    }
    rows.retain(|row| row.needs().iter().all(|program| Path::new(program).exists()));
    if rows.is_empty() { Err("no row is left".to_owned()) } else { Ok(rows) }
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
        None => named(known, name, "allocator", |allocator| &allocator.name).cloned(),
    };
    names.iter().map(choose).collect()
}

/// Prints the error of a part that could not be measured.
fn said<T>(what: &str) -> impl FnOnce(Result<T>) -> Option<T> {
    move |result| result.map_err(|error| println!("{what} is not measured: {error}")).ok()
}
