//! Slabs of one size class each, by rules that can be changed: how large they are, which one is used next, what a
//! thread keeps, and when memory goes back.
//!
//! [`Rules::POOL`] are those of the pool on the host (`alloc/cpu`): its classes, its slabs, its queues. What a pool's
//! clock does, which gives idle memory back after seconds, is left out.

use std::collections::{BTreeSet, HashMap};

use super::{PAGE, Policy};

/// Which of the slabs with free blocks is used next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// The one that has waited longest since enough of it was free; those of which less than half is in use last.
    Oldest,
    /// That with the fewest free blocks.
    Fullest,
}

/// What a policy does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Bytes of a slab, of which it is a multiple.
    pub slab: usize,
    /// Blocks of a slab, at least.
    pub least: usize,
    /// Whether of blocks of 16 KiB and more two are enough, and one of 64 KiB and more.
    pub few_long: bool,
    pub order: Order,
    /// Whether a slab is used again only when a part of it is free.
    pub waits: bool,
    /// The part of what is in use that free spans may have, as a divisor; `None` for any.
    pub idle_part: Option<usize>,
    /// The same of slabs with pages without a block, which then go back; `None`: they stay.
    pub thin_part: Option<usize>,
    /// The part that the freed blocks over 1 KiB that threads keep may have, as a divisor.
    pub cache_part: usize,
    /// Bytes of the same in a small program.
    pub small_cache: usize,
}

impl Rules {
    /// Blocks of a slab, at least, and the part of it that may be left over at its end, as a divisor.
    fn shape(&self, block: usize) -> (usize, usize) {
        match block >> 10 {
            64.. if self.few_long => (1, 8),
            16.. if self.few_long => (2, 8),
            _ => (self.least, 16),
        }
    }

    pub const POOL: Rules = Rules {
        slab: 32 << 10,
        least: 4,
        few_long: true,
        order: Order::Oldest,
        waits: true,
        idle_part: Some(32),
        thin_part: Some(16),
        cache_part: 32,
        small_cache: SMALL_CACHE,
    };
    /// A slab is used again as soon as a block of it is free, and nothing is kept.
    pub const FULLEST: Rules = Rules {
        slab: 64 << 10,
        least: 4,
        few_long: false,
        order: Order::Fullest,
        waits: false,
        idle_part: Some(usize::MAX),
        thin_part: None,
        cache_part: usize::MAX,
        small_cache: 0,
    };
}

/// Bytes that may lie idle however little is in use.
const IDLE_MIN: usize = 1 << 20;
/// Bytes that are in use in a small program at most. Its threads may keep eight times as much as this of blocks over
/// 1 KiB (`alloc/cpu/src/tiers/thread_cache/limit.rs`); but each class has a bound of its own, which its misses raise,
/// and this is what they come to, as measured.
const SMALL_PROGRAM: usize = 32 << 20;
const SMALL_CACHE: usize = 2 << 20;
/// After so many bytes that were allocated it is looked at what lies idle.
const TURNOVER: usize = 256 << 10;
const SMALL_MAX: usize = 1024;
const MEDIUM_MAX: usize = 256 << 10;
/// Slabs of blocks over 1 KiB that are looked at for the fullest one.
const LOOK: usize = 16;
/// So many free blocks are enough for a slab to be used again, whatever part of it they are.
const WORTH_MAX: usize = 32;
/// The part of a slab that is worth it before another slab is taken, where a class has no more slabs than these.
const LEAST: usize = 8;
const SOME: usize = 16;

/// Bytes of a block for a request.
fn block_of(size: usize) -> usize {
    let size = size.max(1);
    if size <= SMALL_MAX {
        return size.next_multiple_of(16);
    }
    // Eight classes for each doubling.
    size.next_multiple_of(1 << ((size - 1).ilog2() - 3))
}

struct Slab {
    thread: u32,
    block: usize,
    capacity: usize,
    live: usize,
    /// Blocks that were freed, the latest last.
    free: Vec<u16>,
    /// Blocks that were ever used.
    cut: usize,
    /// Blocks in each page, and whether it has memory.
    pages: Vec<(u16, bool)>,
    /// Its place in the queue.
    queued: Option<(u8, u64)>,
    active: bool,
}

impl Slab {
    fn pages_of(&self, index: usize) -> std::ops::RangeInclusive<usize> {
        index * self.block / PAGE..=((index + 1) * self.block - 1) / PAGE
    }
}

#[derive(Default)]
struct Heap {
    active: Option<u32>,
    waiting: BTreeSet<(u8, u64, u32)>,
    slabs: usize,
    /// Freed blocks that the thread keeps.
    stack: Vec<(u32, u16)>,
}

#[derive(Clone, Copy)]
enum Placed {
    Nowhere,
    Large(usize),
    In(u32, u16),
}

/// Slabs of all threads and classes.
pub(super) struct Slabs {
    rules: Rules,
    blocks: Vec<Placed>,
    slabs: Vec<Option<Slab>>,
    unused: Vec<u32>,
    heaps: HashMap<(u32, usize), Heap>,
    /// Bytes with memory behind them: in slabs and large blocks, and in free spans.
    resident: usize,
    idle: usize,
    /// Bytes of slabs and large blocks.
    in_use: usize,
    cached: usize,
    turned_over: usize,
    clock: u64,
}

impl Slabs {
    pub fn new(rules: Rules) -> Slabs {
        Slabs {
            rules,
            blocks: Vec::new(),
            slabs: Vec::new(),
            unused: Vec::new(),
            heaps: HashMap::new(),
            resident: 0,
            idle: 0,
            in_use: 0,
            cached: 0,
            turned_over: 0,
            clock: 0,
        }
    }

    /// Takes memory that lies idle: how much of it there is.
    fn take_idle(&mut self, bytes: usize) -> usize {
        let taken = self.idle.min(bytes);
        self.idle -= taken;
        self.in_use += bytes;
        taken
    }

    fn new_slab(&mut self, thread: u32, block: usize) -> u32 {
        let mut bytes = self.rules.slab;
        let (least, rest) = self.rules.shape(block);
        // A block of the pool's small classes has a slab of one unit; of others as little as possible is left over.
        while bytes < block * least || (block > SMALL_MAX && bytes % block > bytes / rest) {
            bytes += self.rules.slab;
        }
        let there = self.take_idle(bytes) / PAGE;
        self.resident += there * PAGE;
        let slab = Slab {
            thread,
            block,
            capacity: bytes / block,
            live: 0,
            free: Vec::new(),
            cut: 0,
            pages: (0..bytes / PAGE).map(|page| (0, page < there)).collect(),
            queued: None,
            active: false,
        };
        let id = self.unused.pop().unwrap_or(self.slabs.len() as u32);
        self.slabs.resize_with(self.slabs.len().max(id as usize + 1), || None);
        self.slabs[id as usize] = Some(slab);
        self.heaps.entry((thread, block)).or_default().slabs += 1;
        id
    }

    /// The slab that the thread's next block of the class comes from.
    fn ready(&mut self, thread: u32, block: usize) -> u32 {
        let heap = self.heaps.entry((thread, block)).or_default();
        if let Some(id) = heap.active {
            let Some(slab) = self.slabs[id as usize].as_mut() else { unreachable!("an active slab stays") };
            if slab.live < slab.capacity {
                return id;
            }
            slab.active = false;
            heap.active = None;
        }
        let live = |id: u32| self.slabs[id as usize].as_ref().map_or(0, |slab| slab.live);
        let next = if block > SMALL_MAX && self.rules.order == Order::Oldest {
            // Of large blocks the fullest of a few.
            let partial = heap.waiting.iter().take(LOOK).filter(|(rank, ..)| *rank == 0);
            partial.max_by_key(|(.., id)| live(*id)).or(heap.waiting.first()).copied()
        } else {
            heap.waiting.first().copied()
        };
        let id = match next {
            Some(next) => {
                heap.waiting.remove(&next);
                next.2
            }
            None => self.most_free(thread, block).unwrap_or_else(|| self.new_slab(thread, block)),
        };
        if let Some(slab) = self.slabs[id as usize].as_mut() {
            slab.queued = None;
            slab.active = true;
        }
        self.heaps.entry((thread, block)).or_default().active = Some(id);
        id
    }

    /// The slab with the most free blocks of those that wait until more of it is free, if it has some and there are not many.
    fn most_free(&self, thread: u32, block: usize) -> Option<u32> {
        if !self.rules.waits || self.heaps.get(&(thread, block))?.slabs > SOME {
            return None;
        }
        let waits = |slab: &Slab| slab.thread == thread && slab.block == block && !slab.active && slab.queued.is_none();
        let free = |slab: &Slab| slab.capacity - slab.live;
        let slabs = self.slabs.iter().zip(0..).filter_map(|(slab, id)| Some((slab.as_ref()?, id)));
        let (slab, id) = slabs.filter(|(slab, _)| waits(slab)).max_by_key(|(slab, _)| free(slab))?;
        (free(slab) >= (slab.capacity / LEAST).max(1)).then_some(id)
    }

    fn use_block(&mut self, id: u32) -> u16 {
        let Some(slab) = self.slabs[id as usize].as_mut() else { unreachable!("a slab that was just chosen") };
        let index = slab.free.pop().unwrap_or_else(|| {
            slab.cut += 1;
            slab.cut as u16 - 1
        });
        slab.live += 1;
        for page in slab.pages_of(index.into()) {
            let (blocks, has_memory) = &mut slab.pages[page];
            *blocks += 1;
            if !std::mem::replace(has_memory, true) {
                self.resident += PAGE;
            }
        }
        index
    }

    fn give_back(&mut self, id: u32, index: u16) {
        self.clock += 1;
        let rules = self.rules;
        let at_once = rules.thin_part == Some(usize::MAX);
        let Some(slab) = self.slabs[id as usize].as_mut() else { return };
        slab.live -= 1;
        slab.free.push(index);
        for page in slab.pages_of(index.into()) {
            slab.pages[page].0 -= 1;
            if at_once && slab.pages[page].0 == 0 {
                slab.pages[page].1 = false;
                self.resident -= PAGE;
            }
        }
        if slab.active {
            return;
        }
        let Some(heap) = self.heaps.get_mut(&(slab.thread, slab.block)) else { return };
        if slab.live == 0 {
            if let Some((rank, key)) = slab.queued {
                heap.waiting.remove(&(rank, key, id));
            }
            heap.slabs -= 1;
            let memory = slab.pages.iter().filter(|page| page.1).count() * PAGE;
            self.in_use -= slab.pages.len() * PAGE;
            self.resident -= memory;
            self.idle += memory;
            self.slabs[id as usize] = None;
            self.unused.push(id);
            return;
        }
        let free = slab.capacity - slab.live;
        let part = match heap.slabs {
            0..=4 => 2,
            5..=SOME => 4,
            _ => 8,
        };
        let worth = if rules.waits { (slab.capacity / part).clamp(1, WORTH_MAX) } else { 1 };
        let rank = u8::from(rules.order == Order::Oldest && slab.live * 2 < slab.capacity);
        let key = if rules.order == Order::Fullest { free as u64 } else { self.clock };
        match slab.queued {
            // It keeps its place among the oldest.
            Some((queued, _)) if rules.order == Order::Oldest && queued == rank => {}
            None if free < worth => {}
            before => {
                if let Some((rank, key)) = before {
                    heap.waiting.remove(&(rank, key, id));
                }
                heap.waiting.insert((rank, key, id));
                slab.queued = Some((rank, key));
            }
        }
    }

    /// Bytes of freed blocks over 1 KiB that threads may keep.
    fn cache_limit(&self) -> usize {
        // It has as much until so much is in use, and nothing at twice that.
        let short_of_twice = (2 * SMALL_PROGRAM).saturating_sub(self.in_use).min(SMALL_PROGRAM);
        let small = self.rules.small_cache * short_of_twice / SMALL_PROGRAM;
        small.max(self.in_use / self.rules.cache_part)
    }

    /// Gives back what lies idle beyond what may.
    fn look(&mut self) {
        let most = |part: usize| (self.in_use / part).max(IDLE_MIN);
        match self.rules.idle_part {
            Some(usize::MAX) => self.idle = 0,
            Some(part) => self.idle = self.idle.min(most(part)),
            None => {}
        }
        let Some(part) = self.rules.thin_part.filter(|part| *part != usize::MAX) else { return };
        let is_thin = |slab: &Slab| !slab.active && slab.live * 2 < slab.capacity && slab.live <= slab.pages.len();
        let thin = self.slabs.iter().flatten().filter(|slab| is_thin(slab)).map(|slab| slab.pages.len() * PAGE);
        if thin.sum::<usize>() <= most(part) {
            return;
        }
        for slab in self.slabs.iter_mut().flatten().filter(|slab| is_thin(slab)) {
            for page in &mut slab.pages {
                if page.0 == 0 && std::mem::replace(&mut page.1, false) {
                    self.resident -= PAGE;
                }
            }
        }
    }
}

impl Policy for Slabs {
    fn allocate(&mut self, number: u32, size: usize, thread: u32) {
        let block = block_of(size);
        let placed = if size > MEDIUM_MAX {
            let bytes = size.next_multiple_of(PAGE);
            self.take_idle(bytes);
            self.resident += bytes;
            Placed::Large(bytes)
        } else if let Some((id, index)) = self.heaps.get_mut(&(thread, block)).and_then(|heap| heap.stack.pop()) {
            self.cached -= block;
            Placed::In(id, index)
        } else {
            let id = self.ready(thread, block);
            Placed::In(id, self.use_block(id))
        };
        let at = number as usize;
        self.blocks.resize(self.blocks.len().max(at + 1), Placed::Nowhere);
        self.blocks[at] = placed;
        self.turned_over += block;
        if self.turned_over >= TURNOVER || self.rules.idle_part == Some(usize::MAX) {
            self.turned_over = 0;
            self.look();
        }
    }

    fn free(&mut self, number: u32) {
        match std::mem::replace(&mut self.blocks[number as usize], Placed::Nowhere) {
            Placed::Nowhere => {}
            Placed::Large(bytes) => {
                self.resident -= bytes;
                self.in_use -= bytes;
                self.idle += bytes;
            }
            Placed::In(id, index) => {
                let Some(slab) = &self.slabs[id as usize] else { return };
                let (thread, block) = (slab.thread, slab.block);
                if block > SMALL_MAX && self.cached + block <= self.cache_limit() {
                    self.cached += block;
                    self.heaps.entry((thread, block)).or_default().stack.push((id, index));
                } else {
                    self.give_back(id, index);
                }
            }
        }
    }

    fn held(&self) -> usize {
        self.resident + self.idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_the_sizes_of_the_pools_classes() {
        let expected =
            [(1, 16), (16, 16), (17, 32), (1024, 1024), (1025, 1152), (4096, 4096), (4097, 4608), (262_144, 262_144)];
        for (size, block) in expected {
            assert_eq!(block_of(size), block, "{size}");
        }
    }

    #[test]
    fn a_slab_that_empties_is_memory_for_any_class() {
        let mut slabs = Slabs::new(Rules::POOL);
        (0..1000).for_each(|number| slabs.allocate(number, 1000, 0));
        let held = slabs.held();
        (0..1000).for_each(|number| slabs.free(number));
        (0..500).for_each(|number| slabs.allocate(number, 500, 0));
        assert!(held >= 1_000_000 && slabs.held() <= held + 2 * (64 << 10), "{held}, then {}", slabs.held());
    }

    #[test]
    fn pages_without_a_block_go_back_where_the_rule_says_so() {
        let rules = Rules { thin_part: Some(usize::MAX), ..Rules::FULLEST };
        let mut slabs = Slabs::new(rules);
        (0..16_000).for_each(|number| slabs.allocate(number, 1024, 0));
        (0..16_000).filter(|number| number % 4 != 0).for_each(|number| slabs.free(number));
        assert!(slabs.held() >= 16_000_000, "each page has a block: {}", slabs.held());
        (0..16_000).filter(|number| number % 64 != 0).for_each(|number| slabs.free(number));
        assert!(slabs.held() <= 1_300_000, "{}", slabs.held());
    }
}
