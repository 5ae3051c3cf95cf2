//! The beginning and the end of a benchmark.

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use serde::Serialize;

use crate::error::Result;
use crate::options::{Common, LEAST_ROUNDS};
use crate::page;
use crate::report::Report;
use crate::results::Results;

/// A benchmark's `main`. `run` says whether all is as it was asked for; if not, the process ends with 1. An error is
/// printed, and ends it with 2.
pub fn main<O: Parser>(name: &str, run: impl FnOnce(&O) -> Result<bool>) -> ExitCode {
    // SAFETY: nothing of this program's handles the signal. A reader that has seen enough of the table ends it quietly.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    match run(&O::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::from(2)
        }
    }
}

/// Shows the results, and writes them as `NAME.json` and `NAME.svg`, and into a page if there is to be one. `is_timed`
/// says whether it takes more than one round to know something.
pub fn finish<A: Serialize + Display>(
    name: &str,
    options: &Common,
    results: &Results<A>,
    report: &Report,
    svg: &str,
    is_timed: bool,
) -> Result<()> {
    let json = serde_json::to_string_pretty(results).map_err(|error| error.to_string())?;
    write(&options.output.join(format!("{name}.json")), &json)?;
    write(&options.output.join(format!("{name}.svg")), svg)?;
    if let Some(page) = &options.markdown {
        let old = std::fs::read_to_string(page).ok();
        let new = page::insert(old.as_deref(), &report.markdown(results))
            .map_err(|error| format!("{}: {error}", page.display()))?;
        write(page, &new)?;
    }
    println!("Measured for {:.0} s.", results.seconds);
    print!("{}", report.text(results));
    if is_timed && results.rounds < LEAST_ROUNDS {
        println!("\n{} rounds are not a result: it takes {LEAST_ROUNDS}.", results.rounds);
    }
    println!("\nAll figures are in {0}/{name}.json, a picture in {0}/{name}.svg.", options.output.display());
    Ok(())
}

/// Writes a file, and makes its folder where there is none.
pub fn write(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(path, text))
        .map_err(|error| format!("{} can't be written: {error}", path.display()))
}
