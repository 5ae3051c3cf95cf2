//! What is done, in order, when there is no memory for a request, before it is refused.

use crate::watch::Stats;

/// A step of the ladder. After each of them the request is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The free blocks of the calling thread and of the global caches go back to their slabs, and empty slabs become
    /// free memory. This is also done before memory is created where small blocks hold much more than the program has.
    OwnCaches,
    /// The same with the caches of all threads that are in no call.
    AllCaches,
    /// The host waits for the work that freed memory waits for.
    PendingFrees,
    /// Free memory that waited for different streams is merged.
    Defragment,
    /// Whole free segments go back to the device, where they may serve as one piece. Free granules do so where they
    /// are: a device with virtual memory has no such step.
    Release,
    /// The request is served from pinned host memory.
    PinnedHost,
}

impl Step {
    /// All of them, in the order in which they are taken.
    pub const ALL: [Step; 6] =
        [Step::OwnCaches, Step::AllCaches, Step::PendingFrees, Step::Defragment, Step::Release, Step::PinnedHost];

    /// For messages.
    pub fn name(self) -> &'static str {
        match self {
            Step::OwnCaches => "own caches",
            Step::AllCaches => "caches of all threads",
            Step::PendingFrees => "waiting for frees",
            Step::Defragment => "defragmenting",
            Step::Release => "releasing",
            Step::PinnedHost => "pinned host memory",
        }
    }
}

impl Step {
    /// Counts that a request came to this step, and whether it was served then. Each climbs from the first step on.
    pub(super) fn count(self, stats: &mut Stats, served: bool) {
        let (tried, was_served) = match self {
            Step::OwnCaches => (&mut stats.ladder_climbed, &mut stats.ladder_own_caches_served),
            Step::AllCaches => (&mut stats.ladder_all_caches_tried, &mut stats.ladder_all_caches_served),
            Step::PendingFrees => (&mut stats.ladder_pending_frees_tried, &mut stats.ladder_pending_frees_served),
            Step::Defragment => (&mut stats.ladder_defragment_tried, &mut stats.ladder_defragment_served),
            Step::Release => (&mut stats.ladder_release_tried, &mut stats.ladder_release_served),
            Step::PinnedHost => (&mut stats.ladder_pinned_host_tried, &mut stats.ladder_pinned_host_served),
        };
        *tried += 1;
        *was_served += u64::from(served);
    }
}
