//! The command line.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use color_eyre::eyre::Result;

use crate::commands::{
    bench, check, completions, convert, diff, dump, flamegraph, gc, help, leaks, list, man, record, replay, report,
    run, serve, stats, tensors, top, watch, whatif,
};
use crate::{sink, version};

/// An instrumented memory pool: run programs on it, watch their heap live, dump it, check it for leaks.
#[derive(Debug, Parser)]
#[command(
    name = "poolscope",
    version,
    disable_help_subcommand = true,
    max_term_width = 100,
    after_help = "Topics: poolscope help memory, poolscope help reading, poolscope help hunting\n\nExit codes: 2 for poolscope's own failures; run, record and check \
    pass the program's code on; check exits with 23 if anything leaked, with 24 if that could not be said."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Look for separate debug information in this folder, too: DIR/.build-id/ab/cdef.debug
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) debug_dir: Vec<PathBuf>,
    /// Name call sites by the caller of this function, as of malloc: `xmalloc`, `mem::tensor`, `fn:PATTERN`,
    /// `file:PATTERN` or `module:PATTERN`
    #[arg(long, value_name = "FUNCTION", global = true)]
    pub(crate) by_caller: Vec<String>,
    /// The same for each line of a file; # begins a comment
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) naming: Vec<PathBuf>,
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
    Convert(convert::Convert),
    Flamegraph(flamegraph::Flamegraph),
    Check(check::Check),
    Gc(gc::Gc),
    Serve(serve::Serve),
    Watch(watch::Watch),
    Leaks(leaks::Leaks),
    Bench(bench::Bench),
    Whatif(whatif::Whatif),
    Record(record::Record),
    Replay(replay::Replay),
    Report(report::Report),
    Tensors(tensors::Tensors),
    Help(help::Help),
    Completions(completions::Completions),
    Man(man::Man),
}

/// Reads the command line. What is wrong with it, help and the version are said here, and end the process.
pub(crate) fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|error| {
        if error.kind() == ErrorKind::DisplayVersion {
            let said = sink::print(&version::text());
            std::process::exit(if said.is_ok() { 0 } else { 2 });
        }
        error.exit()
    })
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
            Command::Convert(convert) => convert.run(),
            Command::Flamegraph(flamegraph) => flamegraph.run(),
            Command::Check(check) => check.run(),
            Command::Gc(gc) => gc.run(),
            Command::Serve(serve) => serve.run(),
            Command::Watch(watch) => watch.run(),
            Command::Leaks(leaks) => leaks.run(),
            Command::Bench(bench) => bench.run(),
            Command::Whatif(whatif) => whatif.run(),
            Command::Record(record) => record.run(),
            Command::Replay(replay) => replay.run(),
            Command::Report(report) => report.run(),
            Command::Tensors(tensors) => tensors.run(),
            Command::Help(help) => help.run(Cli::command()),
            Command::Completions(completions) => completions.run(Cli::command()),
            Command::Man(man) => man.run(Cli::command()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
