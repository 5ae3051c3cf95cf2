//! `poolscope whatif --host`: what other ways to place blocks would hold of a recorded program's memory.

use std::fmt;
use std::path::Path;

use color_eyre::eyre::Result;
use poolscope_profiler::recording::file::reader::RecordingReader;
use poolscope_profiler::recording::whatif;
use serde::Serialize;

use crate::failure::Failure;
use crate::sink;
use crate::words::numbers;

/// What a policy would hold. Bytes.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Outcome {
    policy: String,
    peak_held: u64,
    /// For each byte in use, on average over the allocations and frees.
    mean_held_to_live: f64,
    end_held: u64,
}

/// Bytes.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct HostReport {
    recording: String,
    operations: u64,
    peak_live: u64,
    end_live: u64,
    policies: Vec<Outcome>,
}

pub(super) fn run(path: &Path, json: bool) -> Result<u8> {
    let failed = |error: &dyn fmt::Display| Failure::usage(error.to_string());
    if !RecordingReader::is_recording(path) {
        let message =
            format!("{}: --host takes a recording: poolscope record --lossless -o FILE -- PROGRAM", path.display());
        return Err(Failure::usage(message).into());
    }
    let mut reader = RecordingReader::open(path).map_err(|error| failed(&error))?;
    let found = whatif::run(&mut reader).map_err(|error| failed(&error))?;
    if found.operations == 0 {
        return Err(
            Failure::usage(format!("{}: the recording has no event of the host's memory", path.display())).into()
        );
    }
    let policies = found.policies.into_iter().map(|it| Outcome {
        policy: it.label,
        peak_held: it.peak,
        mean_held_to_live: it.mean,
        end_held: it.end,
    });
    let report = HostReport {
        recording: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        operations: found.operations,
        peak_live: found.peak_live,
        end_live: found.end_live,
        policies: policies.collect(),
    };
    let text = if json { serde_json::to_string_pretty(&report)? + "\n" } else { report.to_string() };
    sink::print(&text)?;
    Ok(0)
}

impl fmt::Display for HostReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |value: u64| numbers::bytes(value as f64);
        writeln!(
            f,
            "{}: {} allocations and frees, {} in use at most, {} at the end\n",
            self.recording,
            numbers::grouped(self.operations),
            bytes(self.peak_live),
            bytes(self.end_live)
        )?;
        writeln!(f, "{:<44}{:>12}{:>10}{:>14}{:>12}", "policy", "peak", "of live", "mean of live", "at the end")?;
        for it in &self.policies {
            writeln!(
                f,
                "{:<44}{:>12}{:>10.2}{:>14.2}{:>12}",
                it.policy,
                bytes(it.peak_held),
                it.peak_held as f64 / self.peak_live.max(1) as f64,
                it.mean_held_to_live,
                bytes(it.end_held)
            )?;
        }
        writeln!(
            f,
            "\nWhat each would hold: pages with memory behind them, without what a pool needs for itself, and without what\n\
             it gives back only after a while. POOLSCOPE_GOAL chooses between the first three."
        )
    }
}
