//! `poolscope top`: the dashboard on a process that already runs.

use std::io::{self, IsTerminal};
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use color_eyre::eyre::{Result, WrapErr};
use ratatui::layout::Size;

use crate::args::parse_size;
use crate::dashboard::control::run::{self, Outcome, Setup};
use crate::dashboard::events::feed::Watched;
use crate::dashboard::options::DashboardArgs;
use crate::dashboard::panes::{Source, VIEWS, named};
use crate::dashboard::{json, once};
use crate::failure::Failure;
use crate::words::ended;
use crate::{sink, target};

/// Open the dashboard on a process that already runs on the pool, or on what a dead one left behind
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  poolscope top 1234\n  poolscope top 1234 --once --view sites --size 160x50\n  \
    poolscope top /dev/shm/poolscope-1000/1234.0123456789abcdef --json")]
pub(crate) struct Top {
    /// Process id, or the file of a segment
    #[arg(value_name = "PID|SEGMENT")]
    target: String,
    /// Print one frame as text and leave
    #[arg(long, conflicts_with = "json")]
    once: bool,
    /// Print the model as JSON and leave
    #[arg(long)]
    json: bool,
    /// Size of the frame of --once
    #[arg(long, value_name = "COLUMNSxROWS", default_value = "120x36", value_parser = parse_size)]
    size: Size,
    /// View of the frame of --once
    #[arg(long, value_name = "VIEW", default_value = "overview", value_parser = view_parser())]
    view: usize,
    #[command(flatten)]
    dashboard: DashboardArgs,
}

/// Takes the name of a view that shows readings; gives its place in the table of views.
fn view_parser() -> impl TypedValueParser<Value = usize> {
    let readings = VIEWS.iter().filter(|view| view.source == Source::Readings);
    let names = PossibleValuesParser::new(readings.map(|view| view.name));
    names.try_map(|name| named(&name).ok_or_else(|| format!("there is no view {name}")))
}

impl Top {
    pub(crate) fn run(self) -> Result<u8> {
        let entry = target::find(&self.target)?;
        let watched = Watched::Segment(entry.path);
        let interval = self.dashboard.interval;
        if self.once || self.json {
            let model = once::read(watched, interval.min(Duration::from_secs(1))).map_err(Failure::usage)?;
            let text = if self.json {
                serde_json::to_string_pretty(&json::to_json(&model)?)? + "\n"
            } else {
                once::text(model, self.view, self.size, interval)
            };
            sink::print(&text)?;
            return Ok(0);
        }
        need_terminal("print one frame with --once, or the model with --json")?;
        let outcome = run::run(Setup {
            watched,
            label: format!("process {}", entry.pid),
            theme: self.dashboard.theme(),
            mouse: !self.dashboard.no_mouse,
            interval,
            program: None,
        })
        .wrap_err("the terminal failed")?;
        Ok(match outcome {
            Outcome::Signal(signal) => ended::of_signal(signal),
            Outcome::Left | Outcome::Detached => 0,
        })
    }
}

/// The dashboard draws on standard output.
pub(crate) fn need_terminal(instead: &str) -> Result<(), Failure> {
    if io::stdout().is_terminal() {
        Ok(())
    } else {
        Err(Failure::usage(format!("the dashboard needs a terminal, and standard output is none: {instead}")))
    }
}
