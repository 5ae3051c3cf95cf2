//! How memory is created: how much at a time, and in which pieces.
//!
//! The driver charges for pieces, whatever their length; but a block anywhere in a piece keeps all of it from being
//! [stitched](super::stitches). So a pool that holds more grows by larger pieces, and what is lost to them stays a small
//! part of it. A large block lies in its pieces alone, so that they may be a part of it.
//!
//! As long as little is free, memory is created and nothing is put together, and where the pool grows it grows by more
//! than is asked for, so that the next requests need no call. What is free is then no more than a small part of what is
//! held; what nobody takes of it goes back as other [idle](super::idle) memory does.

use super::Large;
use crate::device::{Call, Device, DeviceError, Fault, GRANULE, Piece, Result};

/// The part of what is held, as a divisor, that may be free before memory is put together from it.
const LEFT_ALONE: u64 = 25;

/// The part of what is held, as a divisor, by which the pool grows at least.
const STOCK: u64 = 128;

/// The part of what is held, as a divisor, that may be free for that to be created for nobody yet.
const MOST_STOCK: u64 = 64;

/// In how many pieces new memory is made; and where several streams are used: there, memory is put together again and
/// again, and large pieces are in the way.
const PARTS: u64 = 2;
const PARTS_OF_SEVERAL_STREAMS: u64 = 8;

/// Granules of a piece that a part of what is held need not allow, and that it does not ask for: 48 MiB, and 8 MiB.
const USUAL_PIECE: u64 = 24;
const USUAL_PIECE_OF_SEVERAL_STREAMS: u64 = 4;

/// So many new granules are only created after the device was asked whether it has them.
const MANY: u64 = 64;

/// The pool's own limit, in the place of the device's answer.
pub const LIMIT: DeviceError = DeviceError { call: Call::Create, fault: Fault::Limit };

/// There are no addresses, or not so much memory in all.
pub const NO_ADDRESSES: DeviceError = DeviceError { call: Call::Reserve, fault: Fault::OutOfMemory };

impl<D: Device> Large<D> {
    /// Whether so little is free that it is left alone where a request would have to be put together from it.
    pub(super) fn has_little_free(&self) -> bool {
        self.tiles.index().free_bytes() < self.held() / LEFT_ALONE
    }

    /// Granules that may be created for nobody yet.
    fn stock(&self) -> u64 {
        let free = self.tiles.index().free_bytes() / GRANULE;
        (self.holdings.granules / MOST_STOCK).saturating_sub(free)
    }

    /// Granules of the piece that is created for nobody yet, after more is in use than ever before by so many.
    pub(super) fn ahead_of(&self, rise: u64) -> u64 {
        let granules = rise.min(self.stock());
        granules.min(self.largest_piece(granules))
    }

    /// Pieces for so many granules that are missing, or for more, where there are addresses for as many as `most`.
    pub(super) fn obtain_with_stock(&mut self, missing: usize, most: usize) -> Result<Vec<Piece>> {
        let stocked = missing.max(((self.holdings.granules / STOCK) as usize).min(missing + self.stock() as usize));
        if (missing + 1..most).contains(&stocked)
            && let Ok(pieces) = self.obtain(stocked, self.largest_piece(stocked as u64))
        {
            return Ok(pieces);
        }
        self.obtain(missing, self.largest_piece(missing as u64))
    }

    /// New pieces that are so many granules together, none of them larger than `most`, spare ones first.
    pub(super) fn obtain(&mut self, granules: usize, most: u64) -> Result<Vec<Piece>> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut missing = granules as u64;
        self.holdings.spare.retain(|piece| {
            let fits = piece.bytes / GRANULE <= missing;
            if fits {
                missing -= piece.bytes / GRANULE;
                pieces.push(*piece);
            }
            !fits
        });
        match self.create_all(missing, most, &mut pieces) {
            Ok(()) => Ok(pieces),
            Err(error) => {
                self.holdings.spare.append(&mut pieces);
                self.release_spare(u64::MAX);
                Err(error)
            }
        }
    }

    /// Creates so many granules, in as large pieces as suit.
    pub(super) fn create_all(&mut self, mut missing: u64, mut most: u64, pieces: &mut Vec<Piece>) -> Result<()> {
        self.check_limit(missing)?;
        // To ask first is cheaper than to create much and give it back.
        let ask = missing >= MANY && !self.lanes.is_any_capturing();
        if ask && self.device_free().is_some_and(|info| info.free < missing * GRANULE) {
            return Err(DeviceError { call: Call::Create, fault: Fault::OutOfMemory });
        }
        while missing > 0 {
            let granules = most.min(missing);
            match self.driver.create(granules * GRANULE) {
                Ok(piece) => pieces.push(piece),
                // What there is may lie in smaller pieces.
                Err(error) if error.fault == Fault::OutOfMemory && granules > 1 => {
                    most = granules / 2;
                    continue;
                }
                Err(error) => return Err(error),
            }
            missing -= granules;
            self.count_created(granules);
        }
        Ok(())
    }

    /// Granules of the largest piece that is made now, for so many new granules: a part of them, not less than a small
    /// part of what is held up to a usual piece, and not more than that or a usual piece.
    fn largest_piece(&self, new: u64) -> u64 {
        let Some(of_held) = (self.holdings.granules + new).checked_div(self.piece_divisor) else { return 1 };
        let (parts, usual) = match self.lanes.count() > 1 {
            false => (PARTS, USUAL_PIECE),
            true => (PARTS_OF_SEVERAL_STREAMS, USUAL_PIECE_OF_SEVERAL_STREAMS),
        };
        (new / parts).clamp(of_held.clamp(1, usual), of_held.max(usual))
    }

    /// Whether the pool may hold so many granules more.
    pub(super) fn check_limit(&self, granules: u64) -> Result<()> {
        let within =
            (self.holdings.granules + granules).checked_mul(GRANULE).is_some_and(|bytes| bytes <= self.holdings.limit);
        if within { Ok(()) } else { Err(LIMIT) }
    }

    pub(super) fn count_created(&mut self, granules: u64) {
        self.counted.granules_created += granules;
        self.holdings.granules += granules;
        self.holdings.peak = self.holdings.peak.max(self.holdings.granules);
    }
}
