//! The reserve: slabs and their free blocks, and the blocks that wait for other streams.
//!
//! Slabs lie in chunks of one granule, so that small blocks leave the large ones' memory in one piece: what is left in
//! caches pins whole granules, a few, and not a hole between any two large blocks.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::classes::{CLASSES, PAGE, size_of, slab_size};
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

/// Granules that slabs are cut from, each of one lane.
struct Chunk {
    lane: LaneId,
    /// One bit for each page; set: in no slab.
    free: u32,
}

/// Bytes of a chunk.
pub const CHUNK: u64 = GRANULE;

/// Added to a lane: slabs of it that hold recorded blocks only.
pub const SAMPLED: LaneId = 1 << 31;

/// All slabs of a device.
pub struct Slabs {
    pages: Arc<Pages>,
    chunks: BTreeMap<u64, Chunk>,
    /// The chunks of a lane that have pages in no slab.
    roomy: BTreeSet<(LaneId, u64)>,
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
    /// Slabs of each class.
    counts: [usize; CLASSES],
    /// Those that have free blocks.
    partial_counts: [usize; CLASSES],
}

impl Slabs {
    pub fn new(pages: Arc<Pages>) -> Slabs {
        Slabs {
            pages,
            chunks: BTreeMap::new(),
            roomy: BTreeSet::new(),
            slabs: BTreeMap::new(),
            empty: BTreeSet::new(),
            partial: BTreeSet::new(),
            shared: HashMap::new(),
            shared_on: HashMap::new(),
            waiting: Vec::new(),
            out: 0,
            counts: [0; CLASSES],
            partial_counts: [0; CLASSES],
        }
    }

    /// The blocks that are out of their slabs, by class and lane: how many.
    pub fn held(&self) -> impl Iterator<Item = (usize, LaneId, u64)> + '_ {
        let held = self.slabs.values().filter(|slab| slab.free_blocks < slab.blocks);
        held.map(|slab| (slab.class, slab.lane & !SAMPLED, (slab.blocks - slab.free_blocks) as u64))
    }

    /// Bytes of the chunks.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunks.len() as u64 * CHUNK
    }

    /// Bytes of blocks that are out of the slabs.
    pub fn out(&self) -> u64 {
        self.out
    }

    /// Slabs of a class.
    pub fn count(&self, class: usize) -> usize {
        self.counts[class]
    }

    /// Whether no slab of a class has a free block, nor will have one when it is asked for.
    #[inline]
    pub fn is_out_of(&self, class: usize) -> bool {
        self.partial_counts[class] == 0 && self.waiting.is_empty()
    }

    fn list_partial(&mut self, class: usize, lane: LaneId, address: u64) {
        self.partial_counts[class] += usize::from(self.partial.insert((class, lane, address)));
    }

    fn unlist_partial(&mut self, class: usize, lane: LaneId, address: u64) {
        self.partial_counts[class] -= usize::from(self.partial.remove(&(class, lane, address)));
    }

    /// Makes a chunk of a large block, which is as long and aligned as [`CHUNK`].
    pub fn add_chunk(&mut self, address: u64, lane: LaneId) {
        self.chunks.insert(address, Chunk { lane, free: u32::MAX });
        self.roomy.insert((lane, address));
    }

    /// Makes a slab in the first chunk of the lane that has room. Returns whether there is one.
    pub fn add(&mut self, class: usize, lane: LaneId) -> bool {
        let pages = (slab_size(class) / PAGE) as u32;
        let bits = u32::MAX >> (32 - pages);
        // Slabs begin at a multiple of their size.
        let fit = |chunk: &Chunk| (0..32u32).step_by(pages as usize).find(|at| chunk.free >> at & bits == bits);
        let owner = lane & !SAMPLED;
        let mut roomy = self.roomy.range((owner, 0)..=(owner, u64::MAX));
        let found = roomy.find_map(|&(_, address)| self.chunks.get(&address).and_then(fit).map(|at| (address, at)));
        let Some((address, at)) = found else { return false };
        if let Some(chunk) = self.chunks.get_mut(&address) {
            chunk.free &= !(bits << at);
            if chunk.free == 0 {
                self.roomy.remove(&(owner, address));
            }
        }
        self.add_at(address + u64::from(at) * PAGE, class, lane);
        true
    }

    fn add_at(&mut self, address: u64, class: usize, lane: LaneId) {
        let blocks = (slab_size(class) / size_of(class)) as usize;
        let mut free = vec![u64::MAX; blocks.div_ceil(64)];
        if !blocks.is_multiple_of(64) {
            free[blocks / 64] = (1 << (blocks % 64)) - 1;
        }
        self.slabs.insert(address, Slab { class, lane, free, free_blocks: blocks, blocks });
        self.list_partial(class, lane, address);
        self.empty.insert(address);
        self.counts[class] += 1;
        let page = Page::new(class, lane & !SAMPLED).with_recorded(lane & SAMPLED != 0);
        self.pages.set(address, slab_size(class), page);
    }

    /// Takes up to so many free blocks of a class and lane, from the lowest addresses, so that the other slabs empty.
    pub fn take(&mut self, class: usize, lane: LaneId, most: usize, into: &mut Vec<u64>) -> usize {
        let mut taken = 0;
        while taken < most && self.partial_counts[class] > 0 {
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
                self.unlist_partial(class, lane, key.2);
            }
        }
        self.out += taken as u64 * size_of(class);
        taken
    }

    /// The slab of an address, and the number of the block that begins there.
    fn find(&self, address: u64) -> Option<(u64, usize)> {
        let (&start, slab) = self.slabs.range(..=address).next_back()?;
        let offset = address - start;
        let inside = offset < slab_size(slab.class) && offset.is_multiple_of(size_of(slab.class));
        inside.then(|| (start, (offset / size_of(slab.class)) as usize))
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
        let (class, lane) = (slab.class, slab.lane);
        let (is_first, is_last) = (slab.free_blocks == 1, slab.free_blocks == slab.blocks);
        if is_first {
            self.list_partial(class, lane, start);
        }
        if is_last {
            self.empty.insert(start);
        }
        self.out -= size_of(class);
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

    /// Whether a block waits.
    pub fn is_any_waiting(&self) -> bool {
        !self.waiting.is_empty()
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

    /// Dissolves the slabs all of whose blocks are free, and takes the chunks away that are empty then. Returns their
    /// addresses and lanes.
    pub fn take_empty(&mut self) -> Vec<(u64, LaneId)> {
        let mut emptied = Vec::new();
        for address in std::mem::take(&mut self.empty) {
            let Some(Slab { class, lane, .. }) = self.slabs.remove(&address) else { continue };
            self.unlist_partial(class, lane, address);
            self.counts[class] -= 1;
            self.pages.set(address, slab_size(class), Page::NONE);
            let Some((&start, chunk)) = self.chunks.range_mut(..=address).next_back() else { continue };
            let bits = u32::MAX >> (32 - slab_size(class) / PAGE);
            chunk.free |= bits << ((address - start) / PAGE);
            self.roomy.insert((chunk.lane, start));
            if chunk.free == u32::MAX {
                emptied.push((start, chunk.lane));
            }
        }
        for (address, lane) in &emptied {
            self.chunks.remove(address);
            self.roomy.remove(&(*lane, *address));
        }
        emptied
    }
}
