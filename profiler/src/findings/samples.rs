//! What the samples miss.

use crate::findings::{Facts, Finding, Severity, Subject};
use crate::model::memory::Memory;
use crate::model::snapshot::ProcessState;
use crate::words::figures::{bytes, count};

/// With so many, what is in use is known to a fifth.
const ENOUGH: u64 = 25;

/// Nobody needs to know of less.
const LEAST: u64 = 1 << 20;

/// Standard errors beyond which what the samples say is no chance.
const NO_CHANCE: f64 = 3.0;

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

/// What a program allocated in its last moment before it was killed: samples are there at once, and what is in use is
/// counted every 80 ms. What it freed in it can't be told from what counters say beyond samples, the blocks' rounding.
pub(super) fn newer_than_counters(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    let snapshot = facts.snapshot;
    let Some(counted) = snapshot.in_use(Memory::Host).filter(|_| snapshot.process.state == ProcessState::Killed) else {
        return;
    };
    let of_host = snapshot.live.iter().filter(|block| block.place.device().is_none());
    // A block that stands for `weight` was taken with a probability of one in so many.
    let (sampled, variance) = of_host.fold((0.0, 0.0), |(sampled, variance), block| {
        let size = block.size as f64;
        (sampled + block.weight * size, variance + size * size * block.weight * (block.weight - 1.0))
    });
    if sampled - counted as f64 <= (NO_CHANCE * variance.sqrt()).max(LEAST as f64) {
        return;
    }
    findings.push(Finding {
        severity: Severity::Warning,
        rule: "counted_before",
        sentence: format!(
            "At its end {} were in use by its samples, {} by counters up to 100 ms older.",
            bytes(sampled),
            bytes(counted as f64)
        ),
        evidence: vec![("sampled_bytes", sampled), ("counted_bytes", counted as f64)],
        subject: Subject::Samples,
    });
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
    use poolscope_wire::TierCounter;

    use crate::findings::testing::{calm, of_rule, set};
    use crate::model::snapshot::{ClassStats, LiveBlock, Snapshot};

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
    fn what_the_samples_of_a_killed_program_have_beyond_its_counters_is_said() {
        let mut snapshot = calm();
        snapshot.classes = vec![ClassStats::default()];
        snapshot.process.state = ProcessState::Killed;
        // A hundred blocks of 400 KiB are 39.1 MiB.
        let said = |snapshot: &Snapshot| sentence(snapshot, "counted_before");
        for (large, expected) in [
            (40, None),
            (39, None),
            (30, Some("At its end 39.1 MiB were in use by its samples, 30.0 MiB by counters up to 100 ms older.")),
            // What was freed, and what was rounded.
            (50, None),
        ] {
            set(&mut snapshot, TierCounter::LargeBytes, large << 20);
            assert_eq!(said(&snapshot).as_deref(), expected, "{large}");
        }
        set(&mut snapshot, TierCounter::LargeBytes, 30 << 20);
        snapshot.process.state = ProcessState::Running;
        assert_eq!(said(&snapshot), None);
        snapshot.process.state = ProcessState::Killed;
        // Few that stand for much may be many by chance; without samples there is nothing to say.
        snapshot.live = vec![LiveBlock { size: 400 << 10, weight: 25.0, ..LiveBlock::default() }; 4];
        assert_eq!(said(&snapshot), None);
        snapshot.live.clear();
        assert_eq!(said(&snapshot), None);
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
