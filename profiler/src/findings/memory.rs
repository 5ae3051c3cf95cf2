//! The resident set against what is in use.

use crate::findings::{Facts, Finding, Severity, Subject};
use crate::model::accounting::Part;
use crate::words::figures::{bytes, count};

/// Nobody needs to know of less.
const LEAST: u64 = 8 << 20;

/// Memory that is much more than what is in use: where it lies, and what helps.
pub(super) fn more_than_in_use(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    let accounting = &facts.accounting;
    let (in_use, Some(memory)) = (accounting.get(Part::InUse), accounting.memory) else { return };
    let rest = memory.saturating_sub(in_use);
    if rest < LEAST || rest < in_use / 3 {
        return;
    }
    let beside = Part::ALL.into_iter().filter(|part| *part != Part::InUse && *part != Part::Files);
    let Some(part) = beside.max_by_key(|part| accounting.get(*part)) else { return };
    let bytes_there = accounting.get(part);
    // No part stands out.
    if bytes_there < LEAST / 2 || bytes_there < rest / 4 {
        return;
    }
    let threads = facts.snapshot.threads.iter().filter(|thread| thread.live).count() as u64;
    let of = match part {
        Part::ThreadCaches => format!(
            "lie free in the caches of {}: a smaller POOLSCOPE_THREAD_CACHE bounds them, a smaller POOLSCOPE_GC_MS \
             empties those of threads that sleep sooner",
            count(threads, "thread")
        ),
        Part::TransferCache => "are on their way back to the threads that allocated them, which take them in at their \
                                next allocations"
            .to_owned(),
        Part::CentralCache => "are free blocks in slabs that still hold others: see the size classes".to_owned(),
        Part::Free => {
            "are free pages: a smaller POOLSCOPE_SCAVENGE_MS gives them back sooner, malloc_trim at once".to_owned()
        }
        Part::Metadata => "are the pool's own: a larger POOLSCOPE_PERIOD keeps fewer samples".to_owned(),
        _ if is_run_by("python", facts) => {
            "are not the pool's, for Python maps memory for its small objects itself: with \
                                  PYTHONMALLOC=malloc the pool has them, and their call sites are seen"
                .to_owned()
        }
        _ if is_run_by("ruby", facts) => {
            "are not the pool's, for Ruby maps memory for its objects itself: the pool has what these \
                                hold, as long strings, arrays and tables"
                .to_owned()
        }
        _ => "are not the pool's: stacks, globals, and what the program maps itself".to_owned(),
    };
    let times = memory as f64 / in_use.max(1) as f64;
    let how_much =
        if in_use > 0 && times < 100.0 { format!("{times:.1} times what is in use") } else { bytes(memory as f64) };
    findings.push(Finding {
        severity: if part.is_outside() { Severity::Note } else { Severity::Warning },
        rule: "more_than_in_use",
        sentence: format!("The memory of the process is {how_much}: {} {of}.", bytes(bytes_there as f64)),
        evidence: vec![
            ("memory_bytes", memory as f64),
            ("in_use_bytes", in_use as f64),
            ("part_bytes", bytes_there as f64),
            ("threads", threads as f64),
        ],
        subject: Subject::Memory,
    });
}

/// The program is an interpreter that is called so, with a version or without.
fn is_run_by(interpreter: &str, facts: &Facts<'_>) -> bool {
    let exe = &facts.snapshot.process.exe;
    exe.rsplit('/').next().is_some_and(|name| name.starts_with(interpreter))
}

/// Blocks that the program asked for and never used.
pub(super) fn never_touched(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    let accounting = &facts.accounting;
    if accounting.untouched < 8 * LEAST || accounting.untouched < accounting.in_use / 2 {
        return;
    }
    findings.push(Finding {
        severity: Severity::Note,
        rule: "never_touched",
        sentence: format!(
            "{} of the {} in use were never touched: they are addresses, and no memory.",
            bytes(accounting.untouched as f64),
            bytes(accounting.in_use as f64)
        ),
        evidence: vec![("untouched_bytes", accounting.untouched as f64), ("in_use_bytes", accounting.in_use as f64)],
        subject: Subject::Memory,
    });
}

#[cfg(test)]
mod tests {
    use poolscope_wire::TierCounter;

    use super::*;
    use crate::findings::testing::{calm, of_rule, set};
    use crate::model::snapshot::{Residence, Snapshot};

    const MIB: u64 = 1 << 20;

    fn sentence(snapshot: &Snapshot, rule: &str) -> Option<String> {
        let findings = Facts::of(snapshot, None).findings();
        of_rule(&findings, rule).first().map(|finding| finding.sentence.clone())
    }

    #[test]
    fn where_the_rest_lies_is_said_with_what_helps() {
        let mut snapshot = calm();
        let rule = "more_than_in_use";
        assert_eq!(sentence(&snapshot, rule), None);
        set(&mut snapshot, TierCounter::PageHeapFree, 60 * MIB);
        set(&mut snapshot, TierCounter::SystemUsed, 200 * MIB);
        snapshot.residence = Some(Residence { rss: 110 * MIB, files: 4 * MIB, ..Residence::default() });
        assert_eq!(
            sentence(&snapshot, rule).as_deref(),
            Some(
                "The memory of the process is 2.8 times what is in use: 60.0 MiB are free pages: a smaller \
                 POOLSCOPE_SCAVENGE_MS gives them back sooner, malloc_trim at once."
            )
        );
        set(&mut snapshot, TierCounter::PageHeapFree, 0);
        let said = sentence(&snapshot, rule).expect("is said");
        assert!(said.contains("are not the pool's: stacks"), "{said}");
        snapshot.process.exe = "/usr/bin/python3.11".into();
        let said = sentence(&snapshot, rule).expect("is said");
        assert!(said.contains("with PYTHONMALLOC=malloc the pool has them"), "{said}");
        snapshot.process.exe = "/usr/bin/ruby3.1".into();
        let said = sentence(&snapshot, rule).expect("is said");
        assert!(said.contains("for Ruby maps memory for its objects itself"), "{said}");
        // Of the dead nobody knows.
        snapshot.residence = None;
        assert_eq!(sentence(&snapshot, rule), None);
    }

    #[test]
    fn what_was_never_touched_is_said() {
        let mut snapshot = calm();
        assert_eq!(sentence(&snapshot, "never_touched"), None);
        set(&mut snapshot, TierCounter::LargeBytes, 400 * MIB);
        set(&mut snapshot, TierCounter::SystemUsed, 400 * MIB);
        snapshot.tiers = snapshot.tiers.with_memory([360 * MIB, 0, 0, 0, 0], None);
        let said = sentence(&snapshot, "never_touched").expect("is said");
        assert!(said.starts_with("360 MiB of the 400 MiB in use"), "{said}");
    }
}
