//! What several streams have finished is everyone's at once, so that holes are not each stream's own.
//!
//! When a stream asks for memory that others have freed lately, they are asked how far they are, behind an event that is
//! recorded then: two calls to the driver for all that a stream has freed since it was last asked. What is over merges
//! with its neighbours. Each request pays for a part of a question, so that streams which go on in turns of one request
//! don't ask each time; one of more than a granule, which would be mapped for a hundred times the price, pays for a
//! whole one. Streams that are at work are asked ever more seldom.

use super::Large;
use super::owner::Owner;
use super::tiles::Kind;
use crate::device::{Device, GRANULE};
use crate::streams::LaneId;

/// Requests of a granule at most that pay for asking one stream.
const PRICE: usize = 16;
/// Questions that are saved up at most.
const SAVED: usize = 16;
/// Requests from one question to the next at most, while no stream is found to be further.
const SELDOM: usize = 128;

/// When streams are asked how far they are.
#[derive(Clone, Copy)]
pub struct Hearing {
    /// Requests that have not paid for a question yet.
    saved: usize,
    /// Requests until the next question.
    left: usize,
    /// As many as there were from the last but one to the last.
    patience: usize,
}

impl Default for Hearing {
    fn default() -> Hearing {
        Hearing { saved: SAVED * PRICE, left: 0, patience: 0 }
    }
}

impl<D: Device> Large<D> {
    /// Asks the other streams how far they are, if it is time to, and makes everyone's what is over. Returns what is to be
    /// remembered once the request has paid.
    #[inline]
    pub(super) fn hear_others(&mut self, lane: LaneId, size: u64) -> Hearing {
        self.tiles.keeps_apart = self.keeps_apart();
        let pays = if size > GRANULE { PRICE } else { 1 };
        let hearing = Hearing { saved: (self.hearing.saved + pays).min(SAVED * PRICE), ..self.hearing };
        if self.lanes.are_others_restless(lane) { self.hear_restless(lane, hearing) } else { hearing }
    }

    /// Whether what streams free is not merged with what others have freed: it would wait for the one that is over last.
    #[inline]
    fn keeps_apart(&self) -> bool {
        self.lanes.keep_apart() && self.range.is_virtual
    }

    #[inline(never)]
    fn hear_restless(&mut self, lane: LaneId, hearing: Hearing) -> Hearing {
        let Hearing { saved, left, patience } = hearing;
        if left > 0 || saved < PRICE || self.lanes.is_any_capturing() {
            return Hearing { left: left.saturating_sub(1), ..hearing };
        }
        let (asked, is_further) = self.ask_others(lane, saved / PRICE);
        let patience = if is_further { 0 } else { (patience * 2).clamp(1, SELDOM) };
        Hearing { saved: saved - asked * PRICE, left: patience, patience }
    }

    /// Asks so many of the other streams how far they are, and makes everyone's what is over. Returns how many were
    /// asked, and whether one was further than was known.
    pub(super) fn ask_others(&mut self, lane: LaneId, most: usize) -> (usize, bool) {
        let (asked, further) = self.lanes.ask_others(lane, most);
        self.settle_lanes(&further);
        self.tiles.keeps_apart = self.keeps_apart();
        (asked, !further.is_empty())
    }

    /// Makes everyone's what is over of these streams, which have come further than was known.
    pub fn settle_lanes(&mut self, further: &[LaneId]) {
        for lane in further {
            self.settle_all_of(Owner::lane(0, *lane));
        }
        if !further.is_empty() {
            self.settle_all_of(Owner::several(0));
        }
    }

    /// Makes an owner's free memory everyone's whose work is over.
    fn settle_all_of(&mut self, owner: Owner) {
        for id in self.tiles.index().owned_by(owner) {
            let tile = self.tiles.get(id);
            let is_free = tile.kind == Kind::Free && tile.pool == 0 && !tile.pending.is_empty();
            if is_free && tile.pending.points().all(|point| self.lanes.is_done(point)) {
                let id = self.tiles.set_anyones(id);
                self.dissolve(id);
            }
        }
    }
}
