//! `bench-prof`: what a profiler costs the program that it looks at, ours beside its peers, in one go.
//!
//! A round runs every program under every profiler and without one. A figure is held against that of the same round.

mod about;
mod goals;
mod plot;
mod programs;
mod run;
mod scrape;
mod tables;
mod tools;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use poolscope_bench::Result;
use poolscope_bench::harness::{self, finish};
use poolscope_bench::machine::Machine;
use poolscope_bench::options::{Common, LEAST_ROUNDS};
use poolscope_bench::progress::progress;
use poolscope_bench::results::Contestant;
use poolscope_bench::rounds::{Measured, Plan};

use about::{About, Results};
use programs::Programs;
use tools::Tool;

#[derive(Parser)]
#[command(about = "What profilers cost a program: ours beside its peers")]
struct Options {
    #[command(flatten)]
    common: Common,
    /// Only profilers whose name begins with one of these, and those that they are held against
    #[arg(long, value_name = "BEGINNING", value_delimiter = ',')]
    tools: Vec<String>,
    /// Millions of allocations of the C++ program; of its threads twice as many
    #[arg(long, value_name = "N", default_value_t = 20)]
    millions: u64,
    /// Leave out what a scrape costs
    #[arg(long)]
    no_scrapes: bool,
}

fn main() -> ExitCode {
    harness::main("bench-prof", run)
}

fn run(options: &Options) -> Result<bool> {
    let scratch = std::env::temp_dir().join(format!("bench-prof-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    let results = measure(options, &scratch);
    // What is left there costs room and nothing else.
    let _ = std::fs::remove_dir_all(&scratch);
    if let Some(results) = results? {
        finish("bench-prof", &options.common, &results, &tables::report(&results), &plot::render(&results)?, true)?;
    }
    Ok(true)
}

/// `None` if what there is was listed instead.
fn measure(options: &Options, scratch: &Path) -> Result<Option<Results>> {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let programs = Programs::build(scratch, options.millions * 1_000_000)?;
    let places = tools::Places::find(scratch)?;
    let programs = options.common.rows(programs.all, |program| program.name.to_owned())?;
    let wanted = |tool: &Tool| options.tools.is_empty() || options.tools.iter().any(|it| tool.name.starts_with(it));
    let tools: Vec<Tool> = tools::all().into_iter().filter(|tool| tool.is_base || wanted(tool)).collect();
    if options.common.list {
        let named = |tool: &Tool| (tool.name.to_owned(), String::new());
        Common::show(programs.iter().map(|program| program.name.to_owned()), tools.iter().map(named));
        return Ok(None);
    }
    let rounds = options.common.rounds.unwrap_or(LEAST_ROUNDS).max(1);
    let mut about = About {
        load: load.split(' ').next().unwrap_or("?").to_owned(),
        pairs: programs.iter().filter_map(|program| Some((program.name, program.pairs?))).collect(),
        scrape: None,
    };
    let machine = Machine::this();
    println!("{machine}\n{rounds} rounds of {} programs under {} tools; {about}", programs.len(), tools.len());

    let begun = Instant::now();
    let plan = Plan {
        rows: programs.iter().map(|program| (program.name.to_owned(), 1)).collect(),
        contestants: tools.iter().map(|tool| tool.name.to_owned()).collect(),
        rounds,
        within: options.common.within(),
    };
    let Measured { rows, rounds, .. } = plan.measure(|turn| {
        let (tool, program) = (&tools[turn.contestant], &programs[turn.row]);
        let takes = tool.takes(program) && (turn.round == 0 || !tool.once);
        takes.then(|| run::run(tool, program, &places))
    });
    if !options.no_scrapes && options.common.only.is_empty() {
        progress("scrapes");
        let cost = scrape::measure(&programs, &places, rounds * 3);
        progress("");
        about.scrape = cost.map_err(|why| println!("The cost of a scrape is not measured: {why}")).ok();
    }
    let contestant = |tool: &Tool| Contestant { name: tool.name.to_owned(), version: String::new() };
    let results = Results {
        machine,
        about,
        rounds,
        seconds: begun.elapsed().as_secs_f64(),
        contestants: tools.iter().map(contestant).collect(),
        absent: Vec::new(),
        rows,
        goals: Vec::new(),
    };
    Ok(Some(results.with_goals(goals::all)))
}
