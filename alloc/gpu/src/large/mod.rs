//! Large blocks: fits with coalescing in one reserved range of addresses.
//!
//! The range is cut into [tiles]. A request takes the smallest free tile that fits, or the one at the lowest address where
//! several streams use the pool or it is small: first of those that its stream may have at once, to which belongs what
//! other streams are [known](hearing) to be done with, then of another stream's, behind an event. Only then does the pool
//! [grow]: by memory that is free elsewhere, mapped a second time under new addresses (a [stitch](stitches)), and
//! by new granules for the rest. What stays [idle] is given back. A device without virtual memory has
//! [segments] instead of the range.
//!
//! Free neighbours are merged at once if they wait for the same stream, and otherwise when a request does not fit. What
//! comes of it waits for all streams of its parts, however it is split again.

mod at_work;
mod blocks;
mod chunks;
mod coalesce;
mod donors;
mod free_index;
mod grow;
mod hearing;
mod holdings;
mod hot;
mod idle;
mod kept;
#[cfg(test)]
mod many_blocks;
mod owner;
mod pieces;
mod quarantine;
mod range;
mod segments;
mod stitches;
mod tile_index;
mod tiles;

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use poolscope_wire::cell;

use crate::device::{Device, Driver, GRANULE, MemoryInfo, Result, Stream};
use crate::streams::{LaneId, Lanes, Pending, Point};
use crate::watch::{Cells, Map, Piece, Stats};
use blocks::Blocks;
use hearing::Hearing;
use holdings::Holdings;
use hot::{Hot, HotBlocks};
use idle::Upkeep;
use owner::CHUNKS;
pub use owner::PoolId;
pub use pieces::NO_ADDRESSES;
pub use quarantine::{Held, Quarantine};
use range::Range;
use stitches::Stitches;
pub use tiles::TileId;
use tiles::{Kind, Tile, Tiles};

/// Granules of a pool in which a request takes the free tile at the lowest address, and not the smallest: 1 GiB. Many
/// blocks are shorter than a granule there, and high granules fall idle as a whole.
const FIRST_FIT_BELOW: u64 = 512;

/// Spreads addresses, whose low bits are alike, by one multiplication.
#[derive(Default)]
pub struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }
}

/// A map with addresses as keys.
pub type AddressMap<T> = HashMap<u64, T, BuildHasherDefault<AddressHasher>>;

/// Who asks for memory, and for what.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Bytes, a multiple of the pool's alignment.
    pub size: u64,
    /// A power of two, at most [`GRANULE`].
    pub align: u64,
    pub lane: LaneId,
    /// The lane's stream, as the caller named it.
    pub stream: Stream,
    pub pool: PoolId,
}

/// The next multiple of a power of two. The compiler, which does not know what it is, would divide.
#[inline]
pub fn align_up(address: u64, align: u64) -> u64 {
    (address + (align - 1)) & !(align - 1)
}

/// The large blocks of a device.
///
/// Free memory and blocks are tiles of one range of addresses, or of segments. `range` says which physical granule is
/// at home where, `stitches` which are lent to another place, and `holdings` how many there are. A block that is freed
/// becomes a free tile at once, but for those in `hot` and in `quarantine`, whose tiles stay as they were. What free
/// tiles wait for is said in points of `lanes`.
pub struct Large<D: Device> {
    driver: Arc<Driver<D>>,
    /// The streams: how far their work is.
    pub lanes: Lanes<D>,
    /// All memory with an address, by place and by size.
    tiles: Tiles,
    /// Where tiles lie.
    range: Range,
    /// Memory that the pool has from the device.
    holdings: Holdings,
    /// Granules that are mapped a second time.
    stitches: Stitches,
    /// The tiles of the program's blocks, by address.
    blocks: Blocks,
    /// Blocks freed last, which wait unmerged for the next requests.
    hot: HotBlocks,
    /// Freed blocks that nobody gets yet, small ones among them.
    pub quarantine: Quarantine,
    /// Which other lanes used a block.
    shared: AddressMap<Vec<LaneId>>,
    /// Graphs that were given up, by the numbers of their pools.
    ended_pools: HashSet<PoolId>,
    /// What the background work remembers from round to round.
    upkeep: Upkeep,
    /// When streams are asked how far they are.
    hearing: Hearing,
    /// Whether a stream is made to wait for another one's memory.
    waits: bool,
    /// Whether the device has no more memory for a request.
    is_short: bool,
    /// Which part of what is held a new piece has at most, as a divisor.
    piece_divisor: u64,
    /// What is counted with the pool's lock held, by the names that it is shown by. The pool counts here, too; what can
    /// be looked up when somebody asks stays 0.
    pub counted: Stats,
}

impl<D: Device> Large<D> {
    /// Reserves a range: as many times the device's memory as there are addresses for. Without virtual memory, all
    /// addresses are the range, and there may be segments at any.
    pub fn new(driver: Arc<Driver<D>>) -> Result<Large<D>> {
        let range = Range::reserve(&driver)?;
        let tiles = if range.is_virtual { Tiles::new(range.base, range.size) } else { Tiles::empty() };
        let blocks = Blocks::new(range.base, if range.is_virtual { range.size } else { 0 });
        let now = driver.device().now();
        Ok(Large {
            lanes: Lanes::new(driver.clone()),
            driver,
            tiles,
            range,
            holdings: Holdings::default(),
            stitches: Stitches::default(),
            blocks,
            hot: HotBlocks::default(),
            quarantine: Quarantine::default(),
            shared: AddressMap::default(),
            ended_pools: HashSet::new(),
            upkeep: Upkeep::new(now),
            hearing: Hearing::default(),
            waits: true,
            is_short: false,
            piece_divisor: 0,
            counted: Stats::default(),
        })
    }

    /// The reserved range.
    pub fn range(&self) -> std::ops::Range<u64> {
        self.range.base..self.range.base + self.range.size
    }

    /// Whether memory is mapped by granules.
    pub fn is_virtual(&self) -> bool {
        self.range.is_virtual
    }

    /// Bytes of memory that the device has.
    pub fn device_memory(&self) -> u64 {
        self.driver.device().properties().memory
    }

    /// Makes all that is mapped accessible anew, for devices that were let in since.
    pub fn open_to_peers(&self) -> Result<()> {
        let homes = self.range.home.chunk_by(|one, other| (*one == 0) == (*other == 0));
        let mut slot = 0;
        for run in homes {
            if run[0] != 0 {
                self.driver.set_access(self.range.address_of_slot(slot), run.len() as u64 * GRANULE)?;
            }
            slot += run.len();
        }
        self.stitches.all().try_for_each(|stitch| self.driver.set_access(stitch.address, stitch.size()))
    }

    /// What is left of it, if the device says.
    pub fn device_free(&self) -> Option<MemoryInfo> {
        self.driver.memory_info().ok()
    }

    /// Calls to the driver.
    pub fn driver_calls(&self) -> u64 {
        self.driver.calls()
    }

    /// The device's clock, in nanoseconds.
    pub fn now(&self) -> u64 {
        self.driver.device().now()
    }

    /// What lies where: the memory that the pool holds in the order of its addresses, in cells of so many bytes.
    pub fn map(&self, bytes: u64) -> Map {
        let mut cells = Cells::new(bytes);
        for (id, tile) in self.tiles.iter() {
            let (state, lane) = match tile.kind {
                Kind::Used(lane) if self.is_kept(id) => (cell::PENDING, Some(lane)),
                // Its slabs may be of several streams.
                Kind::Used(_) if tile.pool == CHUNKS => (cell::SMALL, None),
                Kind::Used(lane) if tile.pool == 0 => (cell::LARGE, Some(lane)),
                Kind::Free if tile.pool == 0 || tile.pool == CHUNKS => {
                    let mut waits = tile.pending.points().filter(|point| !self.lanes.is_done(*point));
                    match (waits.next(), waits.next()) {
                        (None, _) => (cell::FREE, None),
                        (Some(only), None) => (cell::PENDING, Some(only.lane)),
                        (Some(_), Some(_)) => (cell::PENDING, None),
                    }
                }
                Kind::Used(lane) => (cell::GRAPH, Some(lane)),
                Kind::Free => (cell::GRAPH, None),
                // Lent granules are shown where they are in use, those of a stitch that is not in use at home.
                _ => continue,
            };
            let stream = lane.map(|lane| self.lanes.stream_of(lane).0);
            cells.add(Piece { state, address: tile.address, bytes: tile.size, stream });
        }
        cells.add(Piece { state: cell::FREE, address: 0, bytes: self.holdings.spare_bytes(), stream: None });
        cells.end()
    }

    /// Bytes of memory that the pool has from the device.
    pub fn held(&self) -> u64 {
        self.holdings.granules * GRANULE
    }

    /// Sets the bytes that the pool may have from the device; 0: as many as there are.
    pub fn set_limit(&mut self, bytes: u64) {
        self.holdings.limit = if bytes == 0 { u64::MAX } else { bytes };
    }

    /// Sets which part of what is held the largest new piece has at most, as a divisor; 0: one granule.
    pub fn set_piece_divisor(&mut self, divisor: u64) {
        self.piece_divisor = divisor;
    }

    /// The most bytes that the pool may have from the device.
    pub fn limit(&self) -> u64 {
        self.holdings.limit
    }

    /// The most there were at once.
    pub fn peak_held(&self) -> u64 {
        self.holdings.peak * GRANULE
    }

    /// Begins anew with what is held now.
    pub fn reset_peak_held(&mut self) {
        self.holdings.peak = self.holdings.granules;
    }

    /// Bytes that are mapped and free.
    pub fn free_bytes(&self) -> u64 {
        self.tiles.index().free_bytes() + self.kept().map(|(_, size)| size).sum::<u64>()
    }

    /// The largest free piece.
    pub fn largest_free(&self) -> u64 {
        self.free_pieces().map(|(_, size)| size).max().unwrap_or(0)
    }

    /// Where free pieces lie, and how long they are; kept ones are each one by itself.
    fn free_pieces(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let free = self.tiles.iter().filter(|(_, tile)| tile.kind == Kind::Free);
        free.map(|(_, tile)| (tile.address, tile.size)).chain(self.kept())
    }

    /// Bytes of the whole granules in a piece that can be put together with others: those at home. None where there is
    /// no virtual memory.
    fn whole_granules_of(&self, (address, size): (u64, u64)) -> u64 {
        let (from, to) = (address.next_multiple_of(GRANULE), (address + size) / GRANULE * GRANULE);
        if !self.range.is_virtual || from >= to {
            return 0;
        }
        let slots = self.range.slot(from)..self.range.slot(to);
        self.range.pieces(slots).map(|piece| piece.granules as u64 * GRANULE).sum()
    }

    /// Bytes of all free whole granules, those that are mapped nowhere included.
    pub fn whole_granules(&self) -> u64 {
        let pieces: u64 = self.free_pieces().map(|piece| self.whole_granules_of(piece)).sum();
        pieces + self.holdings.spare_bytes()
    }

    /// Free bytes in pieces smaller than this.
    pub fn free_below(&self, size: u64) -> u64 {
        if size == 0 {
            return 0;
        }
        // There are few large ones.
        let kept: u64 = self.kept().map(|(_, kept)| kept).filter(|kept| *kept < size).sum();
        self.tiles.index().free_bytes() - self.tiles.index().free_bytes_from(size) + kept
    }

    /// Free bytes that cannot serve a request of this size: those in smaller pieces, without the granules that can be
    /// put together where these are enough.
    pub fn fragmented(&self, size: u64) -> u64 {
        let below = || self.free_pieces().filter(|(_, have)| *have < size);
        let granules: u64 = below().map(|piece| self.whole_granules_of(piece)).sum();
        let below: u64 = below().map(|(_, have)| have).sum();
        if granules >= size { below - granules } else { below }
    }

    /// Free bytes that wait for work of which the host does not know that it is over.
    pub fn waiting(&self) -> u64 {
        let waits = |tile: &Tile| !tile.pending.points().all(|point| self.lanes.is_done(point));
        self.tiles.iter().filter(|(_, tile)| tile.kind == Kind::Free && waits(tile)).map(|(_, tile)| tile.size).sum()
    }

    /// The blocks: their sizes and lanes. Those of the small blocks' chunks are not among them.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, LaneId)> + '_ {
        self.tiles.iter().filter_map(|(id, tile)| match tile.kind {
            Kind::Used(lane) if tile.pool != CHUNKS && !self.is_kept(id) => Some((tile.size, lane)),
            _ => None,
        })
    }

    /// The size of a block.
    pub fn size_of(&self, address: u64) -> Option<u64> {
        self.blocks.get(address).map(|id| self.tiles.get(id).size)
    }

    /// A block of just that length that was freed last, and is as it was.
    pub fn fit_hot(&mut self, request: &Request) -> Option<u64> {
        let hot = if request.pool == 0 { self.hot.take(request.size, request.lane, request.align) } else { None }?;
        self.blocks.insert(hot.address, hot.tile);
        Some(hot.address)
    }

    /// A block from free memory, if some fits.
    pub fn fit(&mut self, request: &Request) -> Option<u64> {
        self.fit_for(request, false)
    }

    /// The same for who comes again if there is none, and pays for questions to other streams then.
    pub fn fit_or_come_again(&mut self, request: &Request) -> Option<u64> {
        self.fit_for(request, true)
    }

    #[inline]
    fn fit_for(&mut self, request: &Request, comes_again: bool) -> Option<u64> {
        if self.has_hot() {
            if let Some(hot) = self.fit_hot(request) {
                return Some(hot);
            }
            self.flush_hot();
        }
        let id = self.find_fit(request, comes_again)?;
        Some(self.take(id, request))
    }

    fn find_fit(&mut self, request: &Request, comes_again: bool) -> Option<TileId> {
        let Request { size, align, lane, pool, .. } = *request;
        let several = self.lanes.count() > 1;
        let hearing = if several { self.hear_others(lane, size) } else { self.hearing };
        let fit = match several || self.holdings.granules < FIRST_FIT_BELOW {
            true => self.tiles.first_fit_for(pool, lane, size, align),
            false => self.tiles.best_fit_for(pool, lane, size, align),
        };
        let fit = fit.or_else(|| self.fit_after_others(request));
        if fit.is_some() || !comes_again {
            self.hearing = hearing;
        }
        fit
    }

    /// The best fit when the request's stream may have none at once.
    #[cold]
    fn fit_after_others(&mut self, request: &Request) -> Option<TileId> {
        if self.are_others_at_work() && request.pool == 0 && !self.lanes.is_any_capturing() {
            let fit = self.fit_at_work(request);
            if fit.is_some() || self.grows_rather() {
                return fit;
            }
        }
        if let Some(id) = self.fit_of_others(request) {
            return Some(id);
        }
        // During a capture, what can't be waited for would spoil what it is merged with.
        let merged = !self.lanes.is_any_capturing() && self.tiles.merge_all();
        self.upkeep.idle_after.merged(merged);
        if merged { self.fit_of_others(request) } else { None }
    }

    /// Whether a block is kept as it was freed.
    #[inline]
    pub fn has_hot(&self) -> bool {
        self.hot.get(0).is_some()
    }

    /// Merges the blocks that are kept as they were freed, the oldest first.
    pub fn flush_hot(&mut self) {
        for at in 0.. {
            let Some(hot) = self.hot.get(at) else { break };
            self.release_hot(&hot);
        }
        self.hot.clear();
    }

    fn release_hot(&mut self, hot: &Hot) {
        let point = self.lanes.now(hot.lane);
        let id = self.tiles.set_free(hot.tile, 0, Pending::at(point), self.upkeep.now);
        self.dissolve(id);
    }

    /// The best fit whatever streams it was used on: one that needs no waiting if there is one.
    fn fit_of_others(&mut self, request: &Request) -> Option<TileId> {
        let mut candidates = self.tiles.index().best_fits(request.size, request.align);
        candidates.sort_unstable_by_key(|id| self.tiles.rank(*id));
        let found = candidates.iter().copied().find(|id| self.is_ready(*id, request));
        let found = found.or_else(|| {
            for id in &candidates {
                let lanes: Vec<_> = self.tiles.get(*id).pending.points().map(|point| point.lane).collect();
                lanes.into_iter().for_each(|lane| self.lanes.poll(lane));
            }
            candidates.iter().copied().find(|id| self.is_ready(*id, request))
        });
        let found = found.or_else(|| {
            let mut ordered = candidates.into_iter();
            ordered.find(|id| {
                let pending = self.tiles.get(*id).pending.clone();
                self.is_usable(*id, request) && self.lanes.order(request.lane, request.stream, &pending).is_ok()
            })
        });
        self.counted.from_other_streams += u64::from(found.is_some());
        found
    }

    /// Whether the request's stream can be made to wait for others. A graph's work runs again, on any stream: what it
    /// uses must be free for good.
    fn can_wait(&self, request: &Request) -> bool {
        request.pool == 0 && !self.lanes.is_capturing(request.lane)
    }

    fn is_ready(&self, id: TileId, request: &Request) -> bool {
        let can_wait = self.can_wait(request);
        let ready = |point| self.lanes.is_done(point) || (can_wait && self.lanes.is_ordered(request.lane, point));
        self.tiles.get(id).pending.points().all(ready)
    }

    /// Whether a free tile is the request's for the taking, or can be made so by a wait of its stream.
    fn is_usable(&self, id: TileId, request: &Request) -> bool {
        let mut points = self.tiles.get(id).pending.points();
        match self.can_wait(request) {
            true if self.waits && self.grows_rather() => self.may_hold_up(id, request.lane),
            true if self.waits => points.all(|point| self.lanes.can_order(request.lane, point)),
            true => points.all(|point| self.lanes.is_ordered(request.lane, point)),
            false => points.all(|point| self.lanes.is_done(point)),
        }
    }

    /// Makes a block of a free tile that fits.
    fn take(&mut self, id: TileId, request: &Request) -> u64 {
        let address = align_up(self.tiles.get(id).address, request.align);
        let block = self.tiles.take(id, address, address + request.size, Kind::Used(request.lane), request.pool);
        self.blocks.insert(address, block);
        address
    }

    /// Notes that a block is used on another lane, too: it is free only when that lane has come past its free.
    pub fn share(&mut self, address: u64, lane: LaneId) -> bool {
        if self.blocks.get(address).is_none() {
            return false;
        }
        let lanes = self.shared.entry(address).or_default();
        if !lanes.contains(&lane) {
            lanes.push(lane);
        }
        true
    }

    /// Frees a block in the order of a lane's work. Returns its size, and `None` if it is none.
    pub fn free(&mut self, address: u64, lane: LaneId) -> Option<u64> {
        let id = self.blocks.remove(address)?;
        let tile = self.tiles.get(id);
        let (size, kind, pool) = (tile.size, tile.kind, tile.pool);
        let shared = if self.shared.is_empty() { None } else { self.take_shared(address) };
        if pool == 0 && kind == Kind::Used(lane) && shared.is_none() {
            if HotBlocks::is_too_large(size) {
                self.flush_hot();
            }
            if let Some(oldest) = self.hot.add(Hot { address, size, lane, tile: id }) {
                self.release_hot(&oldest);
            }
            return Some(size);
        }
        self.free_for_others(id, lane, &shared.unwrap_or_default());
        Some(size)
    }

    /// The same, and merges it at once.
    pub fn free_at_once(&mut self, address: u64, lane: LaneId) -> Option<u64> {
        let id = self.blocks.remove(address)?;
        let Tile { size, kind, pool, .. } = *self.tiles.get(id);
        if pool == 0 && kind == Kind::Used(lane) && self.shared.is_empty() {
            let point = self.lanes.now(lane);
            let id = self.tiles.set_free(id, 0, Pending::at(point), self.upkeep.now);
            self.dissolve(id);
        } else {
            let shared = self.take_shared(address).unwrap_or_default();
            self.free_for_others(id, lane, &shared);
        }
        Some(size)
    }

    /// Which other lanes used a block that is being freed.
    #[inline(never)]
    fn take_shared(&mut self, address: u64) -> Option<Vec<LaneId>> {
        self.shared.remove(&address)
    }

    /// Frees a tile that is more than one lane's, a chunk, or a graph's.
    #[cold]
    fn free_for_others(&mut self, id: TileId, lane: LaneId, shared: &[LaneId]) {
        let Tile { kind, mut pool, .. } = *self.tiles.get(id);
        let mut pending = Pending::default();
        if pool != 0 && pool != CHUNKS && !self.ended_pools.contains(&pool) {
            // In a graph's own pool, memory goes from node to node of one stream, and waits for nothing else.
            let allocated_on = if let Kind::Used(lane) = kind { lane } else { lane };
            shared.iter().chain([&lane, &allocated_on]).for_each(|&lane| pending.add(Point { lane, epoch: 0 }));
        } else {
            pool = if pool == CHUNKS && !self.is_lent(id) { CHUNKS } else { 0 };
            pending.add(self.lanes.now(lane));
            if let Kind::Used(allocated_on) = kind {
                pending.add(self.lanes.now(allocated_on));
            }
            shared.iter().for_each(|&lane| pending.add(self.lanes.now(lane)));
        }
        self.release(id, pool, pending);
    }

    /// Whether what is at a tile's address is at home elsewhere.
    fn is_lent(&self, id: TileId) -> bool {
        self.range.is_virtual && self.range.home[self.range.slot(self.tiles.get(id).address)] == 0
    }

    /// Makes a tile free whose memory waits for what the caller says.
    fn release(&mut self, id: TileId, pool: PoolId, pending: Pending) {
        let id = self.tiles.set_free(id, pool, pending, self.upkeep.now);
        self.dissolve(id);
    }

    /// Ends a graph's pool: its memory is everybody's when the work is over that a lane has now.
    pub fn end_pool(&mut self, pool: PoolId, lane: LaneId) {
        self.ended_pools.insert(pool);
        let pending = Pending::at(self.lanes.now(lane));
        for id in self.tiles.index().free_of(pool) {
            if self.tiles.get(id).kind == Kind::Free && self.tiles.get(id).pool == pool {
                self.release(id, 0, pending.clone());
            }
        }
    }
}

impl<D: Device> Drop for Large<D> {
    fn drop(&mut self) {
        // With blocks still in the program's hands, or work under way, the memory has to stay.
        self.flush_hot();
        if self.blocks.is_empty() && self.lanes.synchronize() {
            self.give_all_back();
        }
        self.lanes.clear();
    }
}
