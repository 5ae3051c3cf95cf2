//! What is done, in order, when there is no memory for a request, before it is refused.

/// A step of the ladder. After each of them the request is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The free blocks of the calling thread and of the global caches go back to their slabs, and empty slabs become free memory.
    /// This is also done before memory is created where small blocks hold much more than the program has.
    OwnCaches,
    /// The same with the caches of all threads that are in no call.
    AllCaches,
    /// The host waits for the work that freed memory waits for.
    PendingFrees,
    /// Free memory that waited for different streams is merged.
    Defragment,
    /// Whole free segments go back to the device, where they may serve as one piece. Free granules do so where they are: a device
    /// with virtual memory has no such step.
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

/// How often a step was taken, and how often that was enough.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepCount {
    /// Requests that came to it.
    pub tried: u64,
    /// Requests that were served after it.
    pub served: u64,
}

/// The counts of all steps.
#[derive(Clone, Copy, Debug, Default)]
pub struct LadderCounts {
    steps: [StepCount; Step::ALL.len()],
    /// Requests that were refused.
    pub refused: u64,
}

impl LadderCounts {
    /// The counts of a step.
    pub fn of(&self, step: Step) -> StepCount {
        self.steps[step as usize]
    }

    /// Counts that a request came to a step, and whether it was served then.
    pub fn count(&mut self, step: Step, served: bool) {
        let count = &mut self.steps[step as usize];
        count.tried += 1;
        count.served += u64::from(served);
    }
}
