//! `bench-prof`: what a profiler costs the program that it looks at, ours beside its peers, in one go.
//!
//! A round runs every program under every profiler and without one, one right after the other and in another order each
//! time, so that a machine that slows down slows all of them. A figure is held against that of the same round.

mod goals;
mod programs;
mod report;
mod results;
mod run;
mod scrape;
mod tools;

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Parser;
use poolscope_bench::Result;
use poolscope_bench::machine::Machine;

use programs::Programs;
use results::{Results, Round};
use run::Ran;

#[derive(Parser)]
#[command(about = "What profilers cost a program: ours beside its peers")]
struct Options {
    /// Rounds of all programs under all profilers
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Only programs whose name begins with one of these
    #[arg(long, value_name = "BEGINNING", value_delimiter = ',')]
    only: Vec<String>,
    /// Only profilers whose name begins with one of these, and those that they are held against
    #[arg(long, value_name = "BEGINNING", value_delimiter = ',')]
    tools: Vec<String>,
    /// Millions of allocations of the C++ program
    #[arg(long, value_name = "N", default_value_t = 2)]
    millions: u64,
    /// Leave out what a scrape costs
    #[arg(long)]
    no_scrapes: bool,
    /// Put the figures as Markdown between the marks of this page
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Folder of what is written
    #[arg(long, value_name = "DIR", default_value = "out")]
    output: PathBuf,
}

fn main() {
    if let Err(error) = measure(&Options::parse()) {
        eprintln!("bench-prof: {error}");
        std::process::exit(1);
    }
}

fn measure(options: &Options) -> Result<()> {
    let begun = Instant::now();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let scratch = std::env::temp_dir().join(format!("bench-prof-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    let results = rounds(options, &scratch, load.split(' ').next().unwrap_or("?").to_owned());
    // What is left there costs room and nothing else.
    let _ = std::fs::remove_dir_all(&scratch);
    let mut results = results?;
    results.seconds = begun.elapsed().as_secs_f64();

    std::fs::create_dir_all(&options.output).map_err(|error| format!("{}: {error}", options.output.display()))?;
    let write = |name: &str, text: &str| {
        let path = options.output.join(name);
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    };
    write("bench-prof.json", &serde_json::to_string_pretty(&results).map_err(|error| error.to_string())?)?;
    write("bench-prof.svg", &report::svg(&results)?)?;
    if let Some(page) = &options.markdown {
        let text = std::fs::read_to_string(page).ok();
        let text = poolscope_bench::page::insert(text.as_deref(), &report::markdown(&results))?;
        std::fs::write(page, text).map_err(|error| format!("{}: {error}", page.display()))?;
    }
    print!("{}", report::text(&results));
    Ok(())
}

fn rounds(options: &Options, scratch: &Path, load: String) -> Result<Results> {
    let programs = Programs::build(scratch, options.millions * 1_000_000)?;
    let places = tools::Places::find(scratch)?;
    let wanted = |wanted: &[String], name: &str| wanted.is_empty() || wanted.iter().any(|part| name.starts_with(part));
    let mut results = Results::new(Machine::this(), options.rounds, load);
    let programs: Vec<_> = programs.all.into_iter().filter(|program| wanted(&options.only, program.name)).collect();
    for number in 0..options.rounds {
        for program in &programs {
            let mut tools: Vec<_> = tools::all(&places).into_iter().filter(|tool| tool.takes(program)).collect();
            tools.retain(|tool| tool.is_base || wanted(&options.tools, tool.name));
            tools.retain(|tool| number == 0 || !tool.once);
            let by = number * 3 % tools.len().max(1);
            tools.rotate_left(by);
            let mut round = Round::default();
            for tool in &tools {
                progress(&format!("round {} of {}: {} {}", number + 1, options.rounds, program.name, tool.name));
                match run::run(tool, program, &places) {
                    Ok(ran) => round.ran.push((tool.name, ran)),
                    Err(why) => results.failed(program.name, tool.name, why),
                }
            }
            results.add(program, round);
        }
    }
    if !options.no_scrapes && options.only.is_empty() {
        progress("scrapes");
        match scrape::measure(&programs, &places, options.rounds * 3) {
            Ok(cost) => results.scrape = Some(cost),
            Err(why) => results.failed("churn", "scraped", why),
        }
    }
    progress("");
    Ok(results)
}

/// What is being done, on one line of the terminal.
fn progress(text: &str) {
    use std::io::{IsTerminal, Write};
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{text}");
        let _ = std::io::stderr().flush();
    }
}

/// The figure of one run that stands for what a pair of allocation and free costs the program.
fn per_pair(ran: &Ran) -> Option<f64> {
    ran.processor_ns
}
