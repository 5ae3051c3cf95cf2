//! What the samples miss.

use crate::findings::{Facts, Finding, Severity, Subject};
use crate::words::figures::{bytes, count};

/// With so many, what is in use is known to a fifth.
const ENOUGH: u64 = 25;

/// Nobody needs to know of less.
const LEAST: u64 = 1 << 20;

/// Samples that were lost.
pub(super) fn lost(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    let dropped = &facts.snapshot.dropped;
    if dropped.total() > 0 {
        let rest = if dropped.stacks == dropped.total() {
            "they count under a stack without a name"
        } else {
            "figures of call sites are too low"
        };
        findings.push(Finding {
            severity: Severity::Warning,
            rule: "samples_lost",
            sentence: format!(
                "{} found no room or could not be read: {rest}; a larger POOLSCOPE_PERIOD needs less room.",
                count(dropped.total(), "sample")
            ),
            evidence: vec![
                ("live", dropped.live as f64),
                ("stacks", dropped.stacks as f64),
                ("torn", dropped.torn as f64),
                ("invalid", dropped.invalid as f64),
            ],
            subject: Subject::Samples,
        });
    }
}

/// A recording that began while the process ran.
pub(super) fn began_late(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    if facts.snapshot.history.began_late {
        findings.push(Finding {
            severity: Severity::Note,
            rule: "began_late",
            sentence: "What was allocated before the recording began is not in it, so that what is in use begins at \
                       nothing: growth of its first minutes says little."
                .to_owned(),
            evidence: Vec::new(),
            subject: Subject::Samples,
        });
    }
}

/// Too few samples to say who has what is in use.
pub(super) fn too_few(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    let snapshot = facts.snapshot;
    let samples = snapshot.live.iter().filter(|block| block.place.device().is_none()).count() as u64;
    let in_use = facts.accounting.in_use;
    if snapshot.exact || samples >= ENOUGH || in_use < LEAST {
        return;
    }
    let known = match samples {
        0 => "so nobody knows who has it".to_owned(),
        some => format!("so who has it is known to ±{:.0}%", 100.0 / (some as f64).sqrt()),
    };
    // A hundred samples of what is in use, rounded down to a power of two.
    let wanted = 1u64 << (in_use / 100).max(4096).ilog2();
    let help = if wanted < snapshot.period_bytes {
        let short = if wanted >= 1 << 20 { format!("{}M", wanted >> 20) } else { format!("{}K", wanted >> 10) };
        format!(": POOLSCOPE_PERIOD={short} takes more")
    } else {
        String::new()
    };
    findings.push(Finding {
        severity: Severity::Note,
        rule: "samples_few",
        sentence: format!(
            "{} {} of the {} in use, {known}{help}.",
            count(samples, "sample"),
            if samples == 1 { "is" } else { "are" },
            bytes(in_use as f64)
        ),
        evidence: vec![
            ("samples", samples as f64),
            ("in_use_bytes", in_use as f64),
            ("period_bytes", snapshot.period_bytes as f64),
        ],
        subject: Subject::Samples,
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::testing::{calm, of_rule};
    use crate::model::snapshot::Snapshot;

    fn sentence(snapshot: &Snapshot, rule: &str) -> Option<String> {
        of_rule(&Facts::of(snapshot, None).findings(), rule).first().map(|finding| finding.sentence.clone())
    }

    #[test]
    fn lost_samples_are_said() {
        let mut snapshot = calm();
        assert_eq!(sentence(&snapshot, "samples_lost"), None);
        snapshot.dropped.live = 12;
        let said = sentence(&snapshot, "samples_lost").expect("is said");
        assert!(said.starts_with("12 samples found no room") && said.contains("too low"), "{said}");
    }

    #[test]
    fn a_recording_that_began_late_says_so() {
        let mut snapshot = calm();
        assert_eq!(sentence(&snapshot, "began_late"), None);
        snapshot.history.began_late = true;
        let said = sentence(&snapshot, "began_late").expect("is said");
        assert!(said.starts_with("What was allocated before the recording began is not in it"), "{said}");
    }

    #[test]
    fn few_samples_are_said_with_the_period_that_helps() {
        let mut snapshot = calm();
        assert_eq!(sentence(&snapshot, "samples_few"), None);
        snapshot.live.truncate(4);
        assert_eq!(
            sentence(&snapshot, "samples_few").as_deref(),
            Some(
                "4 samples are of the 40.0 MiB in use, so who has it is known to ±50%: POOLSCOPE_PERIOD=256K takes more."
            )
        );
        snapshot.exact = true;
        assert_eq!(sentence(&snapshot, "samples_few"), None);
    }
}
