//! The reserve: slabs and their free blocks, and the blocks that wait for other streams.
//!
//! Slabs lie in chunks of one granule, so that small blocks leave the large ones' memory in one piece: what is left in
//! caches pins whole granules, a few, and not a hole between any two large blocks. A slab is of one stream. A chunk has
//! slabs of all streams: pages that were another stream's wait for it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::classes::{PAGE, blocks_of, size_of, slab_size};
use super::pages::{Page, Pages};
use crate::device::GRANULE;
use crate::streams::{LaneId, Pending, Point};

struct Slab {
    class: usize,
    /// With [`SAMPLED`] or without.
    lane: LaneId,
    /// One bit for each block; set: free, and in no cache.
    free: Vec<u64>,
    free_blocks: usize,
    blocks: usize,
}

/// One bit for each page of a chunk.
type PageSet = u128;
const _: () = assert!(CHUNK / PAGE == PageSet::BITS as u64);

/// The lowest of so many pages in a row that are all in a set.
fn first_run(pages: PageSet, count: u32) -> Option<u32> {
    let (mut starts, mut have) = (pages, 1);
    while have < count && starts != 0 {
        let more = have.min(count - have);
        starts &= starts >> more;
        have += more;
    }
    (starts != 0).then(|| starts.trailing_zeros())
}

/// The most pages in a row that are all in a set.
fn longest_run(mut pages: PageSet) -> u32 {
    let mut longest = 0;
    while pages != 0 {
        pages >>= pages.trailing_zeros();
        let run = pages.trailing_ones();
        longest = longest.max(run);
        pages = pages.checked_shr(run).unwrap_or(0);
    }
    longest
}

/// So many pages from one on.
fn pages_at(first: u32, count: u32) -> PageSet {
    (PageSet::MAX >> (PageSet::BITS - count)) << first
}

/// What slabs are cut from: a granule, or as much as one slab takes.
struct Chunk {
    whole: PageSet,
    /// The pages in no slab, by what they wait for.
    free: Vec<(Pending, PageSet)>,
}

impl Chunk {
    /// Pages in no slab.
    fn all_free(&self) -> PageSet {
        self.free.iter().fold(0, |all, (_, pages)| all | pages)
    }

    /// Those of them of which somebody says so by what they wait for.
    fn free_if(&self, ready: impl Fn(&Pending) -> bool) -> PageSet {
        self.free.iter().filter(|(pending, _)| ready(pending)).fold(0, |all, (_, pages)| all | pages)
    }

    fn take(&mut self, taken: PageSet) {
        self.free.iter_mut().for_each(|(_, pages)| *pages &= !taken);
        self.free.retain(|(_, pages)| *pages != 0);
    }

    /// Adds pages that wait for this point.
    fn put(&mut self, pages: PageSet, point: Point) {
        let same = |(pending, _): &&mut (Pending, PageSet)| {
            !pending.is_of_several() && pending.points().any(|known| known.lane == point.lane)
        };
        match self.free.iter_mut().find(same) {
            Some((pending, known)) => {
                pending.add(point);
                *known |= pages;
            }
            None => self.free.push((Pending::at(point), pages)),
        }
    }

    fn awaited(&self) -> Pending {
        let mut all = Pending::default();
        self.free.iter().for_each(|(pending, _)| all.join(pending));
        all
    }
}

/// Chunks that are looked at for pages before others are asked for.
const CHUNKS_LOOKED_AT: usize = 16;

/// Bytes of a chunk.
pub const CHUNK: u64 = GRANULE;

/// Added to a lane: slabs of it that hold recorded blocks only.
pub const SAMPLED: LaneId = 1 << 31;

/// All slabs of a device.
pub struct Slabs {
    pages: Arc<Pages>,
    chunks: BTreeMap<u64, Chunk>,
    /// Pages of them all.
    chunk_pages: u64,
    /// The chunks that have pages in no slab, with the most of them that are in a row.
    roomy: BTreeSet<(u32, u64)>,
    slabs: BTreeMap<u64, Slab>,
    /// Slabs all of whose blocks are free.
    empty: BTreeSet<u64>,
    /// Those of a class and lane that have free blocks.
    partial: BTreeSet<(usize, LaneId, u64)>,
    /// Other lanes that use a block.
    shared: HashMap<u64, Vec<LaneId>>,
    /// Shared blocks on a page.
    shared_on: HashMap<u64, usize>,
    /// Free blocks that wait for more than the order of their slab's lane.
    waiting: Vec<(Pending, u64)>,
    /// Bytes of blocks that are out of the slabs: in the program's hands, in caches or waiting.
    out: u64,
}

impl Slabs {
    pub fn new(pages: Arc<Pages>) -> Slabs {
        Slabs {
            pages,
            chunks: BTreeMap::new(),
            chunk_pages: 0,
            roomy: BTreeSet::new(),
            slabs: BTreeMap::new(),
            empty: BTreeSet::new(),
            partial: BTreeSet::new(),
            shared: HashMap::new(),
            shared_on: HashMap::new(),
            waiting: Vec::new(),
            out: 0,
        }
    }

    /// The blocks that are out of their slabs, by class and lane: how many.
    pub fn held(&self) -> impl Iterator<Item = (usize, LaneId, u64)> + '_ {
        let held = self.slabs.values().filter(|slab| slab.free_blocks < slab.blocks);
        held.map(|slab| (slab.class, slab.lane & !SAMPLED, (slab.blocks - slab.free_blocks) as u64))
    }

    /// Bytes of the chunks.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_pages * PAGE
    }

    /// Bytes of blocks that are out of the slabs.
    pub fn out(&self) -> u64 {
        self.out
    }

    /// Makes a chunk of a large block, which is as long and aligned as [`CHUNK`] and waits for this, and in it a slab of
    /// a lane that need not wait.
    pub fn add_chunk(&mut self, address: u64, pending: Pending, class: usize, lane: LaneId) {
        self.chunks.insert(address, Chunk { whole: PageSet::MAX, free: vec![(pending, PageSet::MAX)] });
        self.chunk_pages += u64::from(PageSet::BITS);
        self.roomy.insert((PageSet::BITS, address));
        self.add_at(address, 0, class, lane);
    }

    /// Makes a slab of a block that is as long as one of a class.
    pub fn add_alone(&mut self, address: u64, class: usize, lane: LaneId) {
        let whole = pages_at(0, (slab_size(class) / PAGE) as u32);
        self.chunks.insert(address, Chunk { whole, free: Vec::new() });
        self.chunk_pages += u64::from(whole.count_ones());
        self.add_at(address, 0, class, lane);
    }

    /// Makes a slab where the pages wait for nothing that a request would have to wait for. Returns whether there are
    /// such pages.
    pub fn add(&mut self, class: usize, lane: LaneId, ready: impl Fn(&Pending) -> bool) -> bool {
        let count = (slab_size(class) / PAGE) as u32;
        let chunks = self.roomy.range((count, 0)..).take(CHUNKS_LOOKED_AT);
        let mut found = chunks.filter_map(|(_, address)| {
            let chunk = self.chunks.get(address)?;
            Some((*address, first_run(chunk.free_if(&ready), count)?))
        });
        let Some((address, first)) = found.next() else { return false };
        self.add_at(address, first, class, lane);
        true
    }

    /// The same on pages that `order` has made the request wait for.
    pub fn add_behind(&mut self, class: usize, lane: LaneId, mut order: impl FnMut(&Pending) -> bool) -> bool {
        let count = (slab_size(class) / PAGE) as u32;
        let chunks = self.roomy.range((count, 0)..).take(CHUNKS_LOOKED_AT);
        let mut found = chunks.filter_map(|(_, address)| {
            let chunk = self.chunks.get(address)?;
            let first = first_run(chunk.all_free(), count)?;
            let taken = pages_at(first, count);
            let mut awaited = chunk.free.iter().filter(|(_, pages)| pages & taken != 0);
            awaited.all(|(pending, _)| order(pending)).then_some((*address, first))
        });
        let Some((address, first)) = found.next() else { return false };
        self.add_at(address, first, class, lane);
        true
    }

    /// Lists a chunk by the room that it has.
    fn relist(&mut self, address: u64, before: PageSet) {
        let now = self.chunks.get(&address).map_or(0, Chunk::all_free);
        if before != 0 {
            self.roomy.remove(&(longest_run(before), address));
        }
        if now != 0 {
            self.roomy.insert((longest_run(now), address));
        }
    }

    fn add_at(&mut self, chunk: u64, first: u32, class: usize, lane: LaneId) {
        let count = (slab_size(class) / PAGE) as u32;
        if let Some(of) = self.chunks.get_mut(&chunk) {
            let before = of.all_free();
            of.take(pages_at(first, count));
            self.relist(chunk, before);
        }
        let address = chunk + u64::from(first) * PAGE;
        let blocks = blocks_of(class);
        let mut free = vec![u64::MAX; blocks.div_ceil(64)];
        if !blocks.is_multiple_of(64) {
            free[blocks / 64] = (1 << (blocks % 64)) - 1;
        }
        self.slabs.insert(address, Slab { class, lane, free, free_blocks: blocks, blocks });
        self.partial.insert((class, lane, address));
        self.empty.insert(address);
        let page = Page::new(class, lane & !SAMPLED).with_recorded(lane & SAMPLED != 0);
        self.pages.set(address, slab_size(class), page);
    }

    /// Takes up to so many free blocks of a class and lane, from the lowest addresses, so that the other slabs empty.
    pub fn take(&mut self, class: usize, lane: LaneId, most: usize, into: &mut Vec<u64>) -> usize {
        let mut taken = 0;
        while taken < most {
            let next = self.partial.range((class, lane, 0)..=(class, lane, u64::MAX)).next().copied();
            let Some(key) = next else { break };
            let Some(slab) = self.slabs.get_mut(&key.2) else { break };
            if slab.free_blocks == slab.blocks {
                self.empty.remove(&key.2);
            }
            while taken < most && slab.free_blocks > 0 {
                let Some(word) = slab.free.iter().position(|word| *word != 0) else { break };
                let bit = slab.free[word].trailing_zeros() as usize;
                slab.free[word] &= slab.free[word] - 1;
                slab.free_blocks -= 1;
                into.push(key.2 + (word * 64 + bit) as u64 * size_of(class));
                taken += 1;
            }
            if slab.free_blocks == 0 {
                self.partial.remove(&key);
            }
        }
        self.out += taken as u64 * size_of(class);
        taken
    }

    /// The slab of an address, and the number of the block that begins there.
    fn find(&self, address: u64) -> Option<(u64, usize)> {
        let (&start, slab) = self.slabs.range(..=address).next_back()?;
        let offset = address - start;
        let block = (offset / size_of(slab.class)) as usize;
        (block < slab.blocks && offset.is_multiple_of(size_of(slab.class))).then_some((start, block))
    }

    /// Puts a block back that is free in the order of its slab's lane. Returns whether it was a block and out.
    pub fn put(&mut self, address: u64) -> bool {
        let Some((start, block)) = self.find(address) else { return false };
        let Some(slab) = self.slabs.get_mut(&start) else { return false };
        let bit = 1 << (block % 64);
        if slab.free[block / 64] & bit != 0 {
            return false;
        }
        slab.free[block / 64] |= bit;
        slab.free_blocks += 1;
        if slab.free_blocks == 1 {
            self.partial.insert((slab.class, slab.lane, start));
        }
        if slab.free_blocks == slab.blocks {
            self.empty.insert(start);
        }
        self.out -= size_of(slab.class);
        true
    }

    /// The same for many; what is no block stays what it is.
    pub fn put_all(&mut self, blocks: impl IntoIterator<Item = u64>) {
        blocks.into_iter().for_each(|address| {
            self.put(address);
        });
    }

    /// The class and lane of the slab that a block is of; `None` if no block begins here, or it is in its slab.
    pub fn lane_of(&self, address: u64) -> Option<(usize, LaneId)> {
        let (start, block) = self.find(address)?;
        let slab = &self.slabs[&start];
        let out = slab.free[block / 64] & (1 << (block % 64)) == 0;
        out.then_some((slab.class, slab.lane & !SAMPLED))
    }

    /// Notes that a block is used on another lane, too.
    pub fn share(&mut self, address: u64, lane: LaneId) {
        let page = address / PAGE * PAGE;
        let lanes = self.shared.entry(address).or_default();
        if lanes.is_empty() {
            *self.shared_on.entry(page).or_default() += 1;
            self.pages.set(page, PAGE, self.pages.get(page).with_shared(true));
        }
        if !lanes.contains(&lane) {
            lanes.push(lane);
        }
    }

    /// Forgets what other lanes use a block, and returns them.
    pub fn unshare(&mut self, address: u64) -> Vec<LaneId> {
        let page = address / PAGE * PAGE;
        let lanes = self.shared.remove(&address).unwrap_or_default();
        if !lanes.is_empty()
            && let Some(count) = self.shared_on.get_mut(&page)
        {
            *count -= 1;
            if *count == 0 {
                self.shared_on.remove(&page);
                self.pages.set(page, PAGE, self.pages.get(page).with_shared(false));
            }
        }
        lanes
    }

    /// A block that is free once all of this is over.
    pub fn wait(&mut self, address: u64, pending: Pending) {
        self.waiting.push((pending, address));
    }

    /// The lanes that blocks wait for.
    pub fn awaited(&self) -> BTreeSet<LaneId> {
        self.waiting.iter().flat_map(|(pending, _)| pending.points()).map(|point| point.lane).collect()
    }

    /// Puts the blocks back that have waited for long enough. Returns whether there was one.
    pub fn settle(&mut self, over: impl Fn(Point) -> bool) -> bool {
        let mut done = Vec::new();
        self.waiting.retain(|(pending, address)| {
            let wait = !pending.points().all(&over);
            if !wait {
                done.push(*address);
            }
            wait
        });
        done.iter().for_each(|address| {
            self.put(*address);
        });
        !done.is_empty()
    }

    /// Dissolves the slabs all of whose blocks are free, and takes the chunks away that are empty then. `now` says where
    /// a lane's work is. Returns the chunks' addresses, and what they wait for.
    pub fn take_empty(&mut self, mut now: impl FnMut(LaneId) -> Point) -> Vec<(u64, Pending)> {
        let mut emptied = Vec::new();
        for address in std::mem::take(&mut self.empty) {
            let Some(Slab { class, lane, .. }) = self.slabs.remove(&address) else { continue };
            self.partial.remove(&(class, lane, address));
            self.pages.set(address, slab_size(class), Page::NONE);
            let Some((&start, chunk)) = self.chunks.range_mut(..=address).next_back() else { continue };
            let before = chunk.all_free();
            let (first, count) = (((address - start) / PAGE) as u32, (slab_size(class) / PAGE) as u32);
            chunk.put(pages_at(first, count), now(lane & !SAMPLED));
            if chunk.all_free() == chunk.whole {
                emptied.push((start, chunk.awaited()));
                self.chunk_pages -= u64::from(chunk.whole.count_ones());
                self.chunks.remove(&start);
            }
            self.relist(start, before);
        }
        emptied
    }
}

#[cfg(test)]
mod tests {
    use super::{PageSet, first_run, longest_run, pages_at};

    /// The same by looking at each page.
    fn runs(pages: PageSet) -> Vec<(u32, u32)> {
        let is_free = |page: u32| page < 128 && pages >> page & 1 == 1;
        let starts = (0..128).filter(|page| is_free(*page) && (*page == 0 || !is_free(page - 1)));
        starts.map(|start| (start, (start..).take_while(|page| is_free(*page)).count() as u32)).collect()
    }

    #[test]
    fn runs_of_pages_are_found_as_by_looking_at_each() {
        let mut random = 1u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            PageSet::from(random >> 7) << 71 | PageSet::from(random) | PageSet::from(random >> 20) << 40
        };
        let (full, last) = (PageSet::MAX, 1 << 127);
        for pages in (0..500).map(|_| next()).chain([0, 1, last, full, full - 1, full >> 1]) {
            let runs = runs(pages);
            assert_eq!(longest_run(pages), runs.iter().map(|run| run.1).max().unwrap_or(0), "{pages:x}");
            for count in 1..=128 {
                let first = runs.iter().find(|run| run.1 >= count).map(|run| run.0);
                assert_eq!(first_run(pages, count), first, "{pages:x} {count}");
                assert!(first.is_none_or(|first| pages & pages_at(first, count) == pages_at(first, count)));
            }
        }
    }
}
