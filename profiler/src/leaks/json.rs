//! The report of leaks as JSON.

use serde::Serialize;

use crate::faces::json::StackJson;
use crate::leaks::LeakReport;

impl LeakReport {
    /// The report as JSON, with stable field names.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(&LeaksJson {
            version: 1,
            claim: self.claim.word(),
            exact: self.exact,
            missed: self.missed,
            bytes: self.bytes(),
            objects: self.objects(),
            leaks: self
                .leaks
                .iter()
                .map(|leak| LeakJson {
                    bytes: leak.bytes,
                    objects: leak.objects,
                    sizes: leak.sizes.iter().map(|&(bytes, objects)| SizeJson { bytes, objects }).collect(),
                    age_seconds: (leak.age_ns > 0).then_some(leak.age_ns as f64 / 1e9),
                    incomplete: leak.incomplete,
                    kind: leak.place.kind().name(),
                    device: leak.place.device(),
                    stack: StackJson::of_frames(&leak.frames, leak.asked),
                })
                .collect(),
            suppressed: self
                .suppressed
                .iter()
                .map(|kept| SuppressedJson { reason: &kept.reason, bytes: kept.bytes, objects: kept.objects })
                .collect(),
        })
    }
}

#[derive(Serialize)]
struct LeaksJson<'a> {
    version: u32,
    /// `leaked`, `was in use` of a process that was killed, or `in use` of one that runs.
    claim: &'static str,
    exact: bool,
    missed: u64,
    bytes: u64,
    objects: u64,
    leaks: Vec<LeakJson<'a>>,
    suppressed: Vec<SuppressedJson<'a>>,
}

#[derive(Serialize)]
struct LeakJson<'a> {
    bytes: u64,
    objects: u64,
    sizes: Vec<SizeJson>,
    /// Of the oldest sampled block, when the process was looked at.
    age_seconds: Option<f64>,
    incomplete: bool,
    kind: &'static str,
    /// Null for host memory.
    device: Option<u32>,
    #[serde(flatten)]
    stack: StackJson<'a>,
}

/// Blocks of one size.
#[derive(Serialize)]
struct SizeJson {
    bytes: u64,
    objects: u64,
}

#[derive(Serialize)]
struct SuppressedJson<'a> {
    reason: &'a str,
    bytes: u64,
    objects: u64,
}
