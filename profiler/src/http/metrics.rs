//! `/metrics`: the counters of the segment for Prometheus.
//!
//! Names and units follow Prometheus' conventions: base units, `_total` for what only grows, one name for one thing
//! and labels for its parts. The tiers' and classes' metrics are read from the tables of
//! [`poolscope_wire`], so that a new counter is a new metric.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use poolscope_wire::stats::Usage;
use poolscope_wire::{
    CLASS_COUNTERS, ClassCounter, CounterInfo, DEVICE_COUNTERS, DeviceCounter, TIER_COUNTERS, TierCounter, Unit, label,
};
use serde::Deserialize;

use super::pages::Pool;
use super::worker::Refusal;
use crate::model::accounting::{Accounting, Part};
use crate::model::memory::Place;
use crate::model::snapshot::{DevicePool, ProcessState, Snapshot, Stack};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whose metrics are asked for: those of all processes that are served, if none is named.
#[derive(Deserialize)]
pub(super) struct MetricsQuery {
    pid: Option<u32>,
}

pub(super) async fn metrics(
    State(pool): Pool,
    Query(query): Query<MetricsQuery>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let snapshots = match pool.snapshots(query.pid).await {
        Err(Refusal::NoProcess) => Vec::new(),
        other => other?,
    };
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let format = if wants_open_metrics(accepted) { Format::OpenMetrics } else { Format::Prometheus };
    let content_type = if format == Format::OpenMetrics { OPEN_METRICS } else { PROMETHEUS };
    let body = write(&families(&snapshots), format);
    Ok((StatusCode::OK, [(header::CONTENT_TYPE, content_type)], body).into_response())
}

/// OpenMetrics is asked for by name, and not less than plain text.
fn wants_open_metrics(accept: &str) -> bool {
    let quality = |wanted: &str| {
        let ranges = accept.split(',').filter_map(|range| {
            let mut parts = range.split(';').map(str::trim);
            let matches = parts.next()?.eq_ignore_ascii_case(wanted);
            let q = parts.find_map(|part| part.strip_prefix("q=")).map_or(Some(1.0), |q| q.parse::<f64>().ok())?;
            matches.then_some(q)
        });
        ranges.fold(0.0, f64::max)
    };
    let open = quality("application/openmetrics-text");
    open > 0.0 && open >= quality("text/plain")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Prometheus,
    OpenMetrics,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Info,
}

/// A metric with its parts.
struct Family {
    /// Without the suffix of its kind.
    name: String,
    help: String,
    kind: Kind,
    /// The labels as written, and the value.
    samples: Vec<(String, f64)>,
}

/// The labels of a sample: `pid="1",tier="x"`.
fn labels(pairs: &[(&str, &str)]) -> String {
    let escaped = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    pairs.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect::<Vec<_>>().join(",")
}

fn family(
    name: &str,
    kind: Kind,
    help: &str,
    snapshots: &[Snapshot],
    of: impl Fn(&Snapshot, &str) -> Vec<(String, f64)>,
) -> Family {
    let samples = snapshots.iter().flat_map(|snapshot| of(snapshot, &snapshot.process.pid.to_string())).collect();
    Family { name: name.to_owned(), help: help.to_owned(), kind, samples }
}

/// One value for each process.
fn simple(name: &str, kind: Kind, help: &str, snapshots: &[Snapshot], of: impl Fn(&Snapshot) -> Option<f64>) -> Family {
    family(name, kind, help, snapshots, |snapshot, pid| {
        of(snapshot).map(|value| (labels(&[("pid", pid)]), value)).into_iter().collect()
    })
}

/// One value for each part of a process.
fn parts<const N: usize>(
    name: &str,
    kind: Kind,
    help: &str,
    label: &str,
    snapshots: &[Snapshot],
    of: impl Fn(&Snapshot) -> [(&'static str, u64); N],
) -> Family {
    family(name, kind, help, snapshots, |snapshot, pid| {
        let parts = of(snapshot).map(|(part, value)| (labels(&[("pid", pid), (label, part)]), value as f64));
        parts.into()
    })
}

fn families(snapshots: &[Snapshot]) -> Vec<Family> {
    let mut families = of_processes(snapshots);
    families.push(parts(
        "poolscope_memory_bytes",
        Kind::Gauge,
        "Where the bytes of the pool's addresses are; unmapped ones have no memory behind them, nor untouched ones in use.",
        "tier",
        snapshots,
        |snapshot| tiers(&snapshot.stats().usage()),
    ));
    families.push(family(
        "poolscope_process_memory_bytes",
        Kind::Gauge,
        "Where the memory of the process is; the parts come to its resident set, with what is swapped out or in explicit \
         huge pages.",
        snapshots,
        |snapshot, pid| {
            let accounting = Accounting::of(snapshot);
            let part = |(part, bytes): (Part, u64)| (labels(&[("pid", pid), ("part", part.name())]), bytes as f64);
            // Of a process that is gone nobody knows the whole.
            accounting.memory.map_or_else(Vec::new, |_| accounting.parts().map(part).collect())
        },
    ));
    families.push(simple(
        "poolscope_memory_in_use_peak_bytes",
        Kind::Gauge,
        "The most bytes of blocks that were in use at once.",
        snapshots,
        |snapshot| snapshot.most().map(|most| most.bytes as f64),
    ));
    for (info, counter) in TIER_COUNTERS.iter().zip(TierCounter::ALL) {
        let (name, kind) = metric(info, "");
        families.push(simple(&name, kind, info.help, snapshots, |snapshot| Some(snapshot.tiers.get(*counter) as f64)));
    }
    families.extend(of_classes(snapshots));
    families.extend(of_devices(snapshots));
    families.extend(of_labels(snapshots));
    families.retain(|family| !family.samples.is_empty());
    families
}

fn tiers(usage: &Usage) -> [(&'static str, u64); 8] {
    [
        ("in_use", usage.in_use),
        ("untouched", usage.untouched),
        ("page_heap", usage.page_heap),
        ("central_cache", usage.central_cache),
        ("transfer_cache", usage.transfer_cache),
        ("thread_cache", usage.thread_caches),
        ("metadata", usage.metadata),
        ("unmapped", usage.unmapped),
    ]
}

fn of_processes(snapshots: &[Snapshot]) -> Vec<Family> {
    vec![
        family("poolscope_process", Kind::Info, "A process on the pool.", snapshots, |snapshot, pid| {
            vec![(labels(&[("pid", pid), ("executable", &snapshot.process.exe)]), 1.0)]
        }),
        simple("poolscope_process_running", Kind::Gauge, "1 while the process runs.", snapshots, |snapshot| {
            Some(f64::from(u8::from(snapshot.process.state == ProcessState::Running)))
        }),
        simple(
            "poolscope_process_start_time_seconds",
            Kind::Gauge,
            "When the process began to use the pool, in seconds since 1970.",
            snapshots,
            |snapshot| Some(snapshot.process.start_realtime_ns as f64 / 1e9),
        ),
        simple(
            "poolscope_process_resident_memory_bytes",
            Kind::Gauge,
            "Resident set of the process.",
            snapshots,
            |snapshot| snapshot.memory.map(|memory| memory.rss as f64),
        ),
        simple(
            "poolscope_process_resident_memory_peak_bytes",
            Kind::Gauge,
            "Largest resident set of the process.",
            snapshots,
            |snapshot| snapshot.memory.map(|memory| memory.peak_rss as f64),
        ),
        simple(
            "poolscope_sampling_period_bytes",
            Kind::Gauge,
            "Mean bytes between two samples; 1 when every allocation is recorded.",
            snapshots,
            |snapshot| Some(snapshot.period_bytes as f64),
        ),
        parts(
            "poolscope_dropped",
            Kind::Counter,
            "Records that the segment could not hold.",
            "record",
            snapshots,
            |snapshot| {
                let dropped = &snapshot.dropped;
                [
                    ("live", dropped.live),
                    ("stack", dropped.stacks),
                    ("module", dropped.modules),
                    ("outer_frames", dropped.truncated),
                ]
            },
        ),
    ]
}

/// For each size class in use, by the label `size`, the bytes of a block.
fn of_classes(snapshots: &[Snapshot]) -> Vec<Family> {
    let of_class = |name: &str, kind, help: &str, of: &dyn Fn(&crate::model::snapshot::ClassStats) -> u64| {
        family(name, kind, help, snapshots, |snapshot, pid| {
            let used = snapshot.classes.iter().filter(|class| class.is_used());
            used.map(|class| (labels(&[("pid", pid), ("size", &class.block_bytes.to_string())]), of(class) as f64))
                .collect()
        })
    };
    let mut families = vec![
        of_class("poolscope_class_allocations", Kind::Counter, "Blocks allocated.", &|class| class.allocs()),
        of_class("poolscope_class_frees", Kind::Counter, "Blocks freed.", &|class| class.frees()),
        of_class("poolscope_class_refills", Kind::Counter, "Thread cache misses.", &|class| class.misses()),
        of_class("poolscope_class_in_use_bytes", Kind::Gauge, "Bytes of blocks in use.", &|class| class.in_use_bytes()),
        of_class("poolscope_class_free_blocks", Kind::Gauge, "Free blocks in slabs.", &|class| class.free_blocks()),
    ];
    for (info, counter) in CLASS_COUNTERS.iter().zip(ClassCounter::ALL) {
        let (name, kind) = metric(info, "class_");
        families.push(of_class(&name, kind, info.help, &|class| class.shared(*counter)));
    }
    families
}

/// What was allocated under each label that the program gave, of all memories but devices'.
fn of_labels(snapshots: &[Snapshot]) -> Vec<Family> {
    let name = |stack: &Stack| {
        let words = (stack.place == Place::Host).then(|| stack.frames.outermost(label::LABEL_WORDS))?;
        Some(String::from_utf8_lossy(label::split(&words).1?.bytes()).into_owned())
    };
    let sums = |snapshot: &Snapshot, in_use: bool| {
        let mut sums: BTreeMap<String, f64> = BTreeMap::new();
        let names: Vec<Option<String>> = snapshot.stacks.iter().map(name).collect();
        for (stack, name) in snapshot.stacks.iter().zip(&names) {
            if let Some(name) = name {
                *sums.entry(name.clone()).or_default() += if in_use { 0.0 } else { stack.allocated.bytes };
            }
        }
        if in_use && !sums.is_empty() {
            for block in &snapshot.live {
                if let Some(Some(name)) = names.get(block.stack as usize) {
                    *sums.entry(name.clone()).or_default() += block.amount().bytes;
                }
            }
        }
        sums
    };
    let metric = |name: &str, kind, help: &str, in_use: bool| {
        family(name, kind, help, snapshots, |snapshot, pid| {
            let sums = sums(snapshot, in_use).into_iter();
            sums.map(|(name, bytes)| (labels(&[("pid", pid), ("label", &name)]), bytes)).collect()
        })
    };
    vec![
        metric(
            "poolscope_label_in_use_bytes",
            Kind::Gauge,
            "Bytes in use that were allocated under a label, estimated from samples.",
            true,
        ),
        metric(
            "poolscope_label_allocated_bytes",
            Kind::Counter,
            "Bytes that were allocated under a label, estimated from samples.",
            false,
        ),
    ]
}

/// For each pool of device memory, by the labels `device`, its number, and `memory`, `device` or `pinned`.
fn of_devices(snapshots: &[Snapshot]) -> Vec<Family> {
    let of_device = |name: &str, kind, help: &str, of: &dyn Fn(&DevicePool) -> f64| {
        family(name, kind, help, snapshots, |snapshot, pid| {
            let pools = snapshot.devices.iter().map(|pool| {
                let device = pool.place.device().unwrap_or(0).to_string();
                let pairs =
                    [("pid", pid), ("device", &device), ("memory", pool.place.kind().name()), ("name", &pool.name)];
                (labels(&pairs), of(pool))
            });
            pools.collect()
        })
    };
    let memory = "Bytes of memory that the device has.";
    let mut families =
        vec![of_device("poolscope_device_memory_bytes", Kind::Gauge, memory, &|pool| pool.memory_bytes as f64)];
    for (info, counter) in DEVICE_COUNTERS.iter().zip(DeviceCounter::ALL) {
        let (name, kind) = metric(info, "device_");
        // Prometheus wants base units.
        let unit = if info.unit == Unit::Nanoseconds { 1e-9 } else { 1.0 };
        families.push(of_device(&name, kind, info.help, &|pool| pool.get(*counter) as f64 * unit));
    }
    families
}

/// The name and kind of a counter of the tables. A metric of bytes or of a time ends with its unit.
fn metric(info: &CounterInfo, prefix: &str) -> (String, Kind) {
    let (name, unit) = match info.unit {
        Unit::Bytes => (info.name.trim_end_matches("_bytes"), "_bytes"),
        Unit::Nanoseconds => (info.name.trim_end_matches("_ns"), "_seconds"),
        Unit::Count => (info.name, ""),
    };
    (format!("poolscope_{prefix}{name}{unit}"), if info.monotonic { Kind::Counter } else { Kind::Gauge })
}

fn write(families: &[Family], format: Format) -> String {
    let mut text = String::new();
    for family in families {
        let (suffix, kind) = match (family.kind, format) {
            (Kind::Counter, _) => ("_total", "counter"),
            (Kind::Gauge, _) => ("", "gauge"),
            (Kind::Info, Format::OpenMetrics) => ("_info", "info"),
            // The older format has no such kind.
            (Kind::Info, Format::Prometheus) => ("_info", "gauge"),
        };
        let sample = format!("{}{suffix}", family.name);
        let name = if format == Format::OpenMetrics { &family.name } else { &sample };
        let help = family.help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        if format == Format::OpenMetrics && family.name.ends_with("_bytes") {
            let _ = writeln!(text, "# UNIT {name} bytes");
        }
        if format == Format::OpenMetrics && family.name.ends_with("_seconds") {
            let _ = writeln!(text, "# UNIT {name} seconds");
        }
        for (labels, value) in &family.samples {
            let _ = writeln!(text, "{sample}{{{labels}}} {value}");
        }
    }
    if format == Format::OpenMetrics {
        text += "# EOF\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_metrics_is_for_those_that_ask_for_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;\
                          version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert!(wants_open_metrics(prometheus));
        assert!(wants_open_metrics("application/openmetrics-text"));
        for other in ["", "*/*", "text/plain", "application/openmetrics-text;q=0, text/plain", "text/html,*/*;q=0.8"] {
            assert!(!wants_open_metrics(other), "{other}");
        }
    }

    #[test]
    fn kinds_have_their_suffixes_and_values_are_escaped() {
        let family = |name: &str, kind| Family {
            name: name.to_owned(),
            help: "What\nit is.".to_owned(),
            kind,
            samples: vec![(labels(&[("pid", "1"), ("executable", "/a\"b\\c\nd")]), 1.5)],
        };
        let families = [family("x_calls", Kind::Counter), family("x_bytes", Kind::Gauge), family("x", Kind::Info)];
        let labels = r#"{pid="1",executable="/a\"b\\c\nd"} 1.5"#;
        assert_eq!(
            write(&families, Format::Prometheus),
            format!(
                "# HELP x_calls_total What\\nit is.\n# TYPE x_calls_total counter\nx_calls_total{labels}\n\
                 # HELP x_bytes What\\nit is.\n# TYPE x_bytes gauge\nx_bytes{labels}\n\
                 # HELP x_info What\\nit is.\n# TYPE x_info gauge\nx_info{labels}\n"
            )
        );
        assert_eq!(
            write(&families, Format::OpenMetrics),
            format!(
                "# HELP x_calls What\\nit is.\n# TYPE x_calls counter\nx_calls_total{labels}\n\
                 # HELP x_bytes What\\nit is.\n# TYPE x_bytes gauge\n# UNIT x_bytes bytes\nx_bytes{labels}\n\
                 # HELP x What\\nit is.\n# TYPE x info\nx_info{labels}\n# EOF\n"
            )
        );
    }

    #[test]
    fn every_counter_of_bytes_ends_with_its_unit() {
        for info in TIER_COUNTERS.iter().chain(CLASS_COUNTERS) {
            assert!(info.unit != Unit::Bytes || info.name.ends_with("_bytes"), "{}", info.name);
        }
    }
}
