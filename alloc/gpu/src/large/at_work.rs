//! What a request takes where several streams are at work: what is over, what will be over before its own stream gets
//! there, or new memory, before it has its stream wait for others.
//!
//! Streams that wait for each other come later and later to what they free, and others wait for that in turn. So memory
//! that waits for nothing is kept apart from what does, a stream takes its own first, and free neighbours of several
//! owners serve a request together, as far as it needs them. A stream is held up for no more than a share of its time;
//! beyond that the pool grows, and where it can't, the stream waits.

use super::tiles::{Kind, TileId};
use super::{Large, Request, align_up};
use crate::device::{Device, DeviceError, Fault, Result};
use crate::streams::{LaneId, Point};

/// Tiles with free neighbours that are looked at: nobody should hold the lock for all of very many.
const TILES_SEEN: usize = 4096;

/// Streams that are asked how far they are before the pool grows.
const LANES_ASKED: usize = 64;

impl<D: Device> Large<D> {
    /// Whether a request may take memory behind another stream's work, and for what part of its time a stream at work
    /// may be held up by that.
    pub fn set_waits(&mut self, waits: bool, share: f64) {
        self.waits = waits;
        self.lanes.set_wait_share(share);
    }

    /// Whether there are streams at work whose memory others should not wait for. A segment is dear, and of no use to
    /// others while a part of it is in use: without granules they wait.
    pub(super) fn are_others_at_work(&self) -> bool {
        self.lanes.are_at_work() && self.range.is_virtual
    }

    /// Whether the pool rather grows than that a stream is held up for longer than it may.
    pub(super) fn grows_rather(&self) -> bool {
        self.are_others_at_work() && !self.is_short && self.lanes.are_waits_bounded()
    }

    /// Whether a free tile holds a stream up no longer than it may.
    pub(super) fn may_hold_up(&self, id: TileId, lane: LaneId) -> bool {
        let most = self.lanes.may_be_held_up(lane);
        let mut times = self.tiles.get(id).pending.points().map(|point| self.lanes.hold_up(lane, point));
        times.all(|time| time.is_some_and(|time| time <= most))
    }

    /// What fits when others have been asked how far they are; or what lies side by side and holds its stream up not at
    /// all, or no longer than it may.
    pub(super) fn fit_at_work(&mut self, request: &Request) -> Option<TileId> {
        let lane = request.lane;
        self.ask_others(lane, LANES_ASKED);
        let fit = self.tiles.first_fit_for(0, lane, request.size, request.align);
        let is_over = |large: &Self, point| large.lanes.is_ordered(lane, point);
        let fit = fit.or_else(|| self.fit_run(request, is_over));
        if fit.is_some() || !self.waits {
            return fit;
        }
        let within =
            |most| move |large: &Self, point| large.lanes.hold_up(lane, point).is_some_and(|time| time <= most);
        let most = self.lanes.may_be_held_up(lane);
        self.fit_run(request, within(0)).or_else(|| self.fit_run(request, within(most)))
    }

    /// Free tiles side by side with room for a request, whose points `may` lets through: those at the lowest address.
    fn fit_run(&mut self, request: &Request, may: impl Fn(&Self, Point) -> bool) -> Option<TileId> {
        let mut ids = self.tiles.index().best_fits(request.size, request.align);
        ids.extend(self.tiles.noted_apart().into_iter().take(TILES_SEEN));
        let may = |id: TileId| self.tiles.get(id).pending.points().all(|point| may(self, point));
        let mut found: Option<(u64, TileId)> = None;
        for id in ids {
            let tile = self.tiles.get(id);
            if (tile.kind, tile.pool) != (Kind::Free, 0) || !may(id) {
                continue;
            }
            let first = self.tiles.first_of_run(id, may);
            let start = self.tiles.get(first).address;
            let end = align_up(start, request.align) + request.size;
            if found.is_none_or(|(lowest, _)| start < lowest) && self.tiles.runs_to(first, end, may) {
                found = Some((start, first));
            }
        }
        let (start, first) = found?;
        let tile = self.tiles.merge_to(first, align_up(start, request.align) + request.size);
        let pending = self.tiles.get(tile).pending.clone();
        self.lanes.order(request.lane, request.stream, &pending).ok()?;
        self.counted.from_other_streams += u64::from(pending.points().any(|point| point.lane != request.lane));
        Some(tile)
    }

    /// A block for a request that no free tile fits; where the device has no more memory, one that its stream waits
    /// for.
    pub fn grow_or_wait(&mut self, request: &Request) -> Result<u64> {
        match self.grow(request) {
            Err(DeviceError { fault: Fault::OutOfMemory | Fault::Limit, .. }) if self.grows_rather() => {
                self.is_short = true;
                let block = match self.fit(request) {
                    Some(block) => Ok(block),
                    None => self.grow(request),
                };
                self.is_short = false;
                block
            }
            result => result,
        }
    }
}
