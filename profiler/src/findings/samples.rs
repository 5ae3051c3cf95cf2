//! What the samples miss.

use crate::findings::{Facts, Finding, Severity, Subject};
use crate::model::memory::Memory;
use crate::model::snapshot::{ProcessState, Snapshot};
use crate::words::figures::{bytes, count};

/// A standard error that leaves no doubt who has most, as a share of what is in use.
const ENOUGH: f64 = 0.2;

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
    let (sampled, variance) = of_host
        .fold((0.0, 0.0), |(sampled, variance), block| (sampled + block.amount().bytes, variance + block.variance()));
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

/// What the samples say of what is in use on the host.
#[derive(Default)]
struct Known {
    samples: u64,
    bytes: f64,
    variance: f64,
    /// Of the bytes, those of blocks that were taken at a longer period, since so many came.
    held_back: f64,
}

impl Known {
    fn of(snapshot: &Snapshot) -> Known {
        let mut known = Known::default();
        for block in snapshot.live.iter().filter(|block| block.place.device().is_none()) {
            let bytes = block.amount().bytes;
            known.samples += 1;
            known.bytes += bytes;
            known.variance += block.variance();
            if bytes > 4.0 * block.size.max(snapshot.period_bytes) as f64 {
                known.held_back += bytes;
            }
        }
        known
    }

    /// The standard error of what call sites have of the bytes in use, as a share of these.
    fn error(&self, in_use: f64, period: f64) -> f64 {
        let unseen = (in_use - self.bytes).max(0.0);
        let error = (self.variance + period * unseen).sqrt() / in_use;
        // More than blocks are rounded up by: it was never sampled, or the samples are lost.
        if unseen > in_use / 2.0 { error.max(1.0 / (self.samples as f64).sqrt()) } else { error }
    }
}

/// Too few samples to say who has what is in use.
pub(super) fn too_few(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    let (snapshot, in_use) = (facts.snapshot, facts.accounting.in_use);
    let known = Known::of(snapshot);
    let (samples, error) = (known.samples, known.error(in_use as f64, snapshot.period_bytes as f64));
    if snapshot.exact || in_use < LEAST || error <= ENOUGH {
        return;
    }
    let how_well = match samples {
        0 => "so nobody knows who has it".to_owned(),
        _ => format!("so who has it is known to ±{:.0}%", 100.0 * error),
    };
    // A hundred samples of what is in use, rounded down to a power of two.
    let wanted = 1u64 << (in_use / 100).max(4096).ilog2();
    let help = if known.held_back > known.bytes / 2.0 {
        ": most are from a time with more samples than POOLSCOPE_SAMPLE_RATE allows".to_owned()
    } else if wanted < snapshot.period_bytes {
        let short = if wanted >= 1 << 20 { format!("{}M", wanted >> 20) } else { format!("{}K", wanted >> 10) };
        format!(": POOLSCOPE_PERIOD={short} takes more")
    } else {
        String::new()
    };
    findings.push(Finding {
        severity: Severity::Note,
        rule: "samples_few",
        sentence: format!(
            "{} {} of the {} in use, {how_well}{help}.",
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

    #[test]
    fn samples_that_stand_for_much_are_few_and_large_blocks_are_known() {
        let mut snapshot = calm();
        let of = |weight: f64, count: usize, size: u64| vec![LiveBlock { size, weight, ..LiveBlock::default() }; count];
        // 40 MiB by sixteen hundred samples of 512 B, and half of it by a sample that was taken at 40 times the period.
        snapshot.live = of(48.0, 1600, 512);
        assert_eq!(sentence(&snapshot, "samples_few"), None);
        snapshot.live.truncate(800);
        snapshot.live.extend(of(40_000.0, 1, 512));
        let said = sentence(&snapshot, "samples_few").expect("is said");
        let sum = "801 samples are of the 40.0 MiB in use, so who has it is known to ±49%: most are from a time";
        assert!(said.starts_with(sum), "{said}");
        // One block of which nothing is a guess.
        snapshot.live = of(1.0, 1, 39 << 20);
        assert_eq!(sentence(&snapshot, "samples_few"), None);
    }
}
