//! `bench-gpu`: the GPU pool and its peers in one go, or the placement policies on the simulated device.
//!
//! Every contestant has a process of its own for the whole run, because two of them may not share one (PyTorch reads
//! its settings when it is loaded, the driver's pool is the process's). A round goes through all rows, and in each row
//! all contestants take turns, in another order each time, with an allocator that begins without memory; where one
//! thread is measured, all of them on the same processor.

mod contestants;
mod cupy;
mod goals;
mod loader;
mod peers;
mod plugin;
mod processors;
mod raw;
mod report;
mod results;
mod rows;
mod worker;

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Parser;
use poolscope_bench::Result;
use poolscope_bench::machine::Machine;
use poolscope_gpu::Cuda;

use contestants::{Contestant, Kind, Place};
use processors::Processors;
use results::{About, Results, Sample, Samples};
use rows::{Extent, Row};
use worker::Handle;

/// Fewer rounds show whether something works, and are no result.
const LEAST_ROUNDS: usize = 5;

#[derive(Parser)]
#[command(about = "The GPU pool beside its peers: hot pairs, threads, recorded traces, and what fragmentation does")]
struct Options {
    /// `sim`, the simulated device, with the placement policies; or the number of a CUDA device,
    /// with the pool and its peers
    #[arg(long, value_name = "sim|N", default_value = "0", value_parser = contestants::parse_place)]
    device: Place,
    /// Rounds of all rows on all contestants; 5 on a card, and 1 on the simulated device, where all are the same
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Only rows whose name begins with one of these
    #[arg(long, value_name = "BEGINNING", value_delimiter = ',')]
    only: Vec<String>,
    /// Only these contestants
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    contestants: Vec<String>,
    /// Numbers of threads in the rows that scale
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2,4,8,16")]
    threads: Vec<usize>,
    /// Recorded traces; the three of the repository if none is given
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    trace: Vec<PathBuf>,
    /// Folder of the peers' libraries; `peers` beside this program if not given
    #[arg(long, value_name = "DIR")]
    peers: Option<PathBuf>,
    /// List the rows and the contestants, and end
    #[arg(long)]
    list: bool,
    /// End with 1 if a goal is missed that any machine can show: fragmentation and driver calls
    #[arg(long)]
    check: bool,
    /// Put the figures as Markdown between the marks of this page
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Folder of what is written
    #[arg(long, value_name = "DIR", default_value = "out")]
    output: PathBuf,
    /// Measure as this contestant what standard input asks for
    #[arg(long, value_name = "NAME", hide = true)]
    worker: Option<String>,
}

fn main() {
    // SAFETY: nothing of this program's handles the signal. A reader that has seen enough of the table ends it quietly.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    match run(&Options::parse()) {
        Ok(code) => std::process::exit(code),
        Err(error) => {
            eprintln!("bench-gpu: {error}");
            std::process::exit(2);
        }
    }
}

fn run(options: &Options) -> Result<i32> {
    let here = std::env::current_exe().map_err(|error| format!("this program has no path: {error}"))?;
    let here = here.parent().ok_or("this program is in no folder")?;
    let peers = options.peers.clone().unwrap_or_else(|| here.join("peers"));
    let extent = Extent { threads: options.threads.clone(), traces: traces(options, here)?, place: options.device };
    if let Some(name) = &options.worker {
        worker::serve(name, &extent, &peers)?;
        return Ok(0);
    }
    let mut rows = rows::all(&extent);
    if !options.only.is_empty() {
        rows.retain(|row| options.only.iter().any(|beginning| row.id().starts_with(beginning.as_str())));
    }
    if rows.is_empty() {
        return Err("no row's name begins so; --list shows them".to_owned());
    }
    let contestants = choose(contestants::all(options.device), &options.contestants)?;
    if options.list {
        rows.iter().for_each(|row| println!("{}", row.id()));
        println!();
        contestants.iter().for_each(|contestant| println!("{:<18}{}", contestant.name, contestant.what));
        return Ok(0);
    }
    let about = about(options.device)?;
    println!("{}\n{about}", Machine::this());

    let (mut handles, absent) = start(&contestants, &extent, &peers);
    let usual = if options.device == Place::Simulated { 1 } else { LEAST_ROUNDS };
    let rounds = options.rounds.unwrap_or(usual).max(1);
    let samples = measure_all(&mut handles, &rows, rounds);
    let results = Results::new(about, rounds, &rows, &handles, samples, absent);
    drop(handles);

    let name = if options.device == Place::Simulated { "bench-gpu-sim" } else { "bench-gpu" };
    let json = serde_json::to_string_pretty(&results).map_err(|error| error.to_string())?;
    write(&options.output.join(format!("{name}.json")), &json)?;
    write(&options.output.join(format!("{name}.svg")), &report::plot::render(&results)?)?;
    if let Some(page) = &options.markdown {
        let old = std::fs::read_to_string(page).ok();
        let new = poolscope_bench::page::insert(old.as_deref(), &report::tables::markdown(&results))
            .map_err(|error| format!("{}: {error}", page.display()))?;
        write(page, &new)?;
    }
    print!("{}", report::tables::text(&results));
    if rounds < LEAST_ROUNDS && options.device != Place::Simulated {
        println!("\n{rounds} rounds are not a result: it takes {LEAST_ROUNDS}.");
    }
    println!("\nAll figures are in {0}/{name}.json, a picture in {0}/{name}.svg.", options.output.display());
    let missed = goals::all(&results).iter().any(|goal| goal.anywhere && goal.met == Some(false));
    Ok(i32::from(options.check && missed))
}

/// The traces that were named, or those of the repository, which lie beside this program's folder where it is packed.
fn traces(options: &Options, here: &Path) -> Result<Vec<PathBuf>> {
    if !options.trace.is_empty() {
        return Ok(options.trace.clone());
    }
    let folders = [here.join("../traces"), Path::new(env!("CARGO_MANIFEST_DIR")).join("../replay/traces")];
    let folder = folders.iter().find(|folder| folder.is_dir()).ok_or("no traces: name some by --trace")?;
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut traces: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    traces.retain(|path| path.to_string_lossy().contains(".trace"));
    traces.sort();
    Ok(traces)
}

fn choose(known: Vec<Contestant>, names: &[String]) -> Result<Vec<Contestant>> {
    for name in names {
        if !known.iter().any(|contestant| contestant.name == *name) {
            let known: Vec<&str> = known.iter().map(|contestant| contestant.name).collect();
            return Err(format!("no contestant {name}; there are {}", known.join(", ")));
        }
    }
    Ok(known.into_iter().filter(|it| names.is_empty() || names.iter().any(|name| name == it.name)).collect())
}

fn about(place: Place) -> Result<About> {
    let Place::Cuda(ordinal) = place else {
        return Ok(About { device: "simulated".to_owned(), memory: contestants::SIMULATED_MEMORY, cuda: None });
    };
    let failed = |error| format!("--device {ordinal}: {error}");
    let devices = Cuda::devices().map_err(failed)?;
    let device = devices.get(ordinal as usize).ok_or(format!("--device {ordinal}: there are {}", devices.len()))?;
    let version = Cuda::driver_version().map_err(failed)?;
    Ok(About { device: device.name.clone(), memory: device.memory, cuda: Some(version) })
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

fn measure_all(handles: &mut [Handle], rows: &[Row], rounds: usize) -> Samples {
    let (started, processors) = (Instant::now(), Processors::of_this_process());
    let mut samples: Samples = BTreeMap::new();
    if handles.is_empty() {
        return samples;
    }
    for round in 0..rounds {
        for (index, row) in rows.iter().enumerate() {
            let timed = handles.iter().any(|handle| handle.kind != Kind::Policy);
            for turn in 0..if timed { row.turns() } else { 1 } {
                let processor = if row.is_of_one_thread() { processors.fastest() } else { None };
                // Another one begins each time.
                let (before, after) = handles.split_at_mut((turn + round + index) % handles.len());
                for handle in after.iter_mut().chain(before) {
                    progress(&format!("round {} of {rounds}, {:<24} {:<18}", round + 1, row.id(), handle.name));
                    if round < handle.rounds_of(row) {
                        let sample = samples.entry(row.id()).or_default().entry(handle.name.clone()).or_default();
                        measure(handle, &row.id(), processor, sample);
                    }
                }
            }
        }
    }
    progress("");
    println!("Measured for {} s.", started.elapsed().as_secs());
    samples
}

/// Adds a row's figures of a contestant to those that there are. One that has failed is not asked again.
fn measure(handle: &mut Handle, id: &str, processor: Option<usize>, sample: &mut Sample) {
    if sample.failure.is_some() {
        return;
    }
    match handle.measure(id, processor) {
        Ok(mut figures) => {
            rows::add_changes(&mut figures);
            figures.into_iter().for_each(|(name, value)| sample.figures.entry(name).or_default().push(value));
        }
        Err(failure) => sample.failure = Some(failure),
    }
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
