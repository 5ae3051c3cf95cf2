//! A process of which there is nothing to say, for tests that change one thing of it.

use poolscope_wire::{TIER_COUNTERS, TierCounter};

use crate::findings::Finding;
use crate::model::snapshot::{LiveBlock, Residence, Snapshot, Tiers};
pub(super) use crate::model::testing::profile;

/// Bytes of a mebibyte.
pub(super) const MIB: f64 = 1_048_576.0;

/// 40 MiB in use of 46 MiB, with a hundred samples.
pub(super) fn calm() -> Snapshot {
    let mut tiers = vec![0; TIER_COUNTERS.len()];
    tiers[TierCounter::SystemUsed as usize] = 40 << 20;
    tiers[TierCounter::LargeBytes as usize] = 40 << 20;
    Snapshot {
        period_bytes: 524_288,
        tiers: Tiers::new(tiers),
        live: vec![LiveBlock { size: 400 << 10, weight: 1.0, ..LiveBlock::default() }; 100],
        residence: Some(Residence { rss: 46 << 20, files: 4 << 20, ..Residence::default() }),
        ..Snapshot::default()
    }
}

/// Sets a counter.
pub(super) fn set(snapshot: &mut Snapshot, counter: TierCounter, value: u64) {
    let words = TierCounter::ALL.iter().map(|&known| if known == counter { value } else { snapshot.tiers.get(known) });
    snapshot.tiers = Tiers::new(words.collect());
}

/// The findings of one rule.
pub(super) fn of_rule<'a>(findings: &'a [Finding], rule: &str) -> Vec<&'a Finding> {
    findings.iter().filter(|finding| finding.rule == rule).collect()
}
