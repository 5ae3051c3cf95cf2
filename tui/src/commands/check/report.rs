//! What a check says: text, JSON, and what other tools read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use color_eyre::eyre::Result;
use poolscope_profiler::leaks::json::LeaksJson;
use poolscope_profiler::leaks::outputs::{Outcome, Run};
use poolscope_profiler::leaks::suppressions::Suppressions;
use poolscope_profiler::leaks::{LeakReport, Shown};
use poolscope_profiler::segment::discovery::SegmentEntry;
use poolscope_profiler::words::figures;
use serde::Serialize;

use super::Question;
use super::judge::{Process, Verdict};
use crate::sink;
use crate::words::Ended;

/// Files and streams that other tools read.
#[derive(Debug, clap::Args)]
pub(super) struct Outputs {
    /// File for a test report in JUnit's form: each process is a test
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// File for a report in SARIF 2.1.0, for code scanning
    #[arg(long, value_name = "FILE")]
    sarif: Option<PathBuf>,
    /// Write annotations for a workflow at GitHub to standard output
    #[arg(long, conflicts_with = "json")]
    github: bool,
    /// File for suppressions of just what was found, in valgrind's form
    #[arg(long, value_name = "FILE")]
    write_suppressions: Option<PathBuf>,
}

/// What came of a run.
pub(super) struct Report<'a> {
    pub(super) command: String,
    pub(super) question: Question,
    /// The program has the pool in itself.
    pub(super) has_own_pool: bool,
    pub(super) proved: bool,
    pub(super) processes: &'a [Process],
    pub(super) suppressions: &'a Suppressions,
    pub(super) ended: Ended,
    pub(super) leaked: bool,
    pub(super) code: u8,
}

impl Outputs {
    /// Writes what was asked for.
    pub(super) fn write(&self, report: &Report<'_>) -> Result<()> {
        let outcomes = report.processes.iter().map(outcome).collect();
        let run = Run { command: report.command.clone(), exit_code: report.code, outcomes };
        let write = |path: &Path, text: String| sink::write(path, |out| out.write_all(text.as_bytes()));
        if let Some(path) = &self.junit {
            write(path, run.to_junit())?;
        }
        if let Some(path) = &self.sarif {
            write(path, run.to_sarif()?)?;
        }
        if let Some(path) = &self.write_suppressions {
            write(path, run.to_suppressions())?;
        }
        if self.github {
            sink::print(&run.to_github(std::env::var("GITHUB_WORKSPACE").ok().as_deref()))?;
        }
        Ok(())
    }
}

fn outcome(process: &Process) -> Outcome<'_> {
    let report = match &process.verdict {
        Verdict::Judged(report) => Some(report),
        Verdict::NotJudged(_) => None,
    };
    Outcome { command: process.command(), pid: process.entry.pid, report, not_checked: process.doubt() }
}

impl Report<'_> {
    fn reports(&self) -> impl Iterator<Item = &LeakReport> + Clone {
        self.processes.iter().filter_map(|process| match &process.verdict {
            Verdict::Judged(report) => Some(report),
            Verdict::NotJudged(_) => None,
        })
    }

    /// With a part of each process's leaks.
    pub(super) fn to_text(&self, shown: Shown) -> String {
        let mut out = String::new();
        let clean = self.reports().filter(|report| !report.has_leaks()).count();
        for (i, process) in self.processes.iter().enumerate() {
            // Of children only what has something to say is shown.
            let is_quiet = !process.has_leaks() && process.doubt().is_none() && self.question != Question::All;
            if i > 0 && is_quiet {
                continue;
            }
            let forked = if process.entry.forked { ", a forked child" } else { "" };
            out += &format!("\npoolscope check: {} (pid {}{forked})\n", process.command(), process.entry.pid);
            if let Verdict::Judged(report) = &process.verdict {
                out += &report.to_text_of(shown);
            }
            if let Some(why) = process.doubt() {
                out += &format!("Could not be checked: {why}.\n");
            }
        }
        if self.processes.len() > 1 {
            out += &format!("\n{} processes, {clean} without leaks.\n", self.processes.len());
        }
        out += &self.of_programs();
        for unused in self.suppressions.unused(self.reports()) {
            out += &format!("This suppression held nothing: {unused}\n");
        }
        if self.reports().any(|report| report.leaks.len().max(report.reachable.len()) > shown.leaks) {
            let most = shown.leaks;
            out += &format!("With --max-leaks {most}: 0 prints all stacks, and --output FILE has them all.\n");
        }
        if self.reports().any(|report| report.has_more_frames_than(shown)) {
            let most = shown.frames;
            out += &format!("With --max-frames {most}: 0 prints whole stacks, and --output FILE has them whole.\n");
        }
        if self.proved {
            out += "The leak that was planted in each process was found.\n";
        }
        if self.has_own_pool {
            out += "The program has the pool in itself: its Rust code was looked at, not what it takes from malloc, nor \
                    programs that it starts.\n";
        }
        if self.ended != Ended::Code(0) {
            out += &format!("The program {}.\n", self.ended);
        }
        out
    }

    /// What programs of the system lost. Of processes that have nothing else to say nothing else is shown.
    fn of_programs(&self) -> String {
        let mut lost: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for process in self.processes {
            let Verdict::Judged(report) = &process.verdict else { continue };
            for kept in report.suppressed.iter().filter(|kept| kept.of_program) {
                let (blocks, bytes) = lost.entry(&process.entry.exe).or_default();
                *blocks += kept.objects;
                *bytes += kept.bytes;
            }
        }
        let amount = |(path, (blocks, bytes)): (&&str, &(u64, u64))| {
            format!("{} ({} B) of {path}", figures::count(*blocks, "block"), figures::grouped(*bytes))
        };
        match lost.is_empty() {
            true => String::new(),
            false => format!(
                "Suppressed by rules for programs of the system (--no-program-rules reports them): {}.\n",
                lost.iter().map(amount).collect::<Vec<_>>().join(", ")
            ),
        }
    }

    pub(super) fn to_json(&self) -> Result<String> {
        let processes = self.processes.iter().map(|process| {
            let report = match &process.verdict {
                Verdict::Judged(report) => Some(report.json()),
                Verdict::NotJudged(_) => None,
            };
            let SegmentEntry { pid, exe, args, forked, .. } = &process.entry;
            ProcessJson { pid: *pid, exe, args, forked: *forked, not_checked: process.doubt(), report }
        });
        let json = CheckJson {
            version: 1,
            question: self.question.name(),
            leaked: self.leaked,
            bytes: self.reports().map(LeakReport::bytes).sum::<u64>(),
            objects: self.reports().map(LeakReport::objects).sum::<u64>(),
            proved: self.proved,
            unused_suppressions: self.suppressions.unused(self.reports()),
            exit_code: self.code,
            program_exit_code: self.ended.exit_code(),
            processes: processes.collect(),
        };
        Ok(serde_json::to_string_pretty(&json)? + "\n")
    }
}

/// What is written of a run.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CheckJson<'a> {
    version: u32,
    /// `leaks`, `growth` or `all`.
    question: &'static str,
    leaked: bool,
    /// Of all processes.
    bytes: u64,
    objects: u64,
    /// The leak that was planted in each process was found.
    proved: bool,
    /// Suppressions that held nothing.
    unused_suppressions: Vec<String>,
    exit_code: u8,
    program_exit_code: u8,
    /// The program's own first.
    processes: Vec<ProcessJson<'a>>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ProcessJson<'a> {
    pid: u32,
    exe: &'a str,
    args: &'a [String],
    forked: bool,
    /// Why leaks may be missing.
    not_checked: Option<String>,
    /// Null if nothing can be said of it.
    report: Option<LeaksJson<'a>>,
}
