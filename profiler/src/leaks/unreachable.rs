//! The report of blocks that nothing in the process points to any more.
//!
//! A block that is leaked indirectly goes with the one that leads to it: if that is suppressed, so is what it leads to.

use std::collections::HashMap;

use super::retained::retained_addresses;
use super::suppressions::{Reason, Suppressions, built_in};
use super::{Claim, LeakKind, LeakReport};
use crate::build::builder::ProfileBuilder;
use crate::model::frames::Frames;
use crate::model::memory::Place;
use crate::model::reach::{Search, Verdict};
use crate::model::snapshot::{LiveBlock, ProcessState, Snapshot};
use crate::words::figures;

/// The stack of those that found no room.
const UNKNOWN: u32 = 0;

/// What a search found, in blocks and bytes, and what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The search.
    pub search: Search,
    /// Blocks that the program could reach at the end.
    pub reachable: u64,
    /// Blocks that it could reach if a pointer into the middle of a block is one.
    pub possible: u64,
}

impl Checked {
    /// Why the report may be wrong; `None` if everything was looked at.
    pub fn doubt(&self) -> Option<String> {
        let missing = self.search.threads - self.search.stopped.min(self.search.threads);
        let tid = self.search.unstopped.filter(|_| missing > 0)?;
        Some(format!("{} could not be stopped, thread {tid} among them", figures::count(missing.into(), "thread")))
    }

    /// What was looked at, as the last lines of a report.
    pub(super) fn to_text(self) -> String {
        let mut text = String::new();
        if self.possible > 0 {
            let blocks = figures::count(self.possible, "block");
            text += &format!("Possibly reachable, by pointers into the middle of a block only: {blocks}.\n");
        }
        text + &self.search.looked_at() + "\n"
    }
}

/// The report of a process that has looked for unreachable blocks. Or why there is none.
pub fn report(
    snapshot: Snapshot,
    builder: &mut ProfileBuilder,
    suppressions: &Suppressions,
) -> Result<LeakReport, String> {
    leaks_of(snapshot, builder, suppressions)
}

/// The same, with what the program can still reach.
pub fn report_with_reachable(
    snapshot: Snapshot,
    builder: &mut ProfileBuilder,
    suppressions: &Suppressions,
) -> Result<LeakReport, String> {
    let mut report = leaks_of(snapshot.clone(), builder, suppressions)?;
    let retained = retained_addresses(&snapshot);
    let kind_of = |block: &LiveBlock| match block.verdict {
        Verdict::Possible => Some(LeakKind::Possible),
        Verdict::Reachable if retained.contains(&block.address) => Some(LeakKind::Retained),
        Verdict::Reachable => Some(LeakKind::Reachable),
        _ => None,
    };
    for kind in [LeakKind::Possible, LeakKind::Retained, LeakKind::Reachable] {
        let mut held = snapshot.clone();
        held.live.retain(|block| kind_of(block) == Some(kind));
        forget_other_stacks(&mut held);
        let profile = builder.build(&held);
        let judged = suppressions.judge(&profile, kind);
        let mut held = LeakReport::judged(&held, &profile, judged, Claim::InUse, kind);
        held.leaks.iter_mut().for_each(|leak| leak.age_ns = 0);
        held.leaks.sort_by_key(|leak| std::cmp::Reverse((leak.bytes, leak.objects)));
        report.reachable.append(&mut held.leaks);
        report.take_suppressed(held);
    }
    Ok(report)
}

fn leaks_of(
    mut snapshot: Snapshot,
    builder: &mut ProfileBuilder,
    suppressions: &Suppressions,
) -> Result<LeakReport, String> {
    let search = match snapshot.search {
        Some(Search { failed: Some(why), .. }) => {
            return Err(format!("it could not look for unreachable blocks: {why}"));
        }
        Some(search) => search,
        None => return Err("it ended before it looked for unreachable blocks".into()),
    };
    let runs = snapshot.process.state == ProcessState::Running;
    let count = |verdict| snapshot.live.iter().filter(|block| block.verdict == verdict).count() as u64;
    let checked = Checked { search, reachable: count(Verdict::Reachable), possible: count(Verdict::Possible) };
    let interned = snapshot.live.iter().filter(|block| block.verdict == Verdict::Interned);
    let interned = interned.fold((0, 0), |(bytes, blocks), block| (bytes + block.size, blocks + 1));
    snapshot.live.retain(|block| is_leaked(block, runs));
    forget_other_stacks(&mut snapshot);
    let is_indirect = |block: &LiveBlock| matches!(block.verdict, Verdict::Indirect(_));
    let (indirect, direct) = snapshot.live.iter().copied().partition::<Vec<_>, _>(is_indirect);

    snapshot.live = direct;
    let nameless = |live: &[LiveBlock]| live.iter().filter(|block| block.stack == UNKNOWN).count() as u64;
    let direct_nameless = nameless(&snapshot.live);
    let (profile, sites) = builder.build_with_sites(&snapshot, |_| false);
    let judged = suppressions.judge(&profile, LeakKind::Direct);
    let reason = |block: &LiveBlock| {
        let site = sites.get(block.stack as usize).copied().flatten()?;
        judged.reasons.get(site)?.clone()
    };
    let suppressed: HashMap<u64, Reason> =
        snapshot.live.iter().filter_map(|block| Some((block.address, reason(block)?))).collect();
    let mut report = LeakReport::judged(&snapshot, &profile, judged, Claim::Leaked, LeakKind::Direct);

    snapshot.live = Vec::new();
    for block in indirect {
        match block.verdict {
            Verdict::Indirect(leader) if suppressed.contains_key(&leader) => {
                report.suppress(suppressed[&leader].clone(), block.size, 1);
            }
            _ => snapshot.live.push(block),
        }
    }
    let profile = builder.build(&snapshot);
    let judged = suppressions.judge(&profile, LeakKind::Indirect);
    let mut behind = LeakReport::judged(&snapshot, &profile, judged, Claim::Leaked, LeakKind::Indirect);
    report.leaks.append(&mut behind.leaks);
    report.take_suppressed(behind);
    report.checked = Some(checked);
    if interned.1 > 0 {
        let reason = Reason { text: built_in::INTERNED.to_owned(), of_program: false };
        report.suppress(reason, interned.0, interned.1);
    }
    (report.missed, report.nameless) = (snapshot.dropped.blocks(), direct_nameless + nameless(&snapshot.live));
    Ok(report)
}

/// Whether nothing leads to a block. Of memory that no search looks at, everything is leaked that is left when the
/// process ends.
fn is_leaked(block: &LiveBlock, runs: bool) -> bool {
    match block.verdict {
        Verdict::Direct | Verdict::Indirect(_) => true,
        Verdict::Unknown => block.place != Place::Host && !runs,
        Verdict::Reachable | Verdict::Possible | Verdict::Ignored | Verdict::Interned => false,
    }
}

/// Takes the frames of stacks away that no block is left of: nobody has to find names for them.
pub(crate) fn forget_other_stacks(snapshot: &mut Snapshot) {
    let mut used = vec![false; snapshot.stacks.len()];
    for block in &snapshot.live {
        if let Some(used) = used.get_mut(block.stack as usize) {
            *used = true;
        }
    }
    for (stack, _) in snapshot.stacks.iter_mut().zip(used).filter(|(_, used)| !used) {
        stack.frames = Frames::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::snapshot::{Dropped, Stack};

    /// A process that looked for leaks, and had no room for all its stacks.
    fn searched(blocks: &[(u32, Verdict)]) -> LeakReport {
        let block = |(at, &(stack, verdict)): (usize, &(u32, Verdict))| LiveBlock {
            stack,
            address: 0x1000 * (1 + at as u64),
            size: 100,
            weight: 1.0,
            verdict,
            ..LiveBlock::default()
        };
        let snapshot = Snapshot {
            exact: true,
            dropped: Dropped { stacks: 1_000, ..Dropped::default() },
            stacks: vec![Stack::default(), Stack { frames: vec![0x40_1005].into(), ..Stack::default() }],
            live: blocks.iter().enumerate().map(block).collect(),
            search: Some(Search::default()),
            ..Snapshot::default()
        };
        report(snapshot, &mut ProfileBuilder::new(), &Suppressions::none()).expect("was looked at")
    }

    #[test]
    fn stacks_without_room_leave_no_doubt_where_no_leaked_block_had_one_of_them() {
        let found = searched(&[(0, Verdict::Reachable), (1, Verdict::Direct), (0, Verdict::Possible)]);
        assert_eq!((found.missed, found.without_stacks(), found.objects()), (0, None, 1));
        let clean = searched(&[(0, Verdict::Reachable)]);
        assert!(!clean.has_leaks() && clean.without_stacks().is_none());
    }

    #[test]
    fn leaked_blocks_whose_stack_had_no_room_are_reported_and_told_of() {
        let found = searched(&[(0, Verdict::Direct), (1, Verdict::Direct), (0, Verdict::Indirect(0x1000))]);
        assert_eq!((found.missed, found.nameless, found.objects()), (0, 2, 3));
        let text = found.to_text();
        let said = "Not all leaks have a name, and no rule applies to those: the records had no room for the stacks of 2 \
                    leaked blocks.";
        assert!(text.contains(said), "{text}");
        assert!(found.to_json().expect("is written").contains("\"nameless\": 2"));
    }
}
