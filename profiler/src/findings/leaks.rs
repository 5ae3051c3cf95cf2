//! What the process itself has found that it can't reach any more.

use crate::findings::{Facts, Finding, Severity, Subject};
use crate::words::figures::{bytes, count};

/// Blocks that the last search of the process found to be leaked.
pub(super) fn lost(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    let snapshot = facts.snapshot;
    let Some(search) = snapshot.search.filter(|search| search.failed.is_none()) else { return };
    let leaked = snapshot.live.iter().filter(|block| block.verdict.is_leaked());
    let (blocks, sum) = leaked.fold((0u64, 0u64), |(blocks, sum), block| (blocks + 1, sum.saturating_add(block.size)));
    if blocks == 0 {
        return;
    }
    findings.push(Finding {
        severity: Severity::Warning,
        rule: "leaked",
        sentence: format!(
            "{} in {} lost: nothing that the program can reach points there any more, as the process found when it was \
             asked last ({}). `poolscope leaks {}` says where from.",
            bytes(sum as f64),
            if blocks == 1 { "1 block is".to_owned() } else { format!("{} are", count(blocks, "block")) },
            search.looked_at(),
            snapshot.process.pid
        ),
        evidence: vec![
            ("leaked_bytes", sum as f64),
            ("leaked_blocks", blocks as f64),
            ("checked_blocks", search.blocks as f64),
        ],
        subject: Subject::Memory,
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::testing::{calm, of_rule};
    use crate::model::reach::{Search, Verdict};
    use crate::model::snapshot::Snapshot;

    fn sentence(snapshot: &Snapshot) -> Option<String> {
        of_rule(&Facts::of(snapshot, None).findings(), "leaked").first().map(|finding| finding.sentence.clone())
    }

    #[test]
    fn what_a_search_found_to_be_lost_is_said_and_nothing_is_said_without_one() {
        let mut snapshot = calm();
        snapshot.process.pid = 77;
        snapshot.live[3].verdict = Verdict::Direct;
        snapshot.live[5].verdict = Verdict::Indirect(0);
        snapshot.live[7].verdict = Verdict::Possible;
        assert_eq!(sentence(&snapshot), None, "nobody has searched");
        snapshot.search = Some(Search { blocks: 100, bytes: 40 << 20, threads: 2, stopped: 2, ..Search::default() });
        let said = sentence(&snapshot).expect("is said");
        assert!(said.starts_with("800 KiB in 2 blocks are lost:") && said.contains("`poolscope leaks 77`"), "{said}");
        assert!(said.contains("(checked 100 blocks, 41,943,040 bytes, 2 of 2 threads stopped)"), "{said}");
        snapshot.search = Some(Search { failed: Some("it runs in the hardened mode"), ..Search::default() });
        assert_eq!(sentence(&snapshot), None);
        (snapshot.live, snapshot.search) = (calm().live, Some(Search::default()));
        assert_eq!(sentence(&snapshot), None, "it lost nothing");
    }
}
