//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use color_eyre::eyre::Result;
use ratatui::layout::Size;

use crate::commands::{
    bench, check, diff, dump, flamegraph, gc, leaks, list, record, report, run, serve, stats, top, watch, whatif,
};
use crate::dashboard::theme::ThemeChoice;

/// An instrumented memory pool: run programs on it, watch their heap live, dump it, check it for leaks.
#[derive(Debug, Parser)]
#[command(
    version,
    max_term_width = 100,
    after_help = "Exit codes: 2 for poolscope's own failures; run, record and check \
    pass the program's code on; check exits with 23 if anything leaked, with 24 if that could not be said."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Look for separate debug information in this folder, too: DIR/.build-id/ab/cdef.debug
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) debug_dir: Vec<PathBuf>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(run::Run),
    List(list::List),
    Top(top::Top),
    Stats(stats::Stats),
    Dump(dump::Dump),
    Diff(diff::Diff),
    Flamegraph(flamegraph::Flamegraph),
    Check(check::Check),
    Gc(gc::Gc),
    Serve(serve::Serve),
    Watch(watch::Watch),
    Leaks(leaks::Leaks),
    Bench(bench::Bench),
    Whatif(whatif::Whatif),
    Record(record::Record),
    Report(report::Report),
}

impl Command {
    /// Does it; gives the exit code.
    pub(crate) fn run(self) -> Result<u8> {
        match self {
            Command::Run(run) => run.run(),
            Command::List(list) => list.run(),
            Command::Top(top) => top.run(),
            Command::Stats(stats) => stats.run(),
            Command::Dump(dump) => dump.run(),
            Command::Diff(diff) => diff.run(),
            Command::Flamegraph(flamegraph) => flamegraph.run(),
            Command::Check(check) => check.run(),
            Command::Gc(gc) => gc.run(),
            Command::Serve(serve) => serve.run(),
            Command::Watch(watch) => watch.run(),
            Command::Leaks(leaks) => leaks.run(),
            Command::Bench(bench) => bench.run(),
            Command::Whatif(whatif) => whatif.run(),
            Command::Record(record) => record.run(),
            Command::Report(report) => report.run(),
        }
    }
}

/// How the dashboard looks and behaves.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct DashboardArgs {
    /// Time between two readings, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_interval)]
    pub(crate) interval: Duration,
    /// Colours
    #[arg(long, value_enum, default_value_t)]
    pub(crate) theme: ThemeChoice,
    /// Leave the mouse to the terminal, for selecting text
    #[arg(long)]
    pub(crate) no_mouse: bool,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds: write 1 or 0.5".to_owned())?;
    if (0.05..=3600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("between 0.05 and 3600 seconds".into())
    }
}

/// A time, `30` or `0.5`.
pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds: write 30 or 0.5".to_owned())?;
    if (0.01..=31_536_000.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("between 0.01 seconds and a year".into())
    }
}

/// `120x36`.
pub(crate) fn parse_size(text: &str) -> Result<Size, String> {
    let wrong = || "not a size: write COLUMNSxROWS, as 120x36".to_owned();
    let (width, height) = text.split_once('x').ok_or_else(wrong)?;
    let size = Size { width: width.parse().map_err(|_| wrong())?, height: height.parse().map_err(|_| wrong())? };
    if (1..=1000).contains(&size.width) && (1..=1000).contains(&size.height) {
        Ok(size)
    } else {
        Err("between 1x1 and 1000x1000".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        for command in Cli::command().get_subcommands() {
            let help = command.clone().render_long_help().to_string();
            assert!(help.contains("Example"), "{}", command.get_name());
        }
    }

    #[test]
    fn sizes_and_intervals() {
        assert_eq!(parse_size("120x36"), Ok(Size { width: 120, height: 36 }));
        assert!(parse_size("120").is_err() && parse_size("0x1").is_err() && parse_size("9999x9").is_err());
        assert_eq!(parse_interval("0.5"), Ok(Duration::from_millis(500)));
        assert!(parse_interval("0").is_err() && parse_interval("nan").is_err() && parse_interval("x").is_err());
    }
}
