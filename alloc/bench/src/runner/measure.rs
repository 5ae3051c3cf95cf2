//! One measurement: a program on an allocator, and the figures that it prints.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use crate::Result;
use crate::catalogue::{self, How, Row};
use crate::peers::Allocator;
use crate::redis;

/// What one run of a row gives. A row has at least one of them.
#[derive(Default)]
pub struct Figures {
    /// Nanoseconds per operation.
    pub time: Option<f64>,
    /// The largest resident memory, in bytes.
    pub peak: Option<f64>,
    /// The part of the resident memory that the program did not ask for.
    pub waste: Option<f64>,
}

/// Where the programs are.
pub struct Programs {
    pub workloads: PathBuf,
    /// poolscope's own.
    pub command: PathBuf,
    /// How long workloads run before they are measured; otherwise half as long as they are measured.
    pub warm_up: Option<Duration>,
}

/// The least.
const WARM_UP: Duration = Duration::from_millis(10);

/// A run that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// What the row `python` runs.
const PYTHON: &str = include_str!("program.py");

impl Programs {
    /// Measures `row` on `allocator` once.
    pub fn measure(&self, row: &Row, allocator: &Allocator) -> Result<Figures> {
        match &row.how {
            How::Workload { args, duration } => self.workload(args, *duration, allocator),
            How::Churn(kind) => {
                let mut command = on(allocator, &self.workloads);
                command.args(["churn", kind]);
                figures(&output(command)?)
            }
            How::Redis(test) => redis::measure(test, allocator),
            How::Python => {
                let mut command = self.program(allocator, &[catalogue::PYTHON, "-c", PYTHON]);
                // Python's own pools would take most of the calls.
                command.env("PYTHONMALLOC", "malloc").env("PYTHONHASHSEED", "0");
                figures(&output(command)?)
            }
            How::Memory(program) => {
                let figures = figures(&output(self.program(allocator, program))?)?;
                Ok(Figures { time: None, ..figures })
            }
        }
    }

    /// A row of the program `workloads`, for any length of time.
    pub fn workload(&self, args: &[String], duration: Duration, allocator: &Allocator) -> Result<Figures> {
        let mut command = on(allocator, &self.workloads);
        let warm_up = self.warm_up.unwrap_or((duration / 2).max(WARM_UP));
        command.arg("time").args([warm_up, duration].map(|time| time.as_millis().to_string())).args(args);
        figures(&output(command)?)
    }

    /// Another program, started by `workloads`, which has little memory of its own.
    fn program(&self, allocator: &Allocator, program: &[&str]) -> Command {
        let mut command = on(allocator, &self.workloads);
        command.env_remove("LD_PRELOAD").arg("program");
        command.arg(allocator.library.as_deref().unwrap_or(Path::new(""))).args(program);
        command
    }
}

/// The program with the allocator preloaded, and without anyone's settings.
pub fn on(allocator: &Allocator, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    let settings = ["LD_PRELOAD", "GLIBC_TUNABLES", "POOLSCOPE_", "MALLOC_", "MIMALLOC_", "TCMALLOC_", "TBB_MALLOC_"];
    for (name, _) in std::env::vars_os() {
        if settings.iter().any(|setting| name.to_string_lossy().starts_with(setting)) {
            command.env_remove(name);
        }
    }
    if let Some(library) = &allocator.library {
        command.env("LD_PRELOAD", library);
    }
    command.envs(allocator.environment.iter().map(|(name, value)| (name, value))).stdin(Stdio::null());
    command
}

/// What the program prints. One that fails or hangs is an error that says how.
pub fn output(mut command: Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.map_err(|error| format!("{name} can't be started: {error}"))?;
    let pid = child.id();
    let (ended, watch) = channel::<()>();
    let watchdog = std::thread::spawn(move || {
        let hangs = watch.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout);
        if hangs {
            // SAFETY: no memory is involved. The child has not been waited for, or `ended` would have been dropped.
            unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) };
        }
        hangs
    });
    let output = child.wait_with_output();
    drop(ended);
    if watchdog.join().unwrap_or(false) {
        return Err(format!("hung for {} s", LIMIT.as_secs()));
    }
    let output = output.map_err(|error| format!("{name}: {error}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}", output.status, errors.lines().last().unwrap_or("it said nothing")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Reads lines of a name and a number.
fn figures(text: &str) -> Result<Figures> {
    let mut figures = Figures::default();
    for line in text.lines() {
        let (name, value) = line.split_once(' ').ok_or(format!("not a figure: {line}"))?;
        let value = value.parse().map_err(|_| format!("not a figure: {line}"))?;
        match name {
            "ns" => figures.time = Some(value),
            "peak" => figures.peak = Some(value),
            "waste" => figures.waste = Some(value),
            _ => return Err(format!("not a figure: {line}")),
        }
    }
    Ok(figures)
}
