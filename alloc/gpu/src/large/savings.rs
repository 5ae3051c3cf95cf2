//! Where a few granules count, blocks are placed so that as many granules as possible stay whole.
//!
//! Only whole granules are put together with others. A block of some mebibytes at the low end of the tightest tile often
//! leaves a granule in two parts at each of its ends, and a small pool has few tiles: 36 MiB of 158 lay in pieces of
//! which 6 MiB were whole granules. So the tile and the end of it are taken at which the fewest whole granules are lost,
//! and of those the tightest. A large pool has too many tiles for that, and loses a small part to it.

use super::chunks::SHARED_UP_TO;
use super::owner::{CHUNKS, Owner};
use super::tiles::TileId;
use super::{Large, Request, align_up};
use crate::device::{Device, GRANULE};

/// Whole granules in a range.
fn whole(from: u64, to: u64) -> u64 {
    (to / GRANULE).saturating_sub(from.div_ceil(GRANULE))
}

impl<D: Device> Large<D> {
    /// Whether a request is placed so.
    pub(super) fn saves_granules(&self, request: &Request) -> bool {
        request.pool == 0 && self.range.is_virtual && self.held() <= SHARED_UP_TO
    }

    /// Where in a free tile a request loses the fewest whole granules: how many, and the address. `None` if it does not
    /// fit.
    pub(super) fn place_in(&self, id: TileId, request: &Request) -> Option<(u64, u64)> {
        let tile = self.tiles.get(id);
        let low = align_up(tile.address, request.align);
        let high = tile.end().checked_sub(request.size)? & !(request.align - 1);
        if tile.pool == CHUNKS || high < low {
            return (high >= low).then_some((0, low));
        }
        let left = |address: u64| whole(tile.address, address) + whole(address + request.size, tile.end());
        let before = whole(tile.address, tile.end());
        [low, high].map(|address| (before - left(address), address)).into_iter().min()
    }

    /// The free tile, of those that a request may have at once, in which it loses the fewest whole granules.
    pub(super) fn fit_that_saves_granules(&self, request: &Request) -> Option<TileId> {
        let mut best = None;
        for owner in [Owner::lane(0, request.lane), Owner::ANYONE] {
            self.tiles.index().for_each_from(owner, request.size, |(size, address, id)| {
                if let Some((lost, _)) = self.place_in(id, request) {
                    let found = (lost, size, address, id);
                    best = Some(best.map_or(found, |best: (u64, u64, u64, TileId)| best.min(found)));
                }
            });
        }
        best.map(|(.., id)| id)
    }
}
