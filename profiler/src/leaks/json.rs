//! The report of leaks as JSON.

use serde::Serialize;

use crate::faces::json::StackJson;
use crate::leaks::suppressions::Exceeded;
use crate::leaks::unreachable::Checked;
use crate::leaks::{Leak, LeakKind, LeakReport, Suppressed};

impl LeakReport {
    /// The report as JSON, with stable field names.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(&self.json())
    }

    /// What is written, for those that write more beside it.
    pub fn json(&self) -> LeaksJson<'_> {
        LeaksJson {
            version: 1,
            claim: self.claim.word(),
            exact: self.exact,
            missed: self.missed,
            nameless: self.nameless,
            bytes: self.bytes(),
            objects: self.objects(),
            leaks: self.leaks.iter().map(LeakJson::of).collect(),
            reachable: self.reachable.iter().map(LeakJson::of).collect(),
            suppressed: self.suppressed.iter().map(SuppressedJson::of).collect(),
            exceeded: self.exceeded.iter().map(ExceededJson::of).collect(),
            checked: self.checked.as_ref().map(CheckedJson::of),
        }
    }
}

/// What is written of the leaks of a process.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeaksJson<'a> {
    version: u32,
    /// `leaked`, `was in use` of a process that was killed, or `in use` of one that runs.
    claim: &'static str,
    exact: bool,
    missed: u64,
    /// Leaked blocks whose stack found no room in the records.
    #[serde(skip_serializing_if = "is_zero")]
    nameless: u64,
    bytes: u64,
    objects: u64,
    leaks: Vec<LeakJson<'a>>,
    /// What the program could still reach, where that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reachable: Vec<LeakJson<'a>>,
    suppressed: Vec<SuppressedJson<'a>>,
    /// Rules that would have suppressed more than they may.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    exceeded: Vec<ExceededJson<'a>>,
    /// The search that found the leaks. Not in a report of all that was not freed.
    #[serde(skip_serializing_if = "Option::is_none")]
    checked: Option<CheckedJson>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What a search looked at.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct CheckedJson {
    blocks: u64,
    bytes: u64,
    reachable: u64,
    possible: u64,
    threads: u32,
    stopped: u32,
    unstopped: Option<u32>,
    root_bytes: u64,
    pause_seconds: f64,
    scan_seconds: f64,
}

impl CheckedJson {
    fn of(checked: &Checked) -> Self {
        let search = checked.search;
        CheckedJson {
            blocks: search.blocks,
            bytes: search.bytes,
            reachable: checked.reachable,
            possible: checked.possible,
            threads: search.threads,
            stopped: search.stopped,
            unstopped: search.unstopped,
            root_bytes: search.root_bytes,
            pause_seconds: search.pause_ns as f64 / 1e9,
            scan_seconds: search.scan_ns as f64 / 1e9,
        }
    }
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct LeakJson<'a> {
    bytes: u64,
    objects: u64,
    sizes: Vec<SizeJson>,
    /// Of the oldest sampled block, when the process was looked at.
    age_seconds: Option<f64>,
    incomplete: bool,
    /// Leaked blocks point to them. Only in a report of a search.
    #[serde(skip_serializing_if = "Option::is_none")]
    indirect: Option<bool>,
    /// `direct`, `indirect`, `possible`, `retained` or `reachable`. Only in a report of a search.
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<&'static str>,
    kind: &'static str,
    /// Null for host memory.
    device: Option<u32>,
    #[serde(flatten)]
    stack: StackJson<'a>,
}

impl<'a> LeakJson<'a> {
    fn of(leak: &'a Leak) -> Self {
        let is_judged = leak.kind != LeakKind::Grew;
        LeakJson {
            bytes: leak.bytes,
            objects: leak.objects,
            sizes: leak.sizes.iter().map(|&(bytes, objects)| SizeJson { bytes, objects }).collect(),
            age_seconds: (leak.age_ns > 0).then_some(leak.age_ns as f64 / 1e9),
            incomplete: leak.incomplete,
            indirect: is_judged.then_some(leak.kind == LeakKind::Indirect),
            verdict: is_judged.then(|| leak.kind.name()),
            kind: leak.place.kind().name(),
            device: leak.place.device(),
            stack: StackJson::of_frames(&leak.frames, leak.asked),
        }
    }
}

/// Blocks of one size.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct SizeJson {
    bytes: u64,
    objects: u64,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct SuppressedJson<'a> {
    reason: &'a str,
    /// A program of the system lost it, by its own code.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    of_program: bool,
    bytes: u64,
    objects: u64,
}

impl<'a> SuppressedJson<'a> {
    fn of(kept: &'a Suppressed) -> Self {
        let Suppressed { reason, of_program, bytes, objects } = kept;
        SuppressedJson { reason, of_program: *of_program, bytes: *bytes, objects: *objects }
    }
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct ExceededJson<'a> {
    rule: &'a str,
    max: &'a str,
    bytes: u64,
    objects: u64,
}

impl<'a> ExceededJson<'a> {
    fn of(exceeded: &'a Exceeded) -> Self {
        let Exceeded { rule, max, bytes, objects } = exceeded;
        ExceededJson { rule, max, bytes: *bytes, objects: *objects }
    }
}
