//! Which free granules a growth may take: the largest free tiles' first.
//!
//! Only as much of the index is read as the growth needs, and a granule that is wanted by its place is found from the
//! blocks before it: with many free tiles, nobody may hold the lock while all are looked at.

use std::cmp::Reverse;

use super::owner::{CHUNKS, Owner};
use super::stitches::Run;
use super::tiles::{FIRST, Kind, TileId};
use super::{Large, Request};
use crate::device::{Device, GRANULE};

/// Windows of the table of blocks that are read in the time in which a tile is.
const WINDOWS_A_TILE: usize = 16;

/// Free granules at home, by tile.
#[derive(Default)]
pub struct Donors {
    /// Sorted by slot.
    runs: Vec<(Run, TileId)>,
}

impl Donors {
    pub fn granules(&self) -> usize {
        self.runs.iter().map(|(run, _)| run.granules).sum()
    }

    /// The tile that has all of these.
    pub fn tile_of(&self, wanted: Run) -> Option<TileId> {
        let at = self.runs.partition_point(|(run, _)| run.slot <= wanted.slot).checked_sub(1)?;
        let (run, tile) = self.runs[at];
        (wanted.end() <= run.end()).then_some(tile)
    }
}

impl<D: Device> Large<D> {
    /// Whole free granules that the request's stream may have, or can be made to wait for: at least so many, if there
    /// are. Those that [`Large::choose`] takes first are among them.
    pub(super) fn donors(&self, request: &Request, granules: usize) -> Donors {
        let mut donors = Donors::default();
        for is_donor in [Owner::is_common, |owner: Owner| owner.pool() == CHUNKS] {
            if donors.granules() >= granules {
                break;
            }
            // Each owner may be the one whose tiles are the largest.
            self.tiles.index().largest_first(is_donor, GRANULE, granules, |id| {
                let before = donors.runs.len();
                if self.is_usable(id, request) {
                    self.add_runs(id, &mut donors.runs);
                }
                donors.runs[before..].iter().map(|(run, _)| run.granules).sum()
            });
        }
        donors.runs.sort_unstable_by_key(|(run, _)| run.slot);
        donors
    }

    /// Adds the pieces of a tile that are at home there as a whole.
    fn add_runs(&self, id: TileId, runs: &mut Vec<(Run, TileId)>) {
        let from = runs.len();
        for piece in self.range.pieces(self.slots_of(id)) {
            match runs[from..].last_mut() {
                Some((run, _)) if run.end() == piece.slot => run.granules += piece.granules,
                _ => runs.push((piece, id)),
            }
        }
    }

    /// The tiles that have these granules, each run in one tile. `None` if a run is not free for the request.
    pub(super) fn homes_of(&self, runs: &[Run], request: &Request) -> Option<Donors> {
        let mut runs = runs.to_vec();
        runs.sort_unstable_by_key(|run| run.slot);
        let mut near = FIRST;
        let mut home = |run: Run| {
            let id = self.donor_at(run.slot, request, &mut near)?;
            let end = self.range.address_of_slot(run.end());
            (end <= self.tiles.get(id).end()).then_some((run, id))
        };
        Some(Donors { runs: runs.into_iter().map(&mut home).collect::<Option<_>>()? })
    }

    /// The free tile that the granule at home in a slot is in, if the request may have it. It is looked for from the
    /// last block before it on and, since that may be far,
    /// from a tile before it that the last look-up has left `near`, in turn.
    fn donor_at(&self, slot: usize, request: &Request, near: &mut TileId) -> Option<TileId> {
        let address = self.range.address_of_slot(slot);
        let (mut id, mut block, mut seen) = (*near, None, 0);
        while self.tiles.get(id).end() <= address {
            if block.is_none() {
                block = self.blocks.last_before(address, seen..seen + WINDOWS_A_TILE);
                seen += WINDOWS_A_TILE;
                if let Some(block) = block.filter(|block| self.tiles.get(*block).address > self.tiles.get(id).address) {
                    id = block;
                    continue;
                }
            }
            id = self.tiles.after(id)?;
        }
        *near = id;
        let tile = self.tiles.get(id);
        let free = tile.kind == Kind::Free && (tile.pool == 0 || tile.pool == CHUNKS);
        let piece = self.range.run_of(slot);
        let (from, to) = (self.range.address_of_slot(piece.slot), self.range.address_of_slot(piece.end()));
        let whole = self.range.home[slot] != 0 && tile.address <= from && to <= tile.end();
        (free && whole && self.is_usable(id, request)).then_some(id)
    }

    /// At least so many granules, in whole pieces, and as few more as may be: from the largest tiles first, and there
    /// from the high end. Those of chunks come last: small blocks will want them again.
    pub(super) fn choose(&self, granules: usize, donors: &Donors) -> Vec<Run> {
        let mut runs = donors.runs.clone();
        runs.sort_by_cached_key(|(run, tile)| {
            let tile = self.tiles.get(*tile);
            (tile.pool, Reverse(tile.size), run.slot)
        });
        let (mut chosen, mut missing) = (Vec::<Run>::new(), granules);
        // The least of those that are more than what is missing, should all others not do.
        let mut rest: Option<Run> = None;
        for (run, _) in runs {
            if missing == 0 {
                break;
            }
            let from = chosen.len();
            let mut end = run.end();
            while end > run.slot && missing > 0 {
                let piece = self.range.run_of(end - 1);
                end = piece.slot;
                if piece.granules > missing {
                    rest = rest.filter(|rest| rest.granules <= piece.granules).or(Some(piece));
                    continue;
                }
                missing -= piece.granules;
                match chosen[from..].last_mut() {
                    Some(last) if piece.end() == last.slot => {
                        *last = Run { slot: piece.slot, granules: last.granules + piece.granules };
                    }
                    _ => chosen.push(piece),
                }
            }
        }
        chosen.extend(rest.filter(|_| missing > 0));
        chosen
    }
}
