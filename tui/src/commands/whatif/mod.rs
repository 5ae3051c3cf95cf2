//! `poolscope whatif`: what a program's device memory would take under every placement policy and setting, and, with
//! `--host`, its memory on the host ([`host`]).

pub(crate) mod host;

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use clap::Args;
use color_eyre::eyre::Result;
use poolscope_gpu::{Config, GRANULE, SETTINGS, Simulated};
use poolscope_replay::{Trace, Trial};
use serde::Serialize;

use super::bench::{MEMORY, open_trace, parse_memory};
use crate::failure::Failure;
use crate::sink;
use crate::words::numbers;

/// Try every way of placing memory on a recorded trace
///
/// Of device memory one is recommended.
/// All run on the simulated device, whose clock goes by what an H200's driver charges:
/// the figures are the same on every machine.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  poolscope whatif model.trace.gz\n  \
    poolscope whatif model.trace.gz --memory 24G --json | jq .recommendation\n  \
    poolscope whatif app.rec --host")]
pub(crate) struct Whatif {
    /// The recorded trace: `+ ID SIZE STREAM` or `- ID`, one a line, plain or packed by gzip;
    /// or a recording of `poolscope record`
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Of a recording: the device whose memory is replayed; to be named if it has several
    #[arg(long, value_name = "N")]
    of_device: Option<u32>,
    /// Of a recording: the memory of the host
    #[arg(long, conflicts_with_all = ["of_device", "memory"])]
    host: bool,
    /// Memory of the device; 140G if not given
    #[arg(long, value_name = "BYTES", value_parser = parse_memory)]
    memory: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Passes over the trace: one cold, and enough for a policy to have met everything.
const PASSES: usize = 9;
/// Passes that a policy must get through on a device of a size for the size to be enough.
const ENOUGH: usize = 2;
/// What the driver may charge for an operation, in nanoseconds, before memory is saved at the cost of time.
const QUICK: f64 = 100.0;
/// Policies that hold so much more than the least are as good.
const NEAR: f64 = 1.01;

/// Settings that are not the default: name and value.
type Changes = &'static [(&'static str, &'static str)];

/// A policy with settings.
struct Candidate {
    policy: &'static str,
    changes: Changes,
}

/// All that are tried, in the order of preference among equals.
const CANDIDATES: [Candidate; 11] = [
    Candidate { policy: "tiered", changes: &[] },
    Candidate { policy: "tiered", changes: &[("alignment", "512")] },
    Candidate { policy: "tiered", changes: &[("thread_cache_max_blocks", "16")] },
    Candidate { policy: "tiered", changes: &[("thread_cache_max_blocks", "256")] },
    Candidate { policy: "tiered", changes: &[("batch_alloc_count", "4")] },
    Candidate { policy: "tiered", changes: &[("batch_alloc_count", "64")] },
    Candidate { policy: "async", changes: &[] },
    Candidate { policy: "bfc", changes: &[] },
    Candidate { policy: "slab", changes: &[] },
    Candidate { policy: "arena", changes: &[] },
    Candidate { policy: "buddy", changes: &[] },
];

impl Candidate {
    fn config(&self) -> Result<Config, String> {
        let mut config = Config::default();
        self.changes.iter().try_for_each(|(name, value)| config.set(name, value)).map_err(|error| error.to_string())?;
        Ok(config)
    }

    fn label(&self) -> String {
        let changes = self.changes.iter().map(|(name, value)| format!(", {name} {value}"));
        std::iter::once(self.policy.to_owned()).chain(changes).collect()
    }

    fn run(&self, trace: &Trace, memory: u64, passes: usize) -> Result<Trial, String> {
        let device = Arc::new(Simulated::new(memory));
        let streams = (0..trace.streams()).map(|_| device.non_blocking_stream()).collect();
        let trial = Trial::run(self.policy, &self.config()?, &device, streams, trace, passes);
        trial.ok_or_else(|| "no such policy".to_owned())?.map_err(|error| error.to_string())
    }

    /// The least memory of a device, in whole granules, that the trace runs on, up to so much.
    fn least_memory(&self, trace: &Trace, enough: u64) -> u64 {
        let (mut too_little, mut enough) = (trace.peak() / GRANULE, enough.div_ceil(GRANULE));
        // To half a per cent.
        while enough - too_little > 1 + enough / 200 {
            let middle = too_little + (enough - too_little) / 2;
            match self.run(trace, middle * GRANULE, ENOUGH) {
                Ok(_) => enough = middle,
                Err(_) => too_little = middle,
            }
        }
        enough * GRANULE
    }
}

/// What a candidate would take. Bytes and nanoseconds.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Outcome {
    policy: &'static str,
    label: String,
    /// Why there are no figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    figures: Option<Figures>,
    #[serde(skip)]
    changes: Changes,
}

#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Figures {
    peak_reserved: u64,
    /// `1 - peak live / peak reserved`.
    fragmentation: f64,
    /// The least memory of a device that the trace runs on; only of policies with their default settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    least_memory: Option<u64>,
    cold_driver_ns_per_operation: f64,
    warm_driver_ns_per_operation: f64,
    warm_driver_calls_per_1000: f64,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Recommendation {
    policy: &'static str,
    label: String,
    why: String,
    /// How to use it.
    settings: String,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Report {
    trace: String,
    operations: u64,
    streams: usize,
    peak_live: u64,
    memory: u64,
    candidates: Vec<Outcome>,
    recommendation: Recommendation,
}

impl Whatif {
    pub(crate) fn run(self) -> Result<u8> {
        if self.host {
            return host::run(&self.trace, self.json);
        }
        let trace = open_trace(&self.trace, self.of_device)?;
        let memory = self.memory.unwrap_or(MEMORY);
        let candidates = try_all(&trace, memory);
        let Some(recommendation) = recommend(&candidates, &trace) else {
            let first = candidates.iter().find_map(|outcome| outcome.error.clone()).unwrap_or_default();
            let memory = numbers::bytes(memory as f64);
            return Err(Failure::usage(format!("the trace runs on no device of {memory}: {first}")).into());
        };
        let report = Report {
            trace: self.trace.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            operations: trace.operations(),
            streams: trace.streams(),
            peak_live: trace.peak(),
            memory,
            candidates,
            recommendation,
        };
        if self.json {
            sink::print(&(serde_json::to_string_pretty(&report)? + "\n"))?;
        } else {
            sink::print(&report.to_string())?;
        }
        Ok(0)
    }
}

/// Runs all candidates, on as many threads as there are processors: no figure is a time of this machine's.
fn try_all(trace: &Trace, memory: u64) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::new());
    let work = || {
        while let Some((at, candidate)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            CANDIDATES.get(at).map(|candidate| (at, candidate))
        } {
            let outcome = try_one(candidate, trace, memory);
            outcomes.lock().unwrap_or_else(PoisonError::into_inner).push((at, outcome));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcomes.sort_by_key(|(at, _)| *at);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

fn try_one(candidate: &Candidate, trace: &Trace, memory: u64) -> Outcome {
    let result = candidate.run(trace, memory, PASSES).map(|trial| {
        let operations = trace.operations() as f64;
        let peak_reserved = trial.peak_reserved();
        let least = candidate.changes.is_empty().then(|| candidate.least_memory(trace, peak_reserved));
        Figures {
            peak_reserved,
            fragmentation: 1.0 - trace.peak() as f64 / peak_reserved.max(1) as f64,
            least_memory: least,
            cold_driver_ns_per_operation: trial.cold().device_time as f64 / operations,
            warm_driver_ns_per_operation: trial.warm_device_time(),
            warm_driver_calls_per_1000: trial.warm_calls_per_thousand(),
        }
    });
    let (figures, error) = match result {
        Ok(figures) => (Some(figures), None),
        Err(error) => (None, Some(error)),
    };
    Outcome { policy: candidate.policy, label: candidate.label(), error, figures, changes: candidate.changes }
}

/// The quick candidate that holds least; of those that hold as little, the first of the table. If none is quick,
/// the quickest.
fn recommend(outcomes: &[Outcome], trace: &Trace) -> Option<Recommendation> {
    let ran = || outcomes.iter().filter_map(|outcome| Some((outcome, outcome.figures.as_ref()?)));
    let quick = || ran().filter(|(_, figures)| figures.warm_driver_ns_per_operation <= QUICK);
    let least = quick().map(|(_, figures)| figures.peak_reserved).min();
    let (best, figures) = match least {
        Some(least) => quick().find(|(_, figures)| figures.peak_reserved as f64 <= least as f64 * NEAR)?,
        None => ran().min_by(|a, b| a.1.warm_driver_ns_per_operation.total_cmp(&b.1.warm_driver_ns_per_operation))?,
    };
    let bytes = |value: u64| numbers::bytes(value as f64);
    let more = figures.peak_reserved as f64 / trace.peak().max(1) as f64 * 100.0 - 100.0;
    let mut why = format!(
        "It holds {} at most, {more:.1}% more than the program asks for, and the driver charges {:.0} ns an operation once it is \
         warm.",
        bytes(figures.peak_reserved),
        figures.warm_driver_ns_per_operation
    );
    let others = ran().filter(|(outcome, _)| outcome.policy != best.policy);
    if let Some((other, its)) = others.min_by_key(|(_, its)| its.peak_reserved) {
        let _ = write!(
            why,
            " Of the other policies {} holds least, {}, at {:.0} ns an operation.",
            other.policy,
            bytes(its.peak_reserved),
            its.warm_driver_ns_per_operation
        );
    }
    if let Some(least) = figures.least_memory {
        let _ = write!(why, " A device with {} is enough for it.", bytes(least));
    }
    Some(Recommendation { policy: best.policy, label: best.label.clone(), why, settings: settings(best) })
}

/// How to use a candidate, in code and environment.
fn settings(outcome: &Outcome) -> String {
    if outcome.policy != "tiered" {
        let policy = outcome.policy;
        let rust = format!(
            "// Rust:\nlet policy = poolscope_replay::policies::build({policy:?}, device, &Default::default()).expect(\"a name\")?;"
        );
        return match policy {
            "async" => format!("{rust}\n# PyTorch:\nexport PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync"),
            _ => rust,
        };
    }
    let each = |write: fn(&str, &str) -> String| -> Vec<String> {
        outcome.changes.iter().map(|(name, value)| write(name, value)).collect()
    };
    let fields = each(|name, value| format!("{name}: {value}, ")).concat();
    let config = match fields.as_str() {
        "" => "gpu::Config::default()".to_owned(),
        fields => format!("gpu::Config {{ {fields}..Default::default() }}"),
    };
    let calls = each(|name, value| format!("poolscope_gpu_configure(device, \"{name}\", \"{value}\");\n")).concat();
    let variable = |name: &str| SETTINGS.iter().find(|setting| setting.name == name).map_or("", |it| it.variable);
    let exports = outcome.changes.iter().map(|(name, value)| format!("export {}={value}\n", variable(name)));
    let exports: String = match exports.collect::<String>().trim_end() {
        "" => String::new(),
        exports => format!("\n# or in the environment of either:\n{exports}"),
    };
    format!(
        "// Rust:\nlet pool = poolscope_alloc::gpu::pool(device, number, {config})?;\n\
         // C, and PyTorch and CuPy by the plug-in (samples/python):\n{calls}poolscope_gpu_alloc(device, size, stream);{exports}"
    )
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report { trace, operations, streams, peak_live, memory, candidates, recommendation } = self;
        let bytes = |value: u64| numbers::bytes(value as f64);
        let plural = if *streams == 1 { "" } else { "s" };
        writeln!(
            f,
            "{trace}: {} operations on {streams} stream{plural}, {} live at most; simulated device of {}\n",
            numbers::grouped(*operations),
            bytes(*peak_live),
            bytes(*memory)
        )?;
        writeln!(
            f,
            "{:<36}{:>10}{:>10}{:>16}{:>19}{:>8}{:>12}",
            "policy", "holds", "of it", "enough device", "driver ns/op cold", "warm", "calls/1000"
        )?;
        for outcome in candidates {
            let Some(figures) = &outcome.figures else {
                writeln!(f, "{:<36}  {}", outcome.label, outcome.error.as_deref().unwrap_or_default())?;
                continue;
            };
            writeln!(
                f,
                "{:<36}{:>10}{:>9.2}%{:>16}{:>19.1}{:>8.1}{:>12.2}",
                outcome.label,
                bytes(figures.peak_reserved),
                figures.fragmentation * 100.0,
                figures.least_memory.map_or(String::new(), bytes),
                figures.cold_driver_ns_per_operation,
                figures.warm_driver_ns_per_operation,
                figures.warm_driver_calls_per_1000
            )?;
        }
        writeln!(
            f,
            "\nholds: the most device memory; of it: the part that the program never asked for; enough device: the least\n\
             memory of a device that the trace runs on; driver: what an H200's driver charges.\n"
        )?;
        writeln!(f, "Recommended: {}. {}\n\n{}", recommendation.label, recommendation.why, recommendation.settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolscope_replay::policies;

    fn outcome(policy: &'static str, peak_reserved: u64, ns: f64) -> Outcome {
        let figures = Figures {
            peak_reserved,
            fragmentation: 0.0,
            least_memory: None,
            cold_driver_ns_per_operation: ns,
            warm_driver_ns_per_operation: ns,
            warm_driver_calls_per_1000: 0.0,
        };
        Outcome { policy, label: policy.to_owned(), error: None, figures: Some(figures), changes: &[] }
    }

    fn recommended(outcomes: &[Outcome]) -> Option<&'static str> {
        recommend(outcomes, &Trace::parse("+ 1 1000 0").unwrap()).map(|it| it.policy)
    }

    #[test]
    fn the_quick_one_that_holds_least_is_recommended() {
        let outcomes = [outcome("tiered", 1200, 5.0), outcome("bfc", 1000, 7.0), outcome("async", 900, 375.0)];
        assert_eq!(recommended(&outcomes), Some("bfc"));
    }

    #[test]
    fn among_those_that_hold_as_little_the_first_is() {
        assert_eq!(recommended(&[outcome("tiered", 1005, 9.0), outcome("bfc", 1000, 0.0)]), Some("tiered"));
    }

    #[test]
    fn where_none_is_quick_the_quickest_is() {
        assert_eq!(recommended(&[outcome("tiered", 1000, 400.0), outcome("async", 2000, 375.0)]), Some("async"));
    }

    #[test]
    fn what_did_not_run_is_not() {
        let mut failed = outcome("tiered", 0, 0.0);
        failed.figures = None;
        assert_eq!(recommended(&[failed.clone(), outcome("slab", 5000, 1.0)]), Some("slab"));
        assert_eq!(recommended(&[failed]), None);
    }

    #[test]
    fn every_candidate_has_settings_that_the_pool_takes_and_a_policy_that_there_is() {
        for candidate in &CANDIDATES {
            let config = candidate.config().unwrap();
            assert!(config.check().is_ok() && policies::NAMES.contains(&candidate.policy));
        }
        assert!(policies::NAMES.iter().all(|name| CANDIDATES.iter().any(|candidate| candidate.policy == *name)));
    }
}
