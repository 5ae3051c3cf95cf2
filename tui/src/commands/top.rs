//! `poolscope top`: the dashboard on a process that already runs.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use color_eyre::eyre::{Result, WrapErr};
use ratatui::layout::Size;

use crate::args::parse_size;
use crate::dashboard::control::run::{self, Outcome, Setup};
use crate::dashboard::events::watched::Watched;
use crate::dashboard::everybody::{self, Everybody};
use crate::dashboard::export;
use crate::dashboard::json::TopJson;
use crate::dashboard::model::Model;
use crate::dashboard::once;
use crate::dashboard::options::DashboardArgs;
use crate::dashboard::panes::{Source, VIEWS, named};
use crate::failure::Failure;
use crate::remote::{self, Server};
use crate::words::ended;
use crate::{sink, target};
use poolscope_profiler::reading::listed::ListedProcesses;
use poolscope_profiler::segment::discovery::SegmentEntry;

/// Open the dashboard on a process that already runs on the pool, or on what a dead one left behind
///
/// A process on another machine is watched through `poolscope serve` there: by http://HOST:PORT and its token, or over
/// `ssh -L 6060:127.0.0.1:6060 HOST` by http://127.0.0.1:6060. http://HOST:PORT/?pid=1234 names one of several.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  poolscope top\n  poolscope top redis-server --follow-name\n  poolscope top --all --once\n  poolscope top 1234 --once --view sites --size 160x50\n  \
    poolscope top http://127.0.0.1:6060\n  \
    poolscope top /dev/shm/poolscope-1000/1234.0123456789abcdef --json"
)]
pub(crate) struct Top {
    /// Process id, name of a program, file of a segment, or URL of a `poolscope serve`; without one, you choose from
    /// those that run
    #[arg(value_name = "PID|NAME|SEGMENT|URL")]
    target: Option<String>,
    /// File with the token that the server wants
    #[arg(long, value_name = "FILE", requires = "target")]
    token_file: Option<PathBuf>,
    /// Wait for a process of this name, and go on with the next one when it has ended
    #[arg(long, requires = "target", conflicts_with_all = ["once", "json"])]
    follow_name: bool,
    /// All processes together: a row for each, and call sites by name over all of them; with NAME, those that are
    /// called so
    #[arg(long, conflicts_with_all = ["follow_name", "view"])]
    all: bool,
    /// Print the table of the view as CSV, one row a line, and leave; of a view without a table, the call sites; with
    /// --all, the processes
    #[arg(long, conflicts_with_all = ["once", "json", "follow_name"])]
    csv: bool,
    /// Print one frame as text and leave
    #[arg(long, conflicts_with = "json")]
    once: bool,
    /// Print it in ASCII and without frames, for screen readers and logs
    #[arg(long, requires = "once")]
    plain: bool,
    /// Print the model as JSON and leave
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    frame: FrameArgs,
    #[command(flatten)]
    dashboard: DashboardArgs,
}

/// Of a frame that is printed.
const USUAL_SIZE: Size = Size::new(120, 36);

/// What --once prints.
#[derive(Debug, Args)]
pub(crate) struct FrameArgs {
    /// Size of the frame of --once: 120x36, or 100x60 if it is plain
    #[arg(long, value_name = "COLUMNSxROWS", value_parser = parse_size)]
    size: Option<Size>,
    /// View of the frame of --once, and of the table of --csv
    #[arg(long, value_name = "VIEW", default_value = "overview", value_parser = view_parser())]
    view: usize,
}

impl FrameArgs {
    /// A frame as text, plain or not.
    pub(crate) fn text(&self, model: Model, dashboard: &DashboardArgs, plain: bool) -> String {
        let size = self.size.unwrap_or(if plain { Size::new(100, 60) } else { USUAL_SIZE });
        once::text(model, self.view, size, dashboard.interval, dashboard.filter.as_deref(), plain)
    }

    fn columns_and_rows(&self) -> (usize, usize) {
        let size = self.size.unwrap_or(USUAL_SIZE);
        (size.width.into(), size.height.into())
    }
}

/// Takes the name of a view that one frame can show; gives its place in the table of views.
pub(crate) fn view_parser() -> impl TypedValueParser<Value = usize> {
    let shown = VIEWS.iter().filter(|view| view.source != Source::OwnProgram);
    let names = PossibleValuesParser::new(shown.map(|view| view.name));
    names.try_map(|name| named(&name).ok_or_else(|| format!("there is no view {name}")))
}

impl Top {
    pub(crate) fn run(self) -> Result<u8> {
        let interval = self.dashboard.interval;
        if self.all {
            return self.everybody();
        }
        if self.once || self.json || self.csv {
            let watched = match self.server()? {
                Some(server) => Watched::Server(server),
                None => Watched::Segment(self.one()?.path),
            };
            let model = once::read(watched, interval.min(Duration::from_secs(1))).map_err(Failure::usage)?;
            let filter = self.dashboard.filter.as_deref();
            let text = if self.csv {
                let mut out = Vec::new();
                let state = once::state(model, self.frame.view, USUAL_SIZE, interval, filter, false);
                export::csv(&state, &mut out)?;
                String::from_utf8(out)?
            } else if self.json {
                let model = once::filtered(model, filter);
                let profile = if filter.is_some() { Arc::new(model.shown()) } else { Arc::clone(&model.whole) };
                serde_json::to_string_pretty(&TopJson::of(&model, &profile))? + "\n"
            } else {
                self.frame.text(model, &self.dashboard, self.plain)
            };
            sink::print(&text)?;
            return Ok(0);
        }
        // Who is not there is said first: no terminal helps.
        let (watched, label, wanted_name) = self.watched()?;
        let server = self.server()?;
        self.show(Setup {
            watched,
            server,
            everybody: false,
            label,
            wanted_name,
            theme: self.dashboard.theme(),
            mouse: !self.dashboard.no_mouse,
            interval,
            filter: self.dashboard.filter.clone(),
            program: None,
        })
    }

    /// All processes together, once, or to choose from where a person looks.
    fn everybody(&self) -> Result<u8> {
        let name = self.target.as_deref();
        if let Some(target) = name.filter(|target| !target::is_name(target)) {
            return Err(Failure::usage(format!("--all takes the name of a program, and {target} is none")).into());
        }
        if self.csv {
            let mut out = Vec::new();
            export::write_csv(&everybody::table(name).map_err(Failure::usage)?, &mut out)?;
            sink::print(&String::from_utf8(out)?)?;
            return Ok(0);
        }
        let read = || Everybody::read(name).map_err(Failure::usage);
        if self.json {
            sink::print(&(serde_json::to_string_pretty(&read()?)? + "\n"))?;
            return Ok(0);
        }
        if self.once || !io::stdout().is_terminal() {
            let (columns, rows) = self.frame.columns_and_rows();
            sink::print(&read()?.text(columns, rows))?;
            return Ok(0);
        }
        let setup = Setup {
            watched: Watched::Nothing,
            server: None,
            everybody: true,
            label: String::new(),
            wanted_name: self.target.clone(),
            theme: self.dashboard.theme(),
            mouse: !self.dashboard.no_mouse,
            interval: self.dashboard.interval,
            filter: self.dashboard.filter.clone(),
            program: None,
        };
        self.show(setup)
    }

    /// Opens the dashboard on this terminal.
    fn show(&self, setup: Setup) -> Result<u8> {
        self.dashboard.choose_keys()?;
        need_terminal("print one frame with --once --plain, or the model with --json")?;
        let outcome = run::run(setup).wrap_err("the terminal failed")?;
        Ok(match outcome {
            Outcome::Signal(signal) => ended::of_signal(signal),
            Outcome::Left | Outcome::Detached => 0,
        })
    }

    /// What the dashboard opens on: the process that is meant, or a choice of those that may be.
    fn watched(&self) -> Result<(Watched, String, Option<String>), Failure> {
        let Some(target) = &self.target else {
            return Ok((Watched::Nothing, String::new(), None));
        };
        if let Some(server) = self.server()? {
            let label = server.to_string();
            // One that can't be asked just now says so in the dashboard, and is asked again.
            let is_several = |list: ListedProcesses| list.all && list.processes.len() != 1;
            if !server.names_process() && server.processes().is_ok_and(is_several) {
                return Ok((Watched::Nothing, label, None));
            }
            return Ok((Watched::Server(server), label, None));
        }
        if self.follow_name && target::is_name(target) {
            return Ok((Watched::Named(target.clone()), target.clone(), None));
        }
        if target::is_name(target) && target::named::all_running(target)?.len() > 1 {
            return Ok((Watched::Nothing, String::new(), Some(target.clone())));
        }
        let entry = target::find(target)?;
        Ok((Watched::Segment(entry.path), format!("process {}", entry.pid), None))
    }

    /// The server that is to be asked, if the target is a URL.
    fn server(&self) -> Result<Option<Server>, Failure> {
        let url = self.target.as_ref().filter(|target| remote::is_url(target));
        if url.is_none() && self.token_file.is_some() {
            return Err(Failure::usage("a token is for a server: name its URL".to_owned()));
        }
        url.map(|url| Server::of(url, self.token_file.as_deref())).transpose()
    }

    /// The one process that is meant, where nobody can choose.
    fn one(&self) -> Result<SegmentEntry, Failure> {
        let Some(target) = &self.target else {
            let why = "say which process: a process id, a name, or the file of a segment; `poolscope list` shows them";
            return Err(Failure::usage(why.to_owned()));
        };
        target::find(target)
    }
}

/// The dashboard draws on standard output.
pub(crate) fn need_terminal(instead: &str) -> Result<(), Failure> {
    if std::env::var_os("TERM").is_some_and(|term| term == "dumb") {
        let why = "the dashboard needs a terminal that moves its cursor, and this one can't (TERM=dumb)";
        return Err(Failure::usage(format!("{why}: {instead}")));
    }
    if io::stdout().is_terminal() {
        Ok(())
    } else {
        Err(Failure::usage(format!("the dashboard needs a terminal, and standard output is none: {instead}")))
    }
}
