//! What a person should know of a process, in words: each finding is a sentence with the figures behind it, and says
//! where to look.
//!
//! A rule is a function in one of the files here. It says nothing rather than something that may be chance.

mod children;
mod devices;
mod growth;
mod leaks;
mod memory;
mod samples;
mod slabs;
#[cfg(test)]
mod testing;
mod unnamed;

use crate::model::accounting::Accounting;
use crate::model::growth::{Growth, Slope, USUAL_WINDOW_NS};
use crate::model::memory::Place;
use crate::model::profile::Profile;
use crate::model::snapshot::Snapshot;
use crate::process::family::Child;

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Good to know.
    Note,
    /// Memory that could be less, or figures that are not to be relied on.
    Warning,
    /// It ends badly if it goes on.
    Alarm,
}

impl Severity {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Alarm => "alarm",
        }
    }
}

/// Where to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Where the memory of the process is.
    Memory,
    /// A call site: its index in [`Profile::sites`].
    Site(usize),
    /// A size class: its index in [`Snapshot::classes`].
    Class(usize),
    /// A pool of device memory.
    Device(Place),
    /// The processes that this one started.
    Children,
    /// What the samples miss.
    Samples,
}

impl Subject {
    /// The word for it in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Subject::Memory => "memory",
            Subject::Site(_) => "site",
            Subject::Class(_) => "class",
            Subject::Device(_) => "device",
            Subject::Children => "children",
            Subject::Samples => "samples",
        }
    }
}

/// Something that a person should know.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// The rule's name, which stays the same.
    pub rule: &'static str,
    /// What was found, and what to do.
    pub sentence: String,
    /// The figures behind it, each with a name that ends with its unit.
    pub evidence: Vec<(&'static str, f64)>,
    /// Where to look.
    pub subject: Subject,
}

/// What is known of a process.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The latest reading.
    pub snapshot: &'a Snapshot,
    /// Where its memory is.
    pub accounting: Accounting,
    /// Its call sites, if they were looked up.
    pub profile: Option<&'a Profile>,
    /// How each of these sites develops; empty if nobody watched.
    pub growths: &'a [Growth],
    /// How host memory develops.
    pub total: Slope,
    /// The time that this is about; 0 if it was too short.
    pub total_ns: u64,
    /// The time that devices were watched for.
    pub watched_ns: u64,
    /// How the memory of devices develops, by the counters of their pools; empty if nobody watched.
    pub devices: &'a [(Place, Slope)],
    /// The processes that it started, and what they have.
    pub children: &'a [Child],
}

impl<'a> Facts<'a> {
    /// What one reading tells: host memory as the process itself noted it.
    pub fn of(snapshot: &'a Snapshot, profile: Option<&'a Profile>) -> Facts<'a> {
        let history = &snapshot.history;
        let now_ns = snapshot.moment_ns().unwrap_or(0);
        let total_ns = history.trend_ns(USUAL_WINDOW_NS, now_ns);
        Facts {
            snapshot,
            accounting: Accounting::of(snapshot),
            profile,
            growths: &[],
            total: history.trend(USUAL_WINDOW_NS, now_ns),
            total_ns,
            watched_ns: total_ns,
            devices: &[],
            children: &[],
        }
    }

    /// What there is to say, the most important first.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for rule in RULES {
            rule(self, &mut findings);
        }
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        findings
    }
}

/// A rule adds what it finds.
type Rule = fn(&Facts<'_>, &mut Vec<Finding>);

/// All of them, in the order in which findings of one severity are listed.
const RULES: &[Rule] = &[
    growth::sites_that_grow,
    growth::memory_that_grows,
    growth::devices_that_grow,
    leaks::lost,
    devices::requests_refused,
    devices::free_in_pieces,
    devices::pending,
    memory::more_than_in_use,
    memory::never_touched,
    slabs::nearly_empty,
    children::that_use_memory,
    samples::lost,
    samples::newer_than_counters,
    samples::began_late,
    samples::too_few,
    unnamed::without_its_functions,
];

/// What was found, a line each.
pub fn text(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("{:<8} {}\n", finding.severity.word(), finding.sentence)).collect()
}
