//! Processes that this one started.

use crate::findings::{Facts, Finding, Severity, Subject};
use crate::words::figures::bytes;

/// Nobody needs to know of less.
const LEAST: u64 = 4 << 20;

/// Children that are named.
const NAMED: usize = 3;

/// Children that have memory, as much as this process or more.
pub(super) fn that_use_memory(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    let all = facts.children.iter().fold(0, |sum: u64, child| sum.saturating_add(child.rss));
    if all < LEAST || all < facts.accounting.rss.unwrap_or(0) / 2 {
        return;
    }
    let mut children: Vec<_> = facts.children.iter().collect();
    children.sort_by_key(|child| std::cmp::Reverse(child.rss));
    let named = children.iter().take(NAMED);
    let mut named: Vec<String> =
        named.map(|child| format!("{} ({}) {}", child.name, child.pid, bytes(child.rss as f64))).collect();
    if children.len() > NAMED {
        named.push(format!("{} more", children.len() - NAMED));
    }
    let (number, have) = match children.len() {
        1 => ("1 process".to_owned(), "has"),
        several => (format!("{several} processes"), "have"),
    };
    findings.push(Finding {
        severity: Severity::Note,
        rule: "children",
        sentence: format!(
            "{number} that it started {have} {} of memory, which are not in these figures: {}.",
            bytes(all as f64),
            named.join(", ")
        ),
        evidence: vec![("children", children.len() as f64), ("children_rss_bytes", all as f64)],
        subject: Subject::Children,
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::testing::{calm, of_rule};
    use crate::process::family::Child;

    fn child(pid: u32, name: &str, mib: u64) -> Child {
        Child { pid, name: name.to_owned(), rss: mib << 20 }
    }

    #[test]
    fn children_with_much_memory_are_named() {
        let snapshot = calm();
        let children = [child(7, "as", 30), child(8, "cc1plus", 212), child(9, "ld", 2), child(10, "sh", 1)];
        let facts = Facts { children: &children, ..Facts::of(&snapshot, None) };
        let findings = facts.findings();
        assert_eq!(
            of_rule(&findings, "children")[0].sentence,
            "4 processes that it started have 245 MiB of memory, which are not in these figures: cc1plus (8) 212 MiB, \
             as (7) 30.0 MiB, ld (9) 2.00 MiB, 1 more."
        );
        let one = Facts { children: &children[1..2], ..facts }.findings();
        assert!(of_rule(&one, "children")[0].sentence.starts_with("1 process that it started has 212 MiB"));
    }

    #[test]
    fn children_with_little_are_no_matter() {
        let snapshot = calm();
        let children = [child(7, "as", 3)];
        let facts = Facts { children: &children, ..Facts::of(&snapshot, None) };
        assert!(of_rule(&facts.findings(), "children").is_empty());
    }
}
