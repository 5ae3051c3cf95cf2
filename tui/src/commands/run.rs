//! `poolscope run`: starts a program on the pool and opens the dashboard on it.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, ValueHint};
use color_eyre::eyre::{Result, WrapErr};
use signal_hook::consts::SIGHUP;

use super::top::need_terminal;
use super::watch::Triggers;
use crate::args::parse_period;
use crate::dashboard::control::run::{self, Outcome, Setup, Started};
use crate::dashboard::events::watched::Watched;
use crate::dashboard::options::DashboardArgs;
use crate::launch::child::{self, Program};
use crate::launch::{library, preload, sanitizer};
use crate::words::{Ended, ended, file_name};
use crate::{sink, version};

/// Start a program on the pool and open the dashboard on it
///
/// The program's output goes to a file, whose end the dashboard shows; its standard input is empty. Its exit code
/// becomes poolscope's (128 and the signal's number if one killed it).
///
/// Quitting while the program runs asks: q again sends it SIGTERM and waits for its end, d leaves it running. A
/// signal that ends poolscope is passed on to the program.
///
/// With --headless there is no dashboard: poolscope becomes the program, which keeps the terminal, the signals and
/// the process id; `poolscope top PID` attaches from elsewhere.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  poolscope run -- ./server --port 7000\n  \
    poolscope run --headless --period 64KiB -- python3 train.py\n  \
    poolscope run --headless --dump-at-rss 2G --dump-dir /var/tmp -- ./server")]
pub(crate) struct Run {
    /// No dashboard: become the program
    #[arg(long)]
    headless: bool,
    /// Mean number of bytes between two samples: 512KiB, 1M; 0 or 1 records every allocation
    #[arg(long, value_name = "BYTES", value_parser = parse_period)]
    period: Option<u64>,
    /// File for the program's standard output and standard error
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    triggers: Triggers,
    #[command(flatten)]
    dashboard: DashboardArgs,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

/// The variable by which a program copies its segment as it ends.
const DUMP_AT_EXIT: &str = "POOLSCOPE_DUMP_AT_EXIT";

/// How long a program that poolscope passed a signal on to may take to end.
const GRACE: Duration = Duration::from_secs(5);

impl Run {
    pub(crate) fn run(self) -> Result<u8> {
        self.triggers.check()?;
        sanitizer::refuse(&self.command[0])?;
        let library = library::find()?;
        if let Err(other) = version::check_library(&library) {
            // The program is served all the same.
            sink::say(&other.message);
        }
        let mut command = preload::command(&self.command, &library, self.period);
        if self.headless {
            if let Some(path) = &self.output {
                let file = create(path)?;
                command.stdout(file.try_clone()?).stderr(file);
            }
            // The watcher speaks where poolscope does, which is where the program will.
            self.triggers.watch(std::process::id(), Stdio::inherit())?;
            return Err(child::exec(&mut command).into());
        }
        self.dashboard.choose_keys()?;
        need_terminal("start the program with --headless, and attach with poolscope top from a terminal")?;
        let name = file_name(&self.command[0].to_string_lossy()).to_owned();
        let (path, file) = match self.output {
            Some(path) => {
                let file = create(&path)?;
                (path, file)
            }
            None => create_unique(&name)?,
        };
        let messages = file.try_clone()?;
        // What it has in use as it ends is looked at even if it ends before a first reading.
        let end = std::env::temp_dir().join(format!("poolscope-{name}-{}.end", std::process::id()));
        let chosen = std::env::var_os(DUMP_AT_EXIT).is_some();
        let end = (!chosen).then_some(end);
        if let Some(end) = &end {
            command.env(DUMP_AT_EXIT, end);
        }
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let program = match Program::start(command) {
            Ok(program) => program,
            Err(failure) => {
                let _ = std::fs::remove_file(&path);
                return Err(failure.into());
            }
        };
        if let Err(error) = self.triggers.watch(program.pid(), messages.into()) {
            sink::say(&format!("{error:#}"));
        }
        let outcome = run::run(Setup {
            watched: Watched::Started(program.pid()),
            server: None,
            everybody: false,
            label: name.clone(),
            wanted_name: None,
            theme: self.dashboard.theme(),
            mouse: !self.dashboard.no_mouse,
            interval: self.dashboard.interval,
            filter: self.dashboard.filter,
            program: Some(Started { program: Arc::clone(&program), output: path.clone(), end: end.clone() }),
        })
        .wrap_err("the terminal failed");
        let code = finish(&name, &program, &outcome);
        match &end {
            Some(end) if program.wait(Duration::ZERO).is_none() => {
                sink::say(&format!("what it has in use as it ends will be in {}", end.display()));
            }
            // There is none of a program that was killed.
            Some(end) => drop(std::fs::remove_file(end)),
            None => {}
        }
        sink::say(&format!("output of {name} is in {}", path.display()));
        outcome.map(|_| code)
    }
}

/// Says what became of the program; gives the exit code.
fn finish(name: &str, program: &Program, outcome: &Result<Outcome>) -> u8 {
    if let Ok(Outcome::Detached) = outcome
        && program.wait(Duration::ZERO).is_none()
    {
        let pid = program.pid();
        sink::say(&format!("{name} runs on as process {pid}; attach again with: poolscope top {pid}"));
        return 0;
    }
    match outcome {
        Ok(Outcome::Signal(signal)) => program.signal(*signal),
        // The terminal is gone, and SIGHUP says so.
        Err(_) => program.signal(SIGHUP),
        Ok(_) => {}
    }
    match program.wait(GRACE) {
        Some(ended) => {
            if ended != Ended::Code(0) {
                sink::say(&format!("{name} {ended}"));
            }
            ended.exit_code()
        }
        None => {
            let pid = program.pid();
            sink::say(&format!("{name} still runs as process {pid}; kill -KILL {pid} ends it"));
            match outcome {
                Ok(Outcome::Signal(signal)) => ended::of_signal(*signal),
                _ => 2,
            }
        }
    }
}

fn create(path: &Path) -> Result<File> {
    File::create(path).wrap_err_with(|| format!("cannot write the program's output to {}", path.display()))
}

/// A file that nobody else could have put there, readable by this user only.
fn create_unique(name: &str) -> Result<(PathBuf, File)> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let file_name = format!("poolscope-{name}-{}-{:06x}.log", std::process::id(), now & 0xff_ffff);
    let path = std::env::temp_dir().join(file_name);
    let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path).wrap_err_with(|| {
        format!("cannot create {} for the program's output; name a file by --output", path.display())
    })?;
    Ok((path, file))
}
