//! The `poolscope` command: runs programs on the pool, watches them live, dumps their heap, checks them for leaks.

mod args;
mod cli;
mod commands;
mod dashboard;
mod failure;
mod launch;
mod remote;
#[cfg(test)]
mod schemas;
mod sink;
mod symbols;
mod target;
mod version;
mod words;

use std::process::ExitCode;

fn main() -> ExitCode {
    // A panic is the only thing that color-eyre's own report is for; what the user can mend is said in one line.
    let _ = color_eyre::config::HookBuilder::default().display_env_section(false).install();
    let cli = cli::parse();
    symbols::set_debug_dirs(cli.debug_dir);
    let named = symbols::set_naming(&cli.by_caller, &cli.naming).map_err(color_eyre::Report::from);
    match named.and_then(|()| cli.command.run()) {
        Ok(code) => ExitCode::from(code),
        Err(report) if sink::is_broken_pipe(&report) => ExitCode::SUCCESS,
        Err(report) => {
            let code = report.downcast_ref::<failure::Failure>().map_or(2, |f| f.code);
            sink::say(&format!("{report:#}"));
            ExitCode::from(code)
        }
    }
}
