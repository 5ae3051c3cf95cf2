//! `poolscope replay`: the dashboard on a recording, or on a profile in a file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use color_eyre::eyre::{Result, WrapErr};

use super::top::{FrameArgs, need_terminal};
use crate::args::parse_seconds;
use crate::dashboard::control::run::{self, Outcome, Setup};
use crate::dashboard::events::watched::Watched;
use crate::dashboard::once;
use crate::dashboard::options::DashboardArgs;
use crate::failure::Failure;
use crate::words::ended;
use crate::{sink, target};

/// Open the dashboard on a recording, and go to any moment of it
///
/// Space plays it, ( and ) go back and on, { and } to its start and end. Every view shows the process as it was then.
///
/// A profile of this or another tool can be looked at in the same way, without time: a pprof file, heaptrack's or
/// DHAT's data, or a snapshot of PyTorch's memory (torch.cuda.memory._dump_snapshot).
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  poolscope record -o app.rec -- ./app\n  poolscope replay app.rec\n  \
    poolscope replay app.rec --at 2.5 --once --view sites\n  poolscope replay snapshot.pickle")]
pub(crate) struct Replay {
    /// The file of a recording or of a profile
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The moment of a recording, in seconds since its start; its end if none is given
    #[arg(long, value_name = "SECONDS", requires = "once", value_parser = parse_seconds)]
    at: Option<Duration>,
    /// Print one frame as text and leave
    #[arg(long)]
    once: bool,
    /// Print it in ASCII and without frames, for screen readers and logs
    #[arg(long, requires = "once")]
    plain: bool,
    #[command(flatten)]
    frame: FrameArgs,
    #[command(flatten)]
    dashboard: DashboardArgs,
}

impl Replay {
    pub(crate) fn run(self) -> Result<u8> {
        let watched = watched(&self.file)?;
        let interval = self.dashboard.interval;
        if self.once {
            let at_us = self.at.map(|at| at.as_micros() as u64);
            let model = once::read_file(watched, at_us).map_err(Failure::usage)?;
            sink::print(&self.frame.text(model, &self.dashboard, self.plain))?;
            return Ok(0);
        }
        self.dashboard.choose_keys()?;
        need_terminal("print one frame with --once --plain, or a report by poolscope report")?;
        let outcome = run::run(Setup {
            watched,
            server: None,
            everybody: false,
            label: self.file.display().to_string(),
            wanted_name: None,
            theme: self.dashboard.theme(),
            mouse: !self.dashboard.no_mouse,
            interval: interval.min(PLAYED_EVERY),
            filter: self.dashboard.filter,
            program: None,
        })
        .wrap_err("the terminal failed")?;
        Ok(match outcome {
            Outcome::Signal(signal) => ended::of_signal(signal),
            Outcome::Left | Outcome::Detached => 0,
        })
    }
}

/// Between two moments of a recording that is played.
const PLAYED_EVERY: Duration = Duration::from_millis(250);

/// What a file is.
fn watched(file: &Path) -> Result<Watched, Failure> {
    let name = file.display();
    match std::fs::metadata(file) {
        Err(error) => Err(Failure::usage(format!("cannot read {name}: {error}"))),
        Ok(_) if target::is_recording(&file.to_string_lossy()) => Ok(Watched::Recording(file.to_owned())),
        Ok(_) if target::is_segment(file) => {
            Err(Failure::usage(format!("{name} is the segment of a process: poolscope top {name} shows it")))
        }
        Ok(_) => Ok(Watched::Profile(file.to_owned())),
    }
}
