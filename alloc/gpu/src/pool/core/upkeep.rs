//! The background work, and what is done at once where memory is short: merging, giving back, emptying caches.

use super::Core;
use crate::device::Device;
use crate::small::CHUNK;

/// What small blocks may hold beyond half as much again as the program has of them.
const SMALL_SLACK_BYTES: u64 = CHUNK;
/// Times in a second that caches are emptied because of that, before memory is mapped for small blocks.
const CACHE_FLUSHES_PER_SECOND: u32 = 32;
/// Bytes of fitted blocks for which the threads that keep them are asked.
const KEPT_WORTH_COLLECTING: u64 = 2 * CHUNK;
/// Tiles that a round of background work looks at for merging while the lock is held.
const TILES_IN_A_ROUND: usize = 512;
/// Calls to the driver by which memory is created: a piece is made, mapped and opened.
const CALLS_TO_GROW: u64 = 3;
const MS: u64 = 1_000_000;
const SECOND: u128 = 1_000_000_000;

/// What the background work remembers from round to round. Times are nanoseconds of the device's clock.
pub(super) struct Upkeep {
    /// Calls to the driver that it may make now; below 0 after a round that made more.
    allowance: i64,
    /// When calls were last earned.
    last_round: u64,
    /// When it last began to merge.
    last_defrag: u64,
    /// When threads were last made to ask again which streams are behind their handles.
    looked_again: u64,
    /// Bytes of the largest request since `since_largest`, a second or more, and of the time as long before.
    pub(super) largest_request: u64,
    largest_before: u64,
    since_largest: u64,
    /// Times in this second that caches may yet be emptied before memory is mapped for small blocks.
    flushes_left: u32,
}

impl Upkeep {
    pub(super) fn new(now: u64, calls_per_second: u64) -> Upkeep {
        Upkeep {
            allowance: calls_per_second as i64,
            last_round: now,
            last_defrag: now,
            looked_again: now,
            largest_request: 0,
            largest_before: 0,
            since_largest: now,
            flushes_left: CACHE_FLUSHES_PER_SECOND,
        }
    }
}

impl<D: Device> Core<D> {
    /// Whether threads should ask again which streams are behind the handles that they know: once a second.
    pub fn is_upkeep_due(&mut self, now: u64) -> bool {
        let due = now.saturating_sub(self.upkeep.looked_again) >= SECOND as u64;
        if due {
            self.upkeep.looked_again = now;
        }
        due
    }

    /// A round of the background work, with at most so many calls to the driver. Returns whether it made as many.
    pub fn maintain(&mut self, now: u64, most: u64) -> bool {
        self.handles.next_round();
        self.large.lanes.next_round();
        let rate = self.config.driver_calls_per_second;
        let passed = now.saturating_sub(self.upkeep.last_round);
        let earned = (u128::from(passed) * u128::from(rate) / SECOND).min(u128::from(rate)) as u64;
        if earned > 0 || rate == 0 {
            self.upkeep.last_round = now;
        }
        self.upkeep.allowance = (self.upkeep.allowance + earned as i64).min(rate as i64);
        self.return_slabs();
        let delay = self.config.idle_release_ms.saturating_mul(MS);
        let before = self.large.driver_calls();
        let budget = most.min(self.upkeep.allowance.max(0) as u64);
        let given_back = self.large.maintain(now, delay, budget);
        // With a delay of 0 what is created for nobody would be given back at once.
        if delay > 0 && given_back + CALLS_TO_GROW <= budget {
            self.large.grow_ahead();
        }
        let calls = self.large.driver_calls() - before;
        self.upkeep.allowance -= calls as i64;
        let interval = self.config.defrag_interval_ms.saturating_mul(MS);
        let due = self.config.enable_defrag && now.saturating_sub(self.upkeep.last_defrag) >= interval;
        if due && !self.large.is_coalescing() && self.is_fragmented() {
            self.upkeep.last_defrag = now;
            self.large.begin_to_coalesce();
        }
        self.large.coalesce_some(TILES_IN_A_ROUND);
        if now.saturating_sub(self.upkeep.since_largest) >= SECOND as u64 {
            self.upkeep.largest_before = std::mem::take(&mut self.upkeep.largest_request);
            self.upkeep.since_largest = now;
            self.upkeep.flushes_left = CACHE_FLUSHES_PER_SECOND;
        }
        if self.publisher.is_due() {
            self.publish();
        }
        calls >= most
    }

    /// The largest request of the last second or two.
    pub(super) fn recent_request(&self) -> u64 {
        self.upkeep.largest_request.max(self.upkeep.largest_before)
    }

    fn is_fragmented(&self) -> bool {
        let fragmented = self.large.free_below(self.recent_request());
        fragmented as f64 > self.config.defrag_threshold * self.large.held() as f64
    }

    /// Merges what is free, and whose work is over.
    pub fn defragment(&mut self) {
        self.large.flush_hot();
        self.large.lanes.refresh(u64::MAX, true);
        self.return_slabs();
        self.large.coalesce();
    }

    /// The same, but not while a graph is captured: what can't be waited for would spoil what it is merged with.
    pub fn defragment_unless_capturing(&mut self) {
        if !self.large.lanes.is_any_capturing() {
            self.defragment();
        }
    }

    /// Bytes of the largest request that could ever be served.
    pub fn most(&self) -> u64 {
        self.large.limit().min(self.large.device_memory())
    }

    /// Waits on the host until the work behind freed memory is over, unless a graph is captured.
    pub fn wait_for_pending(&mut self) {
        // Blocks that waited for other streams may be the last ones of their slabs, which then wait for their own.
        loop {
            // What is kept as it was freed has no point yet that could be waited for.
            self.large.flush_hot();
            self.large.lanes.synchronize();
            if !self.return_slabs() {
                return;
            }
        }
    }

    /// Gives everything back that is free and whose work is over. Returns the bytes.
    pub fn trim(&mut self) -> u64 {
        let held = self.large.held();
        self.defragment();
        self.large.maintain(0, 0, u64::MAX);
        held - self.large.held()
    }

    /// Whether small blocks hold so much more than the program has of them that what caches have should be used before
    /// memory is mapped for a large block.
    pub fn holds_much_for_small(&self) -> bool {
        let used = self.small_usage();
        self.slabs.chunk_bytes() > used + used / 2 + SMALL_SLACK_BYTES
    }

    /// Whether the fitted blocks that threads keep are so many that they should be used before memory of this size is
    /// put together: as many as that or many by themselves. So often in a second, as those threads come to the lock then.
    pub fn is_kept_worth_collecting(&mut self, size: u64) -> bool {
        let worth = self.upkeep.flushes_left > 0 && self.kept() >= size.min(KEPT_WORTH_COLLECTING);
        self.upkeep.flushes_left -= u32::from(worth);
        worth
    }

    /// The same before memory is mapped for small blocks, so often in a second. What a program swings by has to stay in
    /// caches, or they are emptied again and again while other threads wait.
    pub fn is_cache_flush_due(&mut self) -> bool {
        let due = self.upkeep.flushes_left > 0 && self.holds_much_for_small();
        self.upkeep.flushes_left -= u32::from(due);
        due
    }
}
