//! What is known of a process beside its counters, as JSON: where its memory is, its peak, its growth, its history, and
//! findings.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::findings::{Facts, Finding, Subject};
use crate::model::growth::{Growth, Slope};

/// These fields as one object.
pub fn facts_json(facts: &Facts<'_>) -> serde_json::Result<Value> {
    serde_json::to_value(FactsJson::new(facts))
}

/// Fields of the report.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FactsJson {
    /// Bytes by [`Part`](crate::model::accounting::Part): they come to `memory_bytes`, which is null for a process that
    /// is gone.
    accounting: AccountingJson,
    /// Null if nobody knows.
    peak: Option<PeakJson>,
    growth: SlopeJson,
    findings: Vec<FindingJson>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct AccountingJson {
    memory_bytes: Option<u64>,
    rss_bytes: Option<u64>,
    in_use_bytes: u64,
    untouched_bytes: u64,
    parts: Map<String, Value>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct PeakJson {
    in_use_bytes: u64,
    after_seconds: f64,
}

/// A slope. It is null where nobody watched for long enough, nor the ages of blocks tell it.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct SlopeJson {
    bytes_per_minute: Option<f64>,
    error_bytes_per_minute: Option<f64>,
    grows: bool,
    /// The time that it is about. What never freed anything is known of before anybody watched.
    watched_seconds: f64,
}

impl SlopeJson {
    fn new(slope: Slope, over_ns: u64) -> Self {
        let known = slope.error() > 0.0;
        Self {
            bytes_per_minute: known.then_some(slope.per_minute()),
            error_bytes_per_minute: known.then(|| slope.error()),
            grows: slope.grows(),
            watched_seconds: over_ns as f64 / 1e9,
        }
    }
}

/// How a call site develops.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct GrowthJson {
    #[serde(flatten)]
    slope: SlopeJson,
    /// Bytes in use at moments of the time that was watched.
    series: Vec<f32>,
}

impl GrowthJson {
    pub(super) fn new(growth: &Growth) -> Self {
        Self { slope: SlopeJson::new(growth.slope, growth.over_ns), series: growth.series.to_vec() }
    }
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct FindingJson {
    severity: &'static str,
    rule: &'static str,
    sentence: String,
    evidence: Map<String, Value>,
    subject: SubjectJson,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct SubjectJson {
    kind: &'static str,
    /// Of a site its place in `sites`, of a class in `classes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<u32>,
}

impl From<Finding> for FindingJson {
    fn from(finding: Finding) -> Self {
        let (index, device) = match finding.subject {
            Subject::Site(index) | Subject::Class(index) => (Some(index), None),
            Subject::Device(place) => (None, place.device()),
            Subject::Memory | Subject::Children | Subject::Samples => (None, None),
        };
        Self {
            severity: finding.severity.word(),
            rule: finding.rule,
            sentence: finding.sentence,
            evidence: finding.evidence.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect(),
            subject: SubjectJson { kind: finding.subject.name(), index, device },
        }
    }
}

impl FactsJson {
    /// Of what is known of a process.
    pub fn new(facts: &Facts<'_>) -> Self {
        let accounting = &facts.accounting;
        let start_ns = facts.snapshot.process.start_monotonic_ns;
        Self {
            accounting: AccountingJson {
                memory_bytes: accounting.memory,
                rss_bytes: accounting.rss,
                in_use_bytes: accounting.in_use,
                untouched_bytes: accounting.untouched,
                parts: accounting.parts().map(|(part, bytes)| (part.name().to_owned(), bytes.into())).collect(),
            },
            peak: facts.snapshot.most().map(|most| PeakJson {
                in_use_bytes: most.bytes,
                after_seconds: most.time_ns.saturating_sub(start_ns) as f64 / 1e9,
            }),
            growth: SlopeJson::new(facts.total, facts.total_ns),
            findings: facts.findings().into_iter().map(FindingJson::from).collect(),
        }
    }
}
