//! One measurement: a program on an allocator, and the figures that it prints.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use poolscope_bench::Result;
use poolscope_bench::results::Figures;

use crate::catalogue::{self, How, Row};
use crate::peers::Allocator;
use crate::process::{figures, on, output};
use crate::redis;

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
            How::Phases => {
                let mut command = on(allocator, &self.workloads);
                command.arg("phases");
                figures(&output(command)?)
            }
            How::Redis(test) => redis::measure(test, allocator),
            How::RedisMillion => redis::million(allocator),
            How::Python => {
                let mut command = self.program(allocator, &[catalogue::PYTHON, "-c", PYTHON]);
                // Python's own pools would take most of the calls.
                command.env("PYTHONMALLOC", "malloc").env("PYTHONHASHSEED", "0");
                figures(&output(command)?)
            }
            How::Memory(program) => {
                let mut figures = figures(&output(self.program(allocator, program))?)?;
                // How long it takes to start says nothing of the allocator.
                figures.remove("ns");
                Ok(figures)
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
