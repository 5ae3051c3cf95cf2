//! What happens when nothing fits: memory is put together from free granules elsewhere, and from new ones.
//!
//! New granules get their homes side by side at the low end of the range, stitches their addresses at the high end:
//! where nothing is in use, all memory is one piece. Of the two ways to serve a request, to add new granules to what is
//! free beside unmapped addresses and to [stitch](super::stitches) free granules together, the one is taken that
//! creates less. A stitch that is there already costs nothing, so it is tried first.
//!
//! Nothing has to be waited for on the host: the block waits, on its stream, for what its granules wait for.

use super::donors::Donors;
use super::pieces::NO_ADDRESSES;
use super::range::LARGEST_PIECE;
use super::stitches::Run;
use super::tiles::{Kind, TileId};
use super::{Large, Request};
use crate::device::{Device, Fault, GRANULE, Piece, Result};
use crate::streams::Pending;

/// Unmapped ranges that are looked at.
const PLACES: usize = 64;

/// Tiles that are looked at for merging before memory is put together: more is left to the background, as nobody should
/// wait for it.
const TILES_MERGED: usize = 4096;

/// Calls to the driver that are made before that, to learn whose work is over.
const LANES_ASKED: u64 = 64;

/// Where new granules would be mapped.
struct Place {
    tile: TileId,
    /// The free tiles before and after it that are to be part of the room.
    joins: [Option<TileId>; 2],
    granules: usize,
}

impl<D: Device> Large<D> {
    /// A block for a request that no free tile fits.
    pub fn grow(&mut self, request: &Request) -> Result<u64> {
        loop {
            let lost = self.lanes.times_lost();
            match self.grow_once(request) {
                // What is free of stitches in use serves, too; but whole ones serve again and again.
                Err(error) if matches!(error.fault, Fault::OutOfMemory | Fault::Limit) && self.split_stitches() => {}
                // A stream turned out to be gone: the next try leaves its memory out.
                Err(error) if matches!(error.fault, Fault::Invalid(_)) && self.lanes.times_lost() > lost => {}
                result => return result,
            }
        }
    }

    fn grow_once(&mut self, request: &Request) -> Result<u64> {
        let room = request.size + request.align - 256;
        if !self.range.is_virtual {
            let tile = self.new_segment(room)?;
            return Ok(self.take(tile, request));
        }
        let tile = match self.reuse(room, request) {
            Some(tile) => {
                self.counted.stitches_reused += 1;
                tile
            }
            None => self.build(room, request)?,
        };
        let pending = self.tiles.get(tile).pending.clone();
        if let Err(error) = self.lanes.order(request.lane, request.stream, &pending) {
            self.dissolve(tile);
            return Err(error);
        }
        self.counted.from_other_streams += u64::from(pending.points().any(|point| point.lane != request.lane));
        Ok(self.take(tile, request))
    }

    /// What fits where several streams are used and all is merged whose work is over: much of what they free lies between
    /// memory that waits for others, and in stitches that could go home. What is put together from fewer and longer
    /// pieces costs less, and serves again.
    pub fn fit_when_merged(&mut self, request: &Request) -> Option<u64> {
        if self.lanes.count() < 2 || self.lanes.is_any_capturing() || !self.range.is_virtual {
            return None;
        }
        self.lanes.refresh(LANES_ASKED, true);
        if !self.is_coalescing() {
            self.begin_to_coalesce();
        }
        self.coalesce_some(TILES_MERGED);
        let tile = self.fit_of_others(request)?;
        Some(self.take(tile, request))
    }

    /// Puts the smallest stitch to use that is large enough and whose granules are all free.
    fn reuse(&mut self, room: u64, request: &Request) -> Option<TileId> {
        let kept = &self.stitches.kept;
        let mut fits: Vec<_> = (0..kept.len()).filter(|at| kept[*at].size() >= room).collect();
        fits.sort_by_key(|at| kept[*at].granules());
        let (at, homes) = fits.into_iter().find_map(|at| Some((at, self.homes_of(&kept[at].runs, request)?)))?;
        let stitch = self.stitches.kept.swap_remove(at);
        Some(self.use_stitch(stitch, |run| homes.tile_of(run)))
    }

    /// Creates as little memory as will do. Returns the free tile that has the room.
    fn build(&mut self, room: u64, request: &Request) -> Result<TileId> {
        let granules = room.div_ceil(GRANULE) as usize;
        // What little is free lies in many places.
        if self.has_little_free()
            && let Some(place) = self.place(room, Some(request))
        {
            return self.extend(place);
        }
        let mut donors = self.donors(request, granules);
        if donors.granules() < granules && self.split_stitches() {
            donors = self.donors(request, granules);
        }
        let missing = granules.saturating_sub(donors.granules());
        if missing == 0 {
            return self.stitch(granules, &donors);
        }
        if let Some(place) = self.place(room, Some(request)).filter(|place| place.granules <= missing) {
            return self.extend(place);
        }
        let place = self.place(missing as u64 * GRANULE, None).ok_or(NO_ADDRESSES)?;
        self.extend(place)?;
        let donors = self.donors(request, granules);
        if donors.granules() < granules {
            return Err(NO_ADDRESSES);
        }
        self.stitch(granules, &donors)
    }

    /// The free neighbours of a tile that a request can use.
    fn usable_neighbours(&self, id: TileId, request: &Request) -> [Option<TileId>; 2] {
        let free = |id: &TileId| (self.tiles.get(*id).kind, self.tiles.get(*id).pool) == (Kind::Free, 0);
        let usable = |id: &TileId| free(id) && self.is_usable(*id, request);
        [self.tiles.before(id).filter(usable), self.tiles.after(id).filter(usable)]
    }

    /// The place at which the fewest granules are missing, with the free neighbours that the request can use if there
    /// is one. Of these the one at the frontier, else the tightest.
    fn place(&self, room: u64, request: Option<&Request>) -> Option<Place> {
        let size = |id: Option<TileId>| id.map_or(0, |id| self.tiles.get(id).size);
        let frontier = self.tiles.index().unmapped_from(0).next_back();
        let places = self.tiles.index().unmapped_from(0).take(PLACES).chain(frontier);
        let places = places.filter_map(|tile| {
            let [before, after] = request.map_or([None; 2], |request| self.usable_neighbours(tile, request));
            let (hole, have) = (self.tiles.get(tile).size, size(before));
            let missing = room.saturating_sub(have).div_ceil(GRANULE).max(1);
            if missing * GRANULE < hole {
                return Some(Place { tile, joins: [before, None], granules: missing as usize });
            }
            let filled = have + hole + size(after) >= room;
            filled.then_some(Place { tile, joins: [before, after], granules: (hole / GRANULE) as usize })
        });
        places.min_by_key(|place| (place.granules, Some(place.tile) != frontier, self.tiles.get(place.tile).size))
    }

    /// Maps new granules at a place, and a stock where it has room. Returns the free tile that they are in.
    fn extend(&mut self, place: Place) -> Result<TileId> {
        let room = self.tiles.get(place.tile).size / GRANULE;
        let new = self.obtain_with_stock(place.granules, room as usize)?;
        self.map_at(place, new)
    }

    /// Maps new pieces at a place, which is their home from now on. Returns the free tile that they are in.
    fn map_at(&mut self, place: Place, new: Vec<Piece>) -> Result<TileId> {
        let from = self.tiles.get(place.tile).address;
        let bytes = new.iter().map(|piece| piece.bytes).sum::<u64>();
        let tile = self.tiles.carve(place.tile, from, from + bytes);
        if let Err(error) = self.map_all(tile, &new) {
            self.holdings.spare.extend(new);
            return Err(error);
        }
        self.settle_at(from, &new);
        self.tiles.set_free_apart(tile, 0, Pending::default(), self.upkeep.now);
        let tile = match place.joins {
            [Some(before), _] => self.tiles.merge(before),
            [None, _] => tile,
        };
        Ok(if place.joins[1].is_some() { self.tiles.merge(tile) } else { tile })
    }

    /// Creates in the background what the program is likely to ask for next, as long as little is free: by as much as what
    /// is in use has risen since this was last done, in one piece.
    pub fn grow_ahead(&mut self) {
        let in_use = self.held() - self.tiles.index().free_bytes();
        let most = self.upkeep.most_in_use.min(self.held());
        self.upkeep.most_in_use = most.max(in_use);
        let granules = self.ahead_of(in_use.saturating_sub(most).div_ceil(GRANULE));
        if granules == 0 || !self.range.is_virtual || self.lanes.is_any_capturing() {
            return;
        }
        if let Some(place) = self.place(granules * GRANULE, None)
            && let Ok(new) = self.obtain(granules as usize, granules)
        {
            // Whoever needs it will have the error.
            let _ = self.map_at(place, new);
        }
    }

    /// Makes the addresses from here on the home of pieces, side by side.
    pub(super) fn settle_at(&mut self, address: u64, pieces: &[Piece]) {
        let mut slot = self.range.slot(address);
        for piece in pieces {
            self.range.set_home(slot, *piece);
            slot += (piece.bytes / GRANULE) as usize;
        }
    }

    /// Maps free pieces side by side at the high end of the range: so many granules, or a few more.
    pub(super) fn stitch(&mut self, granules: usize, donors: &Donors) -> Result<TileId> {
        let mut runs = self.choose(granules, donors);
        self.cut_to(granules, &mut runs, donors)?;
        let size = runs.iter().map(|run| run.granules as u64 * GRANULE).sum();
        let hole = self.tiles.index().unmapped_from(size).next().ok_or(NO_ADDRESSES)?;
        let to = self.tiles.get(hole).end();
        let tile = self.tiles.carve(hole, to - size, to);
        let homes = runs.iter().flat_map(|run| self.range.pieces(run.slot..run.end()));
        let pieces: Vec<_> = homes.map(|piece| self.range.piece_at(piece.slot)).collect();
        self.map_all(tile, &pieces)?;
        self.counted.granules_remapped += size / GRANULE;
        let stitch = self.new_stitch(tile, runs);
        Ok(self.use_stitch(stitch, |run| donors.tile_of(run)))
    }

    /// Cuts the last piece of what was chosen where that is more than was wanted, if its work is over and no stitch has
    /// it: to unmap stitches would cost more than the memory is worth.
    fn cut_to(&mut self, granules: usize, runs: &mut [Run], donors: &Donors) -> Result<()> {
        let beyond = runs.iter().map(|run| run.granules).sum::<usize>().saturating_sub(granules);
        let Some(last) = runs.last_mut().filter(|last| beyond > 0 && last.granules > beyond) else { return Ok(()) };
        let Some(tile) = donors.tile_of(*last) else { return Ok(()) };
        let lanes: Vec<_> = self.tiles.get(tile).pending.points().map(|point| point.lane).collect();
        if !self.lanes.is_any_capturing() {
            lanes.into_iter().for_each(|lane| self.lanes.poll(lane));
        }
        let is_over = self.tiles.get(tile).pending.points().all(|point| self.lanes.is_done(point));
        if is_over && self.cut_piece(tile, *last, last.granules - beyond)? {
            last.granules -= beyond;
        }
        Ok(())
    }

    /// Puts several pieces in the place of one that lies in a free tile, so that one begins after so many granules:
    /// what was made in one piece to be cheap serves by parts. Returns whether it did. It has the device's memory twice
    /// at no moment.
    fn cut_piece(&mut self, tile: TileId, run: Run, granules: usize) -> Result<bool> {
        let (address, old) = (self.range.address_of_slot(run.slot), self.range.piece_at(run.slot));
        let can = !self.lanes.is_any_capturing() && !self.is_in_stitches(run.slot..run.end());
        if !can || self.driver.unmap(address, old.bytes).is_err() {
            return Ok(false);
        }
        self.range.clear_home(run.slot);
        let mut new = vec![old];
        let mut made = self.driver.release(old).inspect(|()| new.clear());
        if made.is_ok() {
            self.holdings.granules -= run.granules as u64;
            self.counted.granules_released += run.granules as u64;
            let parts = [granules, run.granules - granules];
            made = parts.into_iter().try_for_each(|part| self.create_all(part as u64, LARGEST_PIECE as u64, &mut new));
        }
        let mut to = address;
        let mapped = made.and_then(|()| {
            new.iter().try_for_each(|piece| {
                self.driver.map(to, *piece)?;
                to += piece.bytes;
                Ok(())
            })
        });
        match mapped.and_then(|()| self.driver.set_access(address, old.bytes)) {
            Ok(()) => {
                self.settle_at(address, &new);
                Ok(true)
            }
            Err(error) => {
                let tile = self.tiles.carve(tile, address, address + old.bytes);
                match to == address || self.driver.unmap(address, to - address).is_ok() {
                    true => self.tiles.set_unmapped(tile),
                    false => self.tiles.set(tile, Kind::Broken, 0),
                }
                self.holdings.spare.append(&mut new);
                Err(error)
            }
        }
    }

    /// Maps pieces side by side at an unmapped tile and makes them accessible, or none of them.
    pub(super) fn map_all(&mut self, tile: TileId, pieces: &[Piece]) -> Result<()> {
        let address = self.tiles.get(tile).address;
        let mut mapped = 0;
        let mut result = Ok(());
        for piece in pieces {
            result = self.driver.map(address + mapped, *piece);
            if result.is_err() {
                break;
            }
            mapped += piece.bytes;
        }
        let result = result.and_then(|()| self.driver.set_access(address, mapped));
        if result.is_err() {
            if mapped == 0 || self.driver.unmap(address, mapped).is_ok() {
                self.tiles.set_unmapped(tile);
            } else {
                self.tiles.set(tile, Kind::Broken, 0);
            }
        }
        result
    }
}
