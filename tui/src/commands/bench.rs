//! `poolscope bench`: a recorded trace on placement policies, side by side, and what the dashboard costs.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Subcommand};
use color_eyre::eyre::Result;
use poolscope_gpu::{Config, Cuda, Device, Simulated, Stream};
use poolscope_profiler::recording::file::reader::RecordingReader;
use poolscope_replay::{Trace, Trial, policies};
use serde::Serialize;

use super::dashboard_cost::Dashboard;
use super::gpu_trace;
use crate::args::parse_bytes;
use crate::failure::Failure;
use crate::words::numbers;
use crate::{sink, target};

/// Compare ways of placing memory, on a program's own trace; measure what the dashboard costs
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Example:\n  poolscope bench gpu --trace model.trace.gz --policy tiered,bfc,async"
)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Gpu(Gpu),
    Dashboard(Dashboard),
}

/// Replay a trace of device memory on placement policies
///
/// A trace has one operation a line, `+ ID SIZE STREAM` or `- ID`, plain or packed by gzip; SIZE is in bytes. A
/// recording is one as well. The first pass is cold: the policy has no memory then. Of the passes after it the later
/// half count as warm: times are their median, what the driver does their mean.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  poolscope bench gpu --trace model.trace.gz\n  \
    poolscope bench gpu --trace model.rec --of-device 1\n  \
    poolscope bench gpu --trace model.trace.gz --policy tiered,async --device 0 --json | jq .policies[].peak_reserved")]
struct Gpu {
    /// The recorded trace, or a recording of `poolscope record`
    #[arg(long, value_name = "FILE", required_unless_present = "file")]
    trace: Option<PathBuf>,
    /// The same without `--trace`, as `whatif` has it
    #[arg(value_name = "FILE", hide = true, conflicts_with = "trace")]
    file: Option<PathBuf>,
    /// Of a recording: the device whose memory is replayed; to be named if it has several
    #[arg(long, value_name = "N")]
    of_device: Option<u32>,
    /// The policies, by name
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_values = policies::NAMES,
          value_parser = known_policies())]
    policy: Vec<String>,
    /// `sim`, the simulated device, or the number of a CUDA device
    #[arg(long, value_name = "sim|N", default_value = "sim", value_parser = parse_device)]
    device: Place,
    /// Passes over the trace
    #[arg(long, value_name = "N", default_value = "9", value_parser = clap::value_parser!(u16).range(1..=1000))]
    passes: u16,
    /// Memory of the simulated device; 140G if not given
    #[arg(long, value_name = "BYTES", value_parser = parse_memory)]
    memory: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The policies' names, with what each does for the help.
fn known_policies() -> PossibleValuesParser {
    let value = |name| PossibleValue::new(name).help(policies::describe(name).unwrap_or_default());
    PossibleValuesParser::new(policies::NAMES.map(value))
}

/// The memory of a simulated device of which nothing is said: an H200's.
pub(crate) const MEMORY: u64 = 140 << 30;

/// Where a trace is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Simulated,
    Cuda(u32),
}

fn parse_device(text: &str) -> Result<Place, String> {
    match text {
        "sim" => Ok(Place::Simulated),
        number => {
            number.parse().map(Place::Cuda).map_err(|_| "write sim, or the number of a device, from 0".to_owned())
        }
    }
}

/// The memory of a simulated device.
pub(crate) fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if (1 << 21..=1 << 46).contains(&bytes) { Ok(bytes) } else { Err("between 2M and 64T".to_owned()) }
}

/// One policy's figures.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Line {
    policy: &'static str,
    /// Why there are no figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    figures: Option<Figures>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Figures {
    cold: Half,
    warm: Half,
    /// Bytes, the most of all passes.
    peak_reserved: u64,
    /// `1 - peak live / peak reserved`.
    fragmentation: f64,
    passes: Vec<One>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Half {
    ns_per_operation: f64,
    /// On the simulated device: what the driver would charge.
    driver_ns_per_operation: Option<f64>,
    driver_calls_per_1000: f64,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct One {
    ns_per_operation: f64,
    driver_calls: u64,
    peak_reserved: u64,
}

/// What was compared, on what.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Report {
    trace: String,
    operations: u64,
    streams: usize,
    /// Bytes.
    peak_live: u64,
    device: String,
    /// Bytes.
    memory: u64,
    /// Nanoseconds an operation that the replay's own loop takes; part of every figure.
    loop_ns: f64,
    policies: Vec<Line>,
}

impl Bench {
    pub(crate) fn run(self) -> Result<u8> {
        match self.what {
            What::Gpu(gpu) => gpu.run(),
            What::Dashboard(dashboard) => dashboard.run(),
        }
    }
}

/// Reads a trace, or what a recording says of a device's memory; or says in words for people why it can't.
pub(crate) fn open_trace(path: &std::path::Path, of_device: Option<u32>) -> Result<Trace> {
    let trace = if RecordingReader::is_recording(path) {
        gpu_trace::read(path, of_device)?
    } else if target::is_segment(path) {
        let message = format!(
            "{0} is the segment of a process, which has no trace: record the process, and name the recording",
            path.display()
        );
        return Err(Failure::usage(message).into());
    } else if of_device.is_some() {
        return Err(Failure::usage("--of-device is for recordings: a trace is of one device").into());
    } else {
        Trace::open(path).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?
    };
    if trace.is_empty() {
        return Err(Failure::usage(format!("{}: the trace has no operation", path.display())).into());
    }
    Ok(trace)
}

impl Gpu {
    fn path(&self) -> Option<&Path> {
        self.trace.as_deref().or(self.file.as_deref())
    }

    fn run(self) -> Result<u8> {
        let path = self.path().ok_or_else(|| Failure::usage("name a trace by --trace FILE"))?;
        let trace = open_trace(path, self.of_device)?;
        let report = match self.device {
            Place::Simulated => {
                let memory = self.memory.unwrap_or(MEMORY);
                self.compare(&trace, true, || {
                    let device = Arc::new(Simulated::new(memory));
                    let streams = (0..trace.streams()).map(|_| device.non_blocking_stream()).collect();
                    Ok((device, streams))
                })?
            }
            Place::Cuda(ordinal) => {
                if self.memory.is_some() {
                    return Err(Failure::usage("--memory is the simulated device's: a real one has what it has").into());
                }
                let no_device = |error| Failure::usage(format!("--device {ordinal}: {error}"));
                let device = Arc::new(Cuda::open(ordinal).map_err(no_device)?);
                let streams: Result<Vec<Stream>, _> = (0..trace.streams()).map(|_| device.create_stream()).collect();
                let streams = streams.map_err(no_device)?;
                let report = self.compare(&trace, false, || Ok((device.clone(), streams.clone())))?;
                streams.into_iter().for_each(|stream| device.destroy_stream(stream));
                report
            }
        };
        if self.json {
            sink::print(&(serde_json::to_string_pretty(&report)? + "\n"))?;
        } else {
            sink::print(&report.to_string())?;
        }
        Ok(u8::from(report.policies.iter().all(|line| line.error.is_some())) * 2)
    }

    /// Runs the policies one after the other. `priced`: the device's clock goes by what calls cost.
    fn compare<D: Device>(
        &self,
        trace: &Trace,
        priced: bool,
        device: impl Fn() -> Result<(Arc<D>, Vec<Stream>)>,
    ) -> Result<Report> {
        let (about, _) = device()?;
        let properties = about.properties();
        drop(about);
        let mut lines = Vec::new();
        for name in &self.policy {
            let (device, streams) = device()?;
            let trial = Trial::run(name, &Config::default(), &device, streams, trace, usize::from(self.passes));
            // The names are those that clap let through.
            let Some(trial) = trial else { continue };
            let policy = policies::NAMES.into_iter().find(|known| known == name).unwrap_or_default();
            lines.push(match trial {
                Ok(trial) => Line { policy, error: None, figures: Some(figures(&trial, trace, priced)) },
                Err(error) => Line { policy, error: Some(error.to_string()), figures: None },
            });
        }
        Ok(Report {
            trace: self.path().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned(),
            operations: trace.operations(),
            streams: trace.streams(),
            peak_live: trace.peak(),
            device: properties.name,
            memory: properties.memory,
            loop_ns: trace.loop_cost().per_operation(),
            policies: lines,
        })
    }
}

fn figures(trial: &Trial, trace: &Trace, priced: bool) -> Figures {
    let operations = trace.operations() as f64;
    let cold = trial.cold();
    Figures {
        cold: Half {
            ns_per_operation: cold.pass.per_operation(),
            driver_ns_per_operation: priced.then(|| cold.device_time as f64 / operations),
            driver_calls_per_1000: cold.pass.calls_per_thousand(),
        },
        warm: Half {
            ns_per_operation: trial.warm_median(|it| it.pass.per_operation()),
            driver_ns_per_operation: priced.then(|| trial.warm_device_time()),
            driver_calls_per_1000: trial.warm_calls_per_thousand(),
        },
        peak_reserved: trial.peak_reserved(),
        fragmentation: 1.0 - trace.peak() as f64 / trial.peak_reserved().max(1) as f64,
        passes: trial
            .passes
            .iter()
            .map(|it| One {
                ns_per_operation: it.pass.per_operation(),
                driver_calls: it.pass.driver_calls,
                peak_reserved: it.pass.peak_reserved,
            })
            .collect(),
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report { trace, operations, streams, peak_live, device, memory, loop_ns, policies } = self;
        let (live, memory) = (numbers::bytes(*peak_live as f64), numbers::bytes(*memory as f64));
        let plural = if *streams == 1 { "" } else { "s" };
        let operations = numbers::grouped(*operations);
        writeln!(f, "{trace}: {operations} operations on {streams} stream{plural}, {live} live at most")?;
        writeln!(f, "device: {device}, {memory}; the replay's own loop takes {loop_ns:.1} ns of each operation\n")?;
        let priced = policies
            .iter()
            .any(|line| line.figures.as_ref().is_some_and(|figures| figures.warm.driver_ns_per_operation.is_some()));
        let driver = if priced { "  driver ns/op cold    warm" } else { "" };
        writeln!(f, "policy    ns/op cold    warm{driver}  calls/1000 cold    warm  peak reserved  fragmentation")?;
        for Line { policy, error, figures } in policies {
            let Some(Figures { cold, warm, peak_reserved, fragmentation, .. }) = figures else {
                writeln!(f, "{policy:<8}  {}", error.as_deref().unwrap_or_default())?;
                continue;
            };
            let mut line = format!("{policy:<8}{:>12.1}{:>8.1}", cold.ns_per_operation, warm.ns_per_operation);
            if let (Some(cold), Some(warm)) = (cold.driver_ns_per_operation, warm.driver_ns_per_operation) {
                write!(line, "{cold:>19.1}{warm:>8.1}")?;
            }
            write!(line, "{:>17.2}{:>8.2}", cold.driver_calls_per_1000, warm.driver_calls_per_1000)?;
            writeln!(f, "{line}{:>15}{:>14.2}%", numbers::bytes(*peak_reserved as f64), fragmentation * 100.0)?;
        }
        if priced {
            write!(
                f,
                "\nns/op is this machine's time, in which the simulated device works, too; driver ns/op is what an H200's driver \
                 charges\nfor the calls, and is to be added on a real one.\n"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_a_suffix() {
        assert_eq!(parse_memory("80G"), Ok(80 << 30));
        assert_eq!(parse_memory("512MiB"), Ok(512 << 20));
        assert_eq!(parse_memory("4194304"), Ok(4 << 20));
        for wrong in ["", "G", "1", "80X", "80GG", "-1G", "99999999999T", "1.5G", "12iB"] {
            assert!(parse_memory(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_device_is_simulated_or_has_a_number() {
        assert_eq!(parse_device("sim"), Ok(Place::Simulated));
        assert_eq!(parse_device("1"), Ok(Place::Cuda(1)));
        assert!(parse_device("cuda:0").is_err() && parse_device("-1").is_err());
    }
}
