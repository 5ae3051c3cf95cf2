//! What nobody uses goes back to the device: whole granules that have been free for a while, within a budget of calls.

use super::Large;
use super::coalesce::Sweeping;
use super::owner::CHUNKS;
use super::stitches::Run;
use super::tiles::TileId;
use crate::device::{Device, GRANULE, Piece};

/// When something may be idle next: a round that would find nothing does not look at all free tiles.
#[derive(Debug, Default)]
pub struct IdleAfter {
    delay: u64,
    time: u64,
}

impl IdleAfter {
    /// Notes that free tiles were merged: small ones may have become one that has been free for long.
    pub fn merged(&mut self, merged: bool) {
        if merged {
            self.time = 0;
        }
    }
}

/// What the background work remembers from round to round.
pub struct Upkeep {
    /// The time of the last round, by which what is freed counts as idle: nanoseconds of the device's clock.
    pub now: u64,
    /// The most bytes in use that a round has found, of what is held since.
    pub most_in_use: u64,
    /// When to look again for what is idle.
    pub idle_after: IdleAfter,
    /// The sweep through all tiles that is under way.
    pub sweeping: Sweeping,
}

impl Upkeep {
    pub fn new(now: u64) -> Upkeep {
        Upkeep { now, most_in_use: 0, idle_after: IdleAfter::default(), sweeping: Sweeping::default() }
    }
}

impl<D: Device> Large<D> {
    /// One round of the background work at a time: looks how far the streams are, and gives granules back that have
    /// been free for `delay` nanoseconds, with at most `budget` calls to the driver. Returns how many calls it made.
    pub fn maintain(&mut self, now: u64, delay: u64, budget: u64) -> u64 {
        self.flush_hot();
        self.upkeep.now = self.upkeep.now.max(now);
        let start = self.driver.calls();
        self.lanes.refresh(budget, false);
        if !self.range.is_virtual {
            self.release_segments(delay, budget.saturating_sub(self.driver.calls() - start));
            return self.driver.calls() - start;
        }
        let left = |large: &Self| budget.saturating_sub(large.driver.calls() - start);
        self.release_spare(left(self));
        for id in self.idle_tiles(delay) {
            let pieces: Vec<Run> = self.range.pieces(self.slots_of(id)).collect();
            // From the high end down, so that what is cut off does not take the tile's number.
            for side_by_side in pieces.chunk_by(|one, next| one.end() == next.slot).rev() {
                let count = side_by_side.len().min(left(self).saturating_sub(1) as usize);
                let go = &side_by_side[side_by_side.len() - count..];
                if count > 0 && !self.give_back(id, go[0].slot, go[count - 1].end()) {
                    return self.driver.calls() - start;
                }
                if count < side_by_side.len() {
                    return self.driver.calls() - start;
                }
            }
        }
        self.driver.calls() - start
    }

    /// The free tiles that nobody has used for so long, from the highest address down.
    fn idle_tiles(&mut self, delay: u64) -> Vec<TileId> {
        if self.upkeep.idle_after.delay == delay && self.upkeep.now < self.upkeep.idle_after.time {
            return Vec::new();
        }
        // What is freed from now on is not idle before that.
        let mut next = self.upkeep.now.saturating_add(delay);
        let mut idle = self.tiles.index().free_from(GRANULE);
        idle.extend(self.tiles.index().free_of(CHUNKS));
        idle.retain(|id| {
            let tile = self.tiles.get(*id);
            let time = tile.since.saturating_add(delay);
            next = next.min(time);
            time <= self.upkeep.now && tile.pending.points().all(|point| self.lanes.is_done(point))
        });
        self.upkeep.idle_after = IdleAfter { delay, time: next };
        idle.sort_unstable_by_key(|id| std::cmp::Reverse(self.tiles.get(*id).address));
        idle
    }

    /// The slots of the whole granules of a tile.
    pub(super) fn slots_of(&self, id: TileId) -> std::ops::Range<usize> {
        let tile = self.tiles.get(id);
        let from = self.range.slot(tile.address.next_multiple_of(GRANULE));
        from..self.range.slot(tile.end()).max(from)
    }

    /// Gives pieces back that are mapped nowhere, at most so many.
    pub(super) fn release_spare(&mut self, budget: u64) {
        for _ in 0..budget.min(self.holdings.spare.len() as u64) {
            let Some(piece) = self.holdings.spare.pop() else { return };
            if !self.release_piece(piece) {
                return;
            }
        }
    }

    fn release_piece(&mut self, piece: Piece) -> bool {
        if self.driver.release(piece).is_err() {
            self.holdings.spare.push(piece);
            return false;
        }
        self.holdings.granules -= piece.bytes / GRANULE;
        self.counted.granules_released += piece.bytes / GRANULE;
        true
    }

    /// Gives the pieces in some slots of a free tile back, whose work is over.
    fn give_back(&mut self, id: TileId, from: usize, to: usize) -> bool {
        let (start, end) = (self.range.address_of_slot(from), self.range.address_of_slot(to));
        if !self.unmap_stitches_of(from..to) || self.driver.unmap(start, end - start).is_err() {
            return false;
        }
        let tile = self.tiles.carve(id, start, end);
        self.tiles.set_unmapped(tile);
        let pieces: Vec<Run> = self.range.pieces(from..to).collect();
        for run in pieces {
            let piece = self.range.clear_home(run.slot);
            self.release_piece(piece);
        }
        true
    }

    /// Gives everything back, the range too. Nothing is in use.
    pub(super) fn give_all_back(&mut self) {
        self.coalesce();
        self.maintain(u64::MAX, 0, u64::MAX);
        while !self.stitches.kept.is_empty() && self.unmap_stitch(0) {}
        if self.range.is_virtual && self.holdings.granules == 0 && self.stitches.kept.is_empty() {
            // The process or the device is ending: there is nobody to tell.
            let _ = self.driver.unreserve(self.range.base, self.range.size);
        }
    }
}
