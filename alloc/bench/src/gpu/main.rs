//! `bench-gpu`: the GPU pool and its peers in one go, or the placement policies on the simulated device.
//!
//! Every contestant has a process of its own for the whole run, because two of them may not share one (PyTorch reads
//! its settings when it is loaded, the driver's pool is the process's). A round goes through all rows, and in each row
//! all contestants take turns, in another order each time, with an allocator that begins without memory; where one
//! thread is measured, all of them on the same processor.

mod about;
mod contestants;
mod cupy;
mod goals;
mod loader;
mod made;
mod peers;
mod plot;
mod plugin;
mod processors;
mod raw;
mod rows;
mod tables;
mod worker;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use poolscope_bench::Result;
use poolscope_bench::harness::{self, finish};
use poolscope_bench::machine::Machine;
use poolscope_bench::options::{Common, LEAST_ROUNDS, named};
use poolscope_bench::results::Contestant as Took;
use poolscope_bench::rounds::{Measured, Plan};
use poolscope_gpu::Cuda;

use about::{About, Device, Results};
use contestants::{Contestant, Kind, OUR_POLICY, OURS, Place};
use made::Made;
use processors::Processors;
use rows::{Extent, Row};
use worker::Handle;

#[derive(Parser)]
#[command(about = "The GPU pool beside its peers: hot pairs, threads, recorded traces, and what fragmentation does")]
struct Options {
    /// `sim`, the simulated device, with the placement policies; or the number of a CUDA device,
    /// with the pool and its peers
    #[arg(long, value_name = "sim|N", default_value = "0", value_parser = contestants::parse_place)]
    device: Place,
    #[command(flatten)]
    common: Common,
    /// Only these contestants
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    contestants: Vec<String>,
    /// Numbers of threads in the rows that scale
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2,4,8,16")]
    threads: Vec<usize>,
    /// Recorded traces; those of the repository, and made ones, if none is given
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    trace: Vec<PathBuf>,
    /// Folder of the peers' libraries; `peers` beside this program if not given
    #[arg(long, value_name = "DIR")]
    peers: Option<PathBuf>,
    /// End with 1 if a goal is missed that any machine can show: what is held, driver calls and what they cost
    #[arg(long)]
    check: bool,
    /// Measure as this contestant what standard input asks for
    #[arg(long, value_name = "NAME", hide = true)]
    worker: Option<String>,
}

fn main() -> ExitCode {
    harness::main("bench-gpu", run)
}

fn run(options: &Options) -> Result<bool> {
    let here = std::env::current_exe().map_err(|error| format!("this program has no path: {error}"))?;
    let here = here.parent().ok_or("this program is in no folder")?;
    let peers = options.peers.clone().unwrap_or_else(|| here.join("peers"));
    let extent = |traces| Extent { threads: options.threads.clone(), traces, place: options.device };
    if let Some(name) = &options.worker {
        worker::serve(name, &extent(options.trace.clone()), &peers)?;
        return Ok(true);
    }
    // A worker is told where they are; they stay until all is measured.
    let made = if options.trace.is_empty() { Some(Made::write()?) } else { None };
    let extent = extent(traces(options, here, made.as_ref())?);
    let rows = options.common.rows(rows::all(&extent), Row::id)?;
    let contestants = choose(contestants::all(options.device), &options.contestants)?;
    if options.common.list {
        let what = |contestant: &Contestant| (contestant.name.to_owned(), contestant.what.to_owned());
        Common::show(rows.iter().map(Row::id), contestants.iter().map(what));
        return Ok(true);
    }
    let (machine, device) = (Machine::this(), device(options.device)?);

    let (mut handles, absent) = start(&contestants, &extent, &peers);
    let took: Vec<Took> =
        handles.iter().map(|handle| Took { name: handle.name.clone(), version: handle.version.clone() }).collect();
    let ours = took.iter().map(|took| &took.name).find(|name| *name == OURS || *name == OUR_POLICY).cloned();
    let about = About { device, ours };
    println!("{machine}\n{about}");
    let usual = if options.device == Place::Simulated { 1 } else { LEAST_ROUNDS };
    let rounds = options.common.rounds.unwrap_or(usual).max(1);
    let Measured { rows, rounds, seconds } = measure_all(&mut handles, &rows, rounds, options.common.within());
    drop(handles);
    let results = Results { machine, about, rounds, seconds, contestants: took, absent, rows, goals: Vec::new() };
    let results = results.with_goals(goals::all);

    let name = if options.device == Place::Simulated { "bench-gpu-sim" } else { "bench-gpu" };
    let (report, picture) = (tables::report(&results), plot::render(&results)?);
    finish(name, &options.common, &results, &report, &picture, options.device != Place::Simulated)?;
    let missed = results.goals.iter().any(|goal| goal.anywhere && goal.met == Some(false));
    Ok(!(options.check && missed))
}

/// The traces that were named; or the made ones and those of the repository, which lie beside this program's folder
/// where it is packed.
fn traces(options: &Options, here: &Path, made: Option<&Made>) -> Result<Vec<PathBuf>> {
    let Some(made) = made else { return Ok(options.trace.clone()) };
    let folders = [here.join("../traces"), Path::new(env!("CARGO_MANIFEST_DIR")).join("../replay/traces")];
    let folder = folders.iter().find(|folder| folder.is_dir()).ok_or("no traces: name some by --trace")?;
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut traces: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    traces.retain(|path| path.to_string_lossy().contains(".trace"));
    traces.extend(made.files());
    traces.sort_by_key(|path| path.file_name().map(std::ffi::OsStr::to_owned));
    Ok(traces)
}

fn choose(known: Vec<Contestant>, names: &[String]) -> Result<Vec<Contestant>> {
    for name in names {
        named(&known, name, "contestant", |contestant| contestant.name)?;
    }
    Ok(known.into_iter().filter(|it| names.is_empty() || names.iter().any(|name| name == it.name)).collect())
}

fn device(place: Place) -> Result<Device> {
    let Place::Cuda(ordinal) = place else {
        return Ok(Device { device: "simulated".to_owned(), memory: contestants::SIMULATED_MEMORY, cuda: None });
    };
    let failed = |error| format!("--device {ordinal}: {error}");
    let devices = Cuda::devices().map_err(failed)?;
    let device = devices.get(ordinal as usize).ok_or(format!("--device {ordinal}: there are {}", devices.len()))?;
    let version = Cuda::driver_version().map_err(failed)?;
    Ok(Device { device: device.name.clone(), memory: device.memory, cuda: Some(version) })
}

/// Starts all contestants at once; those that can't take part say why.
fn start(contestants: &[Contestant], extent: &Extent, peers: &Path) -> (Vec<Handle>, Vec<(String, String)>) {
    let started: Vec<_> = contestants.iter().map(|it| (it, Handle::start(it, extent, peers))).collect();
    let (mut handles, mut absent) = (Vec::new(), Vec::new());
    for (contestant, handle) in started {
        match handle.and_then(Handle::ready) {
            Ok(handle) => handles.push(handle),
            Err(reason) => {
                println!("{} is left out: {reason}", contestant.name);
                absent.push((contestant.name.to_owned(), reason));
            }
        }
    }
    (handles, absent)
}

fn measure_all(handles: &mut [Handle], rows: &[Row], rounds: usize, within: Option<Duration>) -> Measured {
    let processors = Processors::of_this_process();
    let is_timed = handles.iter().any(|handle| handle.kind != Kind::Policy);
    let turns = |row: &Row| if is_timed { row.turns() } else { 1 };
    let plan = Plan {
        rows: rows.iter().map(|row| (row.id(), turns(row))).collect(),
        contestants: handles.iter().map(|handle| handle.name.clone()).collect(),
        rounds,
        within,
    };
    let mut processor = None;
    plan.measure(|turn| {
        let (row, handle) = (&rows[turn.row], &mut handles[turn.contestant]);
        if turn.is_first {
            processor = if row.is_of_one_thread() { processors.fastest() } else { None };
        }
        let measure = |handle: &mut Handle| {
            let mut figures = handle.measure(&row.id(), processor)?;
            rows::add_changes(&mut figures);
            Ok(figures)
        };
        (turn.round < handle.rounds_of(row)).then(|| measure(handle))
    })
}
