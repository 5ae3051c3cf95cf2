//! Stitches: free granules from many places, mapped side by side under a second range of addresses.
//!
//! Each granule has a home, the addresses at which it was first mapped, and keeps that mapping. While a stitch is in
//! use its granules are lent: their homes are nobody's. When all of a stitch is free again they go home, with what they
//! wait for, and the stitch stays mapped. The next request of its kind then costs no call to the driver; and since
//! everything is where it was, a program that repeats itself repeats its requests. That the memory has two addresses is
//! harmless, because only one of them is ever in a block; work on the one comes after work on the other by what the
//! tiles wait for.

use std::collections::BTreeMap;

use super::Large;
use super::tiles::{Kind, TileId};
use crate::device::{Device, GRANULE};
use crate::streams::Pending;

/// Mapped stitches that are not in use, at most; the one used longest ago goes first.
const KEPT: usize = 256;

/// Granules at home side by side: of whole pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first one's slot.
    pub slot: usize,
    pub granules: usize,
}

impl Run {
    /// The slot after the last one's.
    pub fn end(self) -> usize {
        self.slot + self.granules
    }
}

#[derive(Debug)]
pub struct Stitch {
    pub address: u64,
    /// Where its granules are at home, in the order in which they are mapped.
    pub runs: Vec<Run>,
    /// The tiles of the homes while it is in use.
    lent: Vec<TileId>,
    /// Its own tile while it is not.
    pub tile: TileId,
    /// What work under its addresses has to be over before they are unmapped.
    pub pending: Pending,
    last: u64,
}

impl Stitch {
    pub fn granules(&self) -> usize {
        self.runs.iter().map(|run| run.granules).sum()
    }

    pub fn size(&self) -> u64 {
        self.granules() as u64 * GRANULE
    }

    /// The first so many granules, and the others.
    fn split_runs(&self, granules: usize) -> (Vec<Run>, Vec<Run>) {
        let slots = self.slots();
        let (first, second) = slots.split_at(granules);
        (runs_of(first), runs_of(second))
    }

    /// The homes of its granules, one by one.
    pub fn slots(&self) -> Vec<usize> {
        self.runs.iter().flat_map(|run| run.slot..run.slot + run.granules).collect()
    }
}

/// Homes that are side by side, put together.
pub fn runs_of(slots: &[usize]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for &slot in slots {
        match runs.last_mut() {
            Some(run) if run.slot + run.granules == slot => run.granules += 1,
            _ => runs.push(Run { slot, granules: 1 }),
        }
    }
    runs
}

/// All stitches of a range.
#[derive(Default)]
pub struct Stitches {
    /// Those in use, by address.
    used: BTreeMap<u64, Stitch>,
    /// No stitch in use lies lower, while there is one.
    lowest: u64,
    /// Those not in use.
    pub kept: Vec<Stitch>,
    uses: u64,
}

impl Stitches {
    fn put_to_use(&mut self, stitch: Stitch) {
        self.lowest = if self.used.is_empty() { stitch.address } else { self.lowest.min(stitch.address) };
        self.used.insert(stitch.address, stitch);
    }

    /// All that are mapped.
    pub fn all(&self) -> impl Iterator<Item = &Stitch> + '_ {
        self.used.values().chain(&self.kept)
    }

    /// How many have blocks in them, or memory that has not gone home.
    pub fn in_use(&self) -> usize {
        self.used.len()
    }
}

impl<D: Device> Large<D> {
    /// Takes the granules of these runs from their homes, the free tiles that the finder names. Returns their tiles and
    /// what the memory waits for.
    fn lend(&mut self, runs: &[Run], find: impl Fn(Run) -> Option<TileId>) -> (Vec<TileId>, Pending) {
        let mut pending = Pending::default();
        let mut lent = Vec::with_capacity(runs.len());
        // A tile that is cut keeps its number for the first part: from the highest run down, the finder stays right.
        let mut runs = runs.to_vec();
        runs.sort_unstable_by_key(|run| std::cmp::Reverse(run.slot));
        for run in runs {
            let from = self.range.address_of_slot(run.slot);
            let Some(id) = find(run) else { continue };
            pending.join(&self.tiles.get(id).pending);
            let (to, pool) = (from + run.granules as u64 * GRANULE, self.tiles.get(id).pool);
            lent.push(self.tiles.take(id, from, to, Kind::Lent, pool));
        }
        (lent, pending)
    }

    /// Puts a stitch to use whose granules are all free at home. Returns its tile, free.
    pub(super) fn use_stitch(&mut self, mut stitch: Stitch, find: impl Fn(Run) -> Option<TileId>) -> TileId {
        let (lent, pending) = self.lend(&stitch.runs, find);
        stitch.lent = lent;
        self.stitches.uses += 1;
        stitch.last = self.stitches.uses;
        let tile = stitch.tile;
        self.tiles.set_free_apart(tile, 0, pending, self.upkeep.now);
        self.stitches.put_to_use(stitch);
        tile
    }

    /// A stitch that was just mapped at a tile.
    pub(super) fn new_stitch(&self, tile: TileId, runs: Vec<Run>) -> Stitch {
        let address = self.tiles.get(tile).address;
        Stitch { address, runs, lent: Vec::new(), tile, pending: Pending::default(), last: 0 }
    }

    /// Sends the granules of all stitches home that lie in a free tile as a whole.
    #[inline]
    pub(super) fn dissolve(&mut self, id: TileId) {
        // They lie at the high end, and few of the tiles that are freed do.
        if !self.stitches.used.is_empty() && self.tiles.get(id).end() > self.stitches.lowest {
            self.dissolve_in(id);
        }
    }

    #[inline(never)]
    fn dissolve_in(&mut self, id: TileId) {
        let tile = self.tiles.get(id);
        let (from, to, pool) = (tile.address, tile.end(), tile.pool);
        if pool != 0 || tile.kind != Kind::Free {
            return;
        }
        let whole = |(_, stitch): &(&u64, &Stitch)| stitch.address + stitch.size() <= to;
        let whole: Vec<_> = self.stitches.used.range(from..to).filter(whole).map(|(address, _)| *address).collect();
        let mut rest = id;
        for address in whole {
            let Some(mut stitch) = self.stitches.used.remove(&address) else { continue };
            let (pending, since) = (self.tiles.get(rest).pending.clone(), self.tiles.get(rest).since);
            let own = self.tiles.carve(rest, address, address + stitch.size());
            self.tiles.set(own, Kind::Stitch, 0);
            for home in stitch.lent.drain(..) {
                let pool = self.tiles.get(home).pool;
                self.tiles.set_free(home, pool, pending.clone(), since);
            }
            stitch.tile = own;
            stitch.pending = pending;
            self.stitches.kept.push(stitch);
            // A home may be the neighbour: what is left of the tile is found by its place, not by its old number.
            match self.tiles.after(own) {
                Some(after) => rest = after,
                None => break,
            }
        }
        if self.stitches.kept.len() > KEPT {
            let oldest = (0..self.stitches.kept.len()).min_by_key(|at| self.stitches.kept[*at].last);
            if let Some(at) = oldest {
                self.unmap_stitch(at);
            }
        }
    }

    /// Makes the free ends and middles of stitches that are partly in use stitches of their own, whose granules can go
    /// home, and sends home what is whole. It takes no call to the driver; but a request that the whole stitch served
    /// will need another one. Returns whether anything went home.
    pub(super) fn split_stitches(&mut self) -> bool {
        if self.stitches.in_use() == 0 {
            return false;
        }
        let free = self.tiles.index().free_from(GRANULE).into_iter().map(|id| self.tiles.get(id));
        let whole = free.map(|tile| [self.piece_from(tile.address), self.piece_to(tile.end())]);
        let cuts: Vec<u64> = whole.filter(|[from, to]| from < to).flatten().collect();
        cuts.into_iter().for_each(|at| self.split_stitch(at));
        let before = self.stitches.in_use();
        self.dissolve_all();
        self.stitches.in_use() < before
    }

    /// Where the granule at an address is at home, if that is in a stitch in use: the address of its piece there, and
    /// the piece's end.
    fn piece_around(&self, address: u64) -> Option<(u64, u64)> {
        let (&start, stitch) = self.stitches.used.range(..=address).next_back()?;
        if address >= start + stitch.size() {
            return None;
        }
        let granule = ((address - start) / GRANULE) as usize;
        let slot = stitch.slots()[granule];
        let piece = self.range.run_of(slot);
        let begins = start + (granule - (slot - piece.slot)) as u64 * GRANULE;
        Some((begins, begins + piece.granules as u64 * GRANULE))
    }

    /// The first address from this one on at which a piece of a stitch may begin.
    fn piece_from(&self, address: u64) -> u64 {
        let at = address.next_multiple_of(GRANULE);
        match self.piece_around(at) {
            Some((from, to)) if from < at => to,
            _ => at,
        }
    }

    /// The last address up to this one at which a piece of a stitch may end.
    fn piece_to(&self, address: u64) -> u64 {
        let at = address / GRANULE * GRANULE;
        self.piece_around(at).map_or(at, |(from, _)| from)
    }

    /// Cuts the stitch in use that an address lies in, if it does not begin there.
    fn split_stitch(&mut self, at: u64) {
        let Some((&address, stitch)) = self.stitches.used.range(..at).next_back() else { return };
        if at >= address + stitch.size() {
            return;
        }
        let Some(whole) = self.stitches.used.remove(&address) else { return };
        let (first, second) = whole.split_runs(((at - address) / GRANULE) as usize);
        let mut lent = whole.lent;
        // The cut may go through the home of one run, whose tile is the run's.
        if let (Some(last), Some(next)) = (first.last(), second.first())
            && last.slot + last.granules == next.slot
        {
            let end = self.range.address_of_slot(next.slot);
            let through = lent.iter().copied().find(|id| {
                let home = self.tiles.get(*id);
                home.address < end && end < home.end()
            });
            lent.extend(through.map(|id| self.tiles.split(id, end)));
        }
        let is_in = |runs: &[Run], slot| runs.iter().any(|run| (run.slot..run.slot + run.granules).contains(&slot));
        let (lent, rest) = lent.into_iter().partition(|id| is_in(&first, self.range.slot(self.tiles.get(*id).address)));
        let part = |address, runs, lent| Stitch { address, runs, lent, pending: Pending::default(), ..whole };
        self.stitches.put_to_use(part(address, first, lent));
        self.stitches.put_to_use(part(at, second, rest));
    }

    /// Takes the mapping of a stitch away that is not in use, if all work under its addresses is over.
    /// Returns whether it did.
    pub(super) fn unmap_stitch(&mut self, at: usize) -> bool {
        let stitch = &self.stitches.kept[at];
        let over = stitch.pending.points().all(|point| self.lanes.is_done(point));
        if !over || self.driver.unmap(stitch.address, stitch.size()).is_err() {
            return false;
        }
        let stitch = self.stitches.kept.swap_remove(at);
        self.tiles.set_unmapped(stitch.tile);
        true
    }

    /// A kept stitch that some granules are part of.
    fn kept_stitch_of(&self, slots: &std::ops::Range<usize>) -> Option<usize> {
        let has = |run: &Run| run.slot < slots.end && slots.start < run.end();
        self.stitches.kept.iter().position(|stitch| stitch.runs.iter().any(has))
    }

    /// Whether free granules are part of a stitch.
    pub(super) fn is_in_stitches(&self, slots: std::ops::Range<usize>) -> bool {
        self.kept_stitch_of(&slots).is_some()
    }

    /// Unmaps the stitches that some granules are part of. Returns whether there are none any more.
    pub(super) fn unmap_stitches_of(&mut self, slots: std::ops::Range<usize>) -> bool {
        while let Some(at) = self.kept_stitch_of(&slots) {
            if !self.unmap_stitch(at) {
                return false;
            }
        }
        true
    }
}
