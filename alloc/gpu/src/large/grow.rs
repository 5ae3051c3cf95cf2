//! What happens when nothing fits: memory is put together from free granules elsewhere, and from new ones.
//!
//! New granules get their homes side by side at the low end of the range, stitches their addresses at the high end:
//! where nothing is in use, all memory is one piece. Of the two ways to serve a request, to add new granules to what is
//! free beside unmapped addresses and to [stitch](super::stitches) free granules together, the one is taken that
//! creates less. A stitch that is there already costs nothing, so it is tried first.
//!
//! Nothing has to be waited for on the host: the block waits, on its stream, for what its granules wait for. Only a
//! stitch that is mended has mappings taken away, and only if all work under its addresses is known to be over.

use std::collections::HashSet;

use super::donors::Donors;
use super::stitches::{Stitch, runs_of};
use super::tiles::{Kind, TileId};
use super::{Large, Request};
use crate::device::{Call, Device, DeviceError, Fault, GRANULE, Granule, Result};
use crate::streams::Pending;

/// Unmapped ranges that are looked at.
const PLACES: usize = 64;

/// Granules of a stitch that may be replaced before a new one is mapped, in per cent.
const MENDED: usize = 45;

/// So many new granules are only created after the device was asked whether it has them.
const MANY: u64 = 64;

/// The pool's own limit, in the place of the device's answer.
pub const LIMIT: DeviceError = DeviceError { call: Call::Create, fault: Fault::Limit };

/// There are no addresses, or not so much memory in all.
pub const NO_ADDRESSES: DeviceError = DeviceError { call: Call::Reserve, fault: Fault::OutOfMemory };

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
            None => match self.mend(room, request) {
                Some(tile) => tile,
                None => self.build(room, request)?,
            },
        };
        let pending = self.tiles.get(tile).pending.clone();
        if let Err(error) = self.lanes.order(request.lane, request.stream, &pending) {
            self.dissolve(tile);
            return Err(error);
        }
        self.counted.from_other_streams += u64::from(pending.points().any(|point| point.lane != request.lane));
        Ok(self.take(tile, request))
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

    /// Puts a stitch to use some of whose granules are not free: others are mapped in their places. It is the one that
    /// needs the fewest, and few together with what was replaced in it before: two requests that take turns would each
    /// undo what the other one needs, for ever. So a new one costs little more than twice what was mended till then.
    fn mend(&mut self, room: u64, request: &Request) -> Option<TileId> {
        let large =
            self.stitches.kept.iter().map(Stitch::granules).filter(|granules| *granules as u64 * GRANULE >= room);
        // What is left of a stitch, and others for all that is missing.
        let most = 2 * large.max()?;
        // What is unmapped must be known to be over; work that is not stays as it is.
        self.lanes.refresh(u64::MAX, true);
        let donors = self.donors(request, most);
        let mut best: Option<(usize, usize)> = None;
        for (at, stitch) in self.stitches.kept.iter().enumerate() {
            let granules = stitch.granules();
            let over = stitch.pending.points().all(|point| self.lanes.is_done(point));
            if stitch.size() < room || granules > donors.granules() || !over {
                continue;
            }
            let missing = self.donors_at(&stitch.slots(), request).iter().filter(|tile| tile.is_none()).count();
            if (missing + stitch.mended) * 100 < granules * MENDED && best.is_none_or(|(fewest, _)| missing < fewest) {
                best = Some((missing, at));
            }
        }
        let (missing, at) = best?;
        let mut stitch = self.stitches.kept.swap_remove(at);
        let mut slots = stitch.slots();
        let own: HashSet<usize> = slots.iter().copied().collect();
        // The largest tiles first, as for a new one.
        let others = self.choose(missing + slots.len(), &donors);
        let mut others =
            others.into_iter().flat_map(|run| run.slot..run.slot + run.granules).filter(|slot| !own.contains(slot));
        let free = self.donors_at(&slots, request);
        let mut mapped = vec![true; slots.len()];
        let mut from = 0;
        while from < slots.len() {
            if free[from].is_some() {
                from += 1;
                continue;
            }
            let to = (from..slots.len()).find(|at| free[*at].is_some()).unwrap_or(slots.len());
            let new: Vec<usize> = others.by_ref().take(to - from).collect();
            let address = stitch.address + from as u64 * GRANULE;
            if new.len() < to - from || !self.remap(address, &new, &mut mapped[from..to]) {
                self.abandon(&stitch, &mapped);
                return None;
            }
            slots[from..to].copy_from_slice(&new);
            from = to;
        }
        self.counted.granules_remapped += missing as u64;
        stitch.runs = self.runs_in_tiles(&slots, request);
        stitch.mended += missing;
        let homes = self.homes_of(&stitch.runs, request);
        debug_assert!(homes.is_some(), "what was chosen is free");
        Some(self.use_stitch(stitch, |run| homes.as_ref()?.tile_of(run)))
    }

    /// Maps the granules of these homes in the place of others. What is mapped afterwards is noted.
    fn remap(&self, address: u64, homes: &[usize], mapped: &mut [bool]) -> bool {
        let bytes = homes.len() as u64 * GRANULE;
        if self.driver.unmap(address, bytes).is_err() {
            return false;
        }
        mapped.fill(false);
        for (at, slot) in homes.iter().enumerate() {
            if self.driver.map(address + at as u64 * GRANULE, Granule(self.range.home[*slot])).is_err() {
                return false;
            }
            mapped[at] = true;
        }
        self.driver.set_access(address, bytes).is_ok()
    }

    /// Gives up the addresses of a stitch of which not all is mapped.
    fn abandon(&mut self, stitch: &Stitch, mapped: &[bool]) {
        let mut clean = true;
        for run in runs_of(&(0..mapped.len()).filter(|at| mapped[*at]).collect::<Vec<_>>()) {
            let address = stitch.address + run.slot as u64 * GRANULE;
            clean &= self.driver.unmap(address, run.granules as u64 * GRANULE).is_ok();
        }
        match clean {
            true => self.tiles.set_unmapped(stitch.tile),
            false => self.tiles.set(stitch.tile, Kind::Broken, 0),
        }
    }

    /// Creates as little memory as will do. Returns the free tile that has the room.
    fn build(&mut self, room: u64, request: &Request) -> Result<TileId> {
        let granules = room.div_ceil(GRANULE) as usize;
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

    /// Maps new granules at a place, which is their home from now on. Returns the free tile that they are in.
    fn extend(&mut self, place: Place) -> Result<TileId> {
        let new = self.obtain(place.granules)?;
        let from = self.tiles.get(place.tile).address;
        let tile = self.tiles.carve(place.tile, from, from + new.len() as u64 * GRANULE);
        if let Err(error) = self.map_all(tile, &new) {
            self.holdings.spare.extend(new);
            return Err(error);
        }
        let first = self.range.slot(from);
        for (home, granule) in self.range.home[first..].iter_mut().zip(&new) {
            *home = granule.0;
        }
        self.tiles.set_free_apart(tile, 0, Pending::default(), self.upkeep.now);
        let tile = match place.joins {
            [Some(before), _] => self.tiles.merge(before),
            [None, _] => tile,
        };
        Ok(if place.joins[1].is_some() { self.tiles.merge(tile) } else { tile })
    }

    /// Maps free granules side by side at the high end of the range.
    pub(super) fn stitch(&mut self, granules: usize, donors: &Donors) -> Result<TileId> {
        let size = granules as u64 * GRANULE;
        let hole = self.tiles.index().unmapped_from(size).next().ok_or(NO_ADDRESSES)?;
        let to = self.tiles.get(hole).end();
        let tile = self.tiles.carve(hole, to - size, to);
        let runs = self.choose(granules, donors);
        let homes = runs.iter().flat_map(|run| run.slot..run.slot + run.granules);
        let granules: Vec<_> = homes.map(|slot| Granule(self.range.home[slot])).collect();
        self.map_all(tile, &granules)?;
        self.counted.granules_remapped += granules.len() as u64;
        let stitch = self.new_stitch(tile, runs);
        Ok(self.use_stitch(stitch, |run| donors.tile_of(run)))
    }

    /// New granules, spare ones first.
    pub(super) fn obtain(&mut self, granules: usize) -> Result<Vec<Granule>> {
        let before = self.holdings.spare.len();
        let missing = granules.saturating_sub(before) as u64;
        self.check_limit(missing)?;
        // To ask first is cheaper than to create much and give it back.
        let ask = missing >= MANY && !self.lanes.is_any_capturing();
        if ask && self.device_free().is_some_and(|info| info.free < missing * GRANULE) {
            return Err(DeviceError { call: Call::Create, fault: Fault::OutOfMemory });
        }
        while self.holdings.spare.len() < granules {
            match self.driver.create() {
                Ok(granule) => self.holdings.spare.push(granule),
                Err(error) => {
                    self.release_spare((self.holdings.spare.len() - before) as u64);
                    return Err(error);
                }
            }
            self.count_created(1);
        }
        Ok(self.holdings.spare.split_off(self.holdings.spare.len() - granules))
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

    /// Maps granules side by side at an unmapped tile and makes them accessible, or none of them.
    pub(super) fn map_all(&mut self, tile: TileId, granules: &[Granule]) -> Result<()> {
        let address = self.tiles.get(tile).address;
        let mut mapped = 0;
        let mut result = Ok(());
        for granule in granules {
            result = self.driver.map(address + mapped, *granule);
            if result.is_err() {
                break;
            }
            mapped += GRANULE;
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
