//! Size classes whose slabs are nearly empty, and who holds them.

use poolscope_wire::ClassStats;

use crate::build::site_name::SiteName;
use crate::findings::{Facts, Finding, Severity, Subject};
use crate::model::memory::Place;
use crate::model::profile::Profile;
use crate::symbols::function_name::short;
use crate::words::figures::{bytes, count, grouped};

/// Nobody needs to know of less.
const LEAST: u64 = 2 << 20;

/// Classes that are named at most.
const CLASSES: usize = 2;

/// Free bytes of a class that have memory.
fn free_bytes(class: &ClassStats) -> u64 {
    class.bytes(class.free_blocks().saturating_sub(class.untouched_blocks()))
}

/// Classes whose blocks in use are few for the slabs that they keep.
pub(super) fn nearly_empty(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    let classes = &facts.snapshot.classes;
    let is_meant = |class: &ClassStats| {
        let (free, in_use) = (free_bytes(class), class.in_use_bytes());
        // A block that nobody else shares a slab with holds no other.
        class.slab_blocks > 1 && class.slabs() > 3 && in_use > 0 && free >= LEAST && in_use < free / 3
    };
    let mut meant: Vec<usize> = (0..classes.len()).filter(|&class| is_meant(&classes[class])).collect();
    meant.sort_by_key(|&class| std::cmp::Reverse(free_bytes(&classes[class])));
    for at in meant.into_iter().take(CLASSES) {
        let class = &classes[at];
        let smaller = at.checked_sub(1).map_or(0, |smaller| classes[smaller].block_bytes);
        let holder = facts.profile.and_then(|profile| holder(profile, smaller, class.block_bytes));
        let free = free_bytes(class);
        let share = 100.0 * class.in_use_bytes() as f64 / (class.in_use_bytes() as f64 + free as f64);
        findings.push(Finding {
            severity: Severity::Warning,
            rule: "nearly_empty_slabs",
            sentence: format!(
                "Blocks of {} bytes: {} are free in {}, of which {share:.0}% is in use{}.",
                grouped(class.block_bytes),
                bytes(free as f64),
                count(class.slabs(), "slab"),
                holder.map_or_else(String::new, |holder| format!(", held by {holder}")),
            ),
            evidence: vec![
                ("block_bytes", class.block_bytes as f64),
                ("free_bytes", free as f64),
                ("in_use_bytes", class.in_use_bytes() as f64),
                ("slabs", class.slabs() as f64),
            ],
            subject: Subject::Class(at),
        });
    }
}

/// The call site that has most blocks of the class.
fn holder(profile: &Profile, smaller: u64, block_bytes: u64) -> Option<String> {
    let sites = profile.sites.iter().filter(|site| site.place == Place::Host);
    let blocks = sites.map(|site| {
        let of_class = site.held.iter().filter(|held| held.size > smaller && held.size <= block_bytes);
        (site, of_class.map(|held| held.amount.objects).sum::<f64>())
    });
    let (site, _) = blocks.filter(|(_, blocks)| *blocks > 0.0).max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    Some(short(&SiteName::of(profile, site)?.function.name))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use poolscope_wire::ClassCounter;

    use super::*;
    use crate::findings::testing::{calm, of_rule, profile};
    use crate::model::snapshot::Snapshot;

    fn with_class(in_use: u64, slabs: u64) -> Snapshot {
        let mut class = ClassStats { block_bytes: 1024, slab_bytes: 65_536, slab_blocks: 64, ..ClassStats::default() };
        class.shared[ClassCounter::SlabsTaken as usize] = slabs;
        class.shared[ClassCounter::SampledAllocs as usize] = in_use;
        let smaller = ClassStats { block_bytes: 16, slab_bytes: 65_536, slab_blocks: 4096, ..ClassStats::default() };
        Snapshot { classes: vec![smaller, class], ..calm() }
    }

    #[test]
    fn a_class_with_few_blocks_in_many_slabs_is_named_with_its_holder() {
        let snapshot = with_class(500, 100);
        let profile = profile(&[("main;app::cache", 10.0), ("main;app::other", 10.0)]);
        let mut sites = profile.clone();
        Arc::make_mut(&mut sites.sites[0].held)[0].size = 1000;
        let findings = Facts::of(&snapshot, Some(&sites)).findings();
        let found = of_rule(&findings, "nearly_empty_slabs");
        assert_eq!(
            found[0].sentence,
            "Blocks of 1,024 bytes: 5.76 MiB are free in 100 slabs, of which 8% is in use, held by app::cache."
        );
        assert_eq!(found[0].subject, Subject::Class(1));
    }

    #[test]
    fn slabs_that_are_full_few_or_untouched_are_no_matter() {
        let mut untouched = with_class(500, 100);
        untouched.classes[1].shared[ClassCounter::Untouched as usize] = 5_800;
        for snapshot in [with_class(5000, 100), with_class(1, 3), with_class(0, 100), untouched] {
            assert!(of_rule(&Facts::of(&snapshot, None).findings(), "nearly_empty_slabs").is_empty());
        }
    }
}
