//! What a program never freed, by stack: the report of `poolscope check`.
//!
//! It answers for blocks that were still allocated when the snapshot was read; whether something still points to them
//! is another question. It is exact only for an exact run; a report from samples says so.

use std::fmt::Write as _;

use poolscope_wire::kind;
use serde::Serialize;

use crate::figures;
use crate::memory::Memory;
use crate::profile::{Frame, Held, Profile};
use crate::report::{FrameJson, frame_text};
use crate::snapshot::Snapshot;
use crate::suppressions::Suppressions;

/// Blocks never freed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeakReport {
    /// Every allocation was recorded. Otherwise figures are estimates, and small leaks may be missing.
    pub exact: bool,
    /// Records that were lost, so that leaks may be missing.
    pub missed: u64,
    /// The leaks, most bytes first.
    pub leaks: Vec<Leak>,
    /// What was suppressed, by reason, most bytes first.
    pub suppressed: Vec<Suppressed>,
}

/// What one stack allocated and nobody freed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Leak {
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub objects: u64,
    /// Sizes of the blocks and how many there are of each, ascending.
    pub sizes: Vec<(u64, u64)>,
    /// The stack, innermost first.
    pub frames: Vec<Frame>,
    /// Outer frames are missing.
    pub incomplete: bool,
    /// Which memory: one of [`poolscope_wire::kind`].
    pub kind: u16,
    /// Number of the device; 0 for host memory.
    pub device: u32,
}

/// What was suppressed for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suppressed {
    /// The reason, or the user's `leak:PATTERN`.
    pub reason: String,
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub objects: u64,
}

impl LeakReport {
    /// Looks for leaks in the last snapshot of a program.
    pub fn new(snapshot: &Snapshot, profile: &Profile, suppressions: &Suppressions) -> Self {
        let mut report = Self { exact: snapshot.exact, missed: snapshot.dropped.total(), ..Self::default() };
        for site in &profile.sites {
            let (bytes, objects) = (figures::whole(site.in_use.bytes), figures::whole(site.in_use.objects));
            // A block of no bytes leaks too.
            if bytes == 0 && objects == 0 {
                continue;
            }
            if let Some(reason) = suppressions.reason(profile, site) {
                report.suppress(reason, bytes, objects);
                continue;
            }
            report.leaks.push(Leak {
                bytes,
                objects,
                sizes: by_size(&site.held),
                frames: profile.frames(site).cloned().collect(),
                incomplete: site.incomplete,
                kind: site.kind,
                device: site.device,
            });
        }
        report.leaks.sort_by_key(|leak| std::cmp::Reverse((leak.bytes, leak.objects)));
        report.suppressed.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.reason.cmp(&b.reason)));
        report
    }

    /// The sites of a profile that leaked, for a picture: what is suppressed is left out.
    pub fn leaked(profile: &Profile, suppressions: &Suppressions) -> Profile {
        let mut leaked = profile.clone();
        leaked.sites.retain(|site| suppressions.reason(profile, site).is_none());
        leaked
    }

    fn suppress(&mut self, reason: String, bytes: u64, objects: u64) {
        if let Some(known) = self.suppressed.iter_mut().find(|known| known.reason == reason) {
            known.bytes = known.bytes.saturating_add(bytes);
            known.objects = known.objects.saturating_add(objects);
        } else {
            self.suppressed.push(Suppressed { reason, bytes, objects });
        }
    }

    /// Something leaked.
    pub fn has_leaks(&self) -> bool {
        !self.leaks.is_empty()
    }

    /// Bytes of all leaks.
    pub fn bytes(&self) -> u64 {
        self.leaks.iter().fold(0, |sum, leak| sum.saturating_add(leak.bytes))
    }

    /// Blocks of all leaks.
    pub fn objects(&self) -> u64 {
        self.leaks.iter().fold(0, |sum, leak| sum.saturating_add(leak.objects))
    }

    /// The report as text.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        if self.leaks.is_empty() {
            text.push_str("No leaks.\n");
        }
        for (index, leak) in self.leaks.iter().enumerate() {
            let of = Memory::of(leak.kind, leak.device).describe();
            let of = if of.is_empty() { of } else { format!(", {of}") };
            let _ = writeln!(text, "leak {}: {}{}{of}", index + 1, amount(leak.bytes, leak.objects), sizes(leak));
            for (depth, frame) in leak.frames.iter().enumerate() {
                let _ = writeln!(text, "    #{depth} {}", frame_text(frame));
            }
            if leak.incomplete {
                text.push_str("    (outer frames are missing)\n");
            }
            text.push('\n');
        }
        if !self.leaks.is_empty() {
            let stacks = figures::count(self.leaks.len() as u64, "stack");
            let _ = writeln!(text, "{} leaked, from {stacks}.", amount(self.bytes(), self.objects()));
        }
        for kept in &self.suppressed {
            let _ = writeln!(text, "Suppressed: {}: {}", amount(kept.bytes, kept.objects), kept.reason);
        }
        if !self.exact {
            text.push_str(
                "These are estimates from samples, and small leaks may be missing: `poolscope check` is exact.\n",
            );
        }
        if self.missed > 0 {
            let _ =
                writeln!(text, "{} could not be kept: leaks may be missing.", figures::count(self.missed, "record"));
        }
        text
    }

    /// The report as JSON, with stable field names.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(&LeaksJson {
            version: 1,
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
                    incomplete: leak.incomplete,
                    kind: kind::name(leak.kind),
                    device: (leak.kind != kind::HOST).then_some(leak.device),
                    frames: leak.frames.iter().map(FrameJson::new).collect(),
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

fn amount(bytes: u64, objects: u64) -> String {
    format!("{} B in {}", figures::grouped(bytes), figures::count(objects, "block"))
}

/// ` of 64 B each`, or the range of sizes.
fn sizes(leak: &Leak) -> String {
    match leak.sizes.as_slice() {
        [] => String::new(),
        [_] if leak.objects == 1 => String::new(),
        [(size, _)] => format!(" of {} B each", figures::grouped(*size)),
        [(smallest, _), .., (largest, _)] => {
            format!(" of {} to {} B", figures::grouped(*smallest), figures::grouped(*largest))
        }
    }
}

#[derive(Serialize)]
struct LeaksJson<'a> {
    version: u32,
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
    incomplete: bool,
    kind: &'static str,
    /// Null for host memory.
    device: Option<u32>,
    /// Innermost first.
    frames: Vec<FrameJson<'a>>,
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
/// How many blocks there are of each size, whichever thread allocated them.
fn by_size(held: &[Held]) -> Vec<(u64, u64)> {
    let mut sizes: Vec<(u64, f64)> = Vec::new();
    for held in held {
        match sizes.last_mut() {
            Some((size, objects)) if *size == held.size => *objects += held.amount.objects,
            _ => sizes.push((held.size, held.amount.objects)),
        }
    }
    sizes.into_iter().map(|(size, objects)| (size, figures::whole(objects))).collect()
}
