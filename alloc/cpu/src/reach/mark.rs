//! The mark: which blocks a pointer leads to, by which one, and which leaked block leads to which.
//!
//! It is conservative. Each aligned word that could be an address of a block counts as a pointer to it, also one into
//! its middle. A block is reachable if a chain of pointers to starts of blocks leads to it from a root, and possibly so
//! if each chain has a pointer into the middle of one. Of the others, a block that leads to more is leaked directly,
//! and what it leads to is leaked indirectly. A cycle has one leader.
//!
//! What can be reached is looked at in the order of its distance from the roots, so that what leads to a block is the
//! last step of a shortest chain.

use poolscope_wire::reach::{holder, verdict};

use super::table::Table;

/// What a word may point to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The block's number.
    pub block: u32,
    /// The word is the address of its start.
    pub at_start: bool,
    /// It is memory of a device.
    pub of_device: bool,
}

/// The blocks in use.
pub trait Blocks {
    /// Numbers of blocks are below this.
    fn len(&self) -> u32;
    /// Whether there is a block with this number.
    fn has(&self, block: u32) -> bool;
    /// The block that an address lies in.
    fn find(&self, address: usize) -> Option<Hit>;
    /// Whether what a block has of devices' addresses is their pools' own, and leads to nothing.
    fn is_of_device_pool(&self, _block: u32) -> bool {
        false
    }
    /// The same of the memory around an address.
    fn is_in_device_library(&self, _place: usize) -> bool {
        false
    }
    /// Whether nobody ever frees a block, though nothing points to it.
    fn is_interned(&self, _block: u32) -> bool {
        false
    }
    /// To be called some blocks before one is looked at: gets its record, and then what lies in it.
    fn fetch_record(&self, _block: u32) {}
    /// The second step.
    fn fetch_words(&self, _block: u32) {}
    /// Calls `f` with each aligned word of a block that may be a pointer: where it lies, and the word.
    fn words(&self, block: u32, f: impl FnMut(usize, usize));
}

/// So many blocks before a block is looked at, its record is fetched, and half as many before, what lies in it.
const AHEAD: usize = 16;

/// No block leads to another one.
pub const NO_LEADER: u32 = u32::MAX;

/// A mark that goes on.
pub struct Mark<'a, B> {
    blocks: &'a B,
    /// Bits of a word that may be part of an address.
    address_bits: usize,
    found: &'a mut Verdicts,
    /// Blocks whose words are to be looked at, in this order. A block comes here once when it is found to be possibly
    /// reachable, and once when it is found to be so for sure.
    waiting: Table<u32>,
}

const REACHABLE: u8 = verdict::REACHABLE as u8;
const POSSIBLE: u8 = verdict::POSSIBLE as u8;
const DIRECT: u8 = verdict::DIRECT as u8;
const INDIRECT: u8 = verdict::INDIRECT as u8;
const IGNORED: u8 = verdict::IGNORED as u8;
const INTERNED: u8 = verdict::INTERNED as u8;

impl<'a, B: Blocks> Mark<'a, B> {
    /// Nothing is marked yet in `found`, which has room for the blocks. `tag_bits` of a word are no part of an address.
    /// `None` without memory.
    pub fn new(blocks: &'a B, found: &'a mut Verdicts, tag_bits: usize) -> Option<Self> {
        let waiting = Table::new(2 * blocks.len() as usize)?;
        Some(Mark { blocks, address_bits: !tag_bits, found, waiting })
    }

    /// Where its own memory lies, which is no root.
    pub fn own_memory(&self) -> [(usize, usize); 3] {
        [self.found.verdicts.addresses(), self.found.holders.addresses(), self.waiting.addresses()]
    }

    /// A word of a root, and what holds what it points to.
    #[inline]
    pub fn root(&mut self, word: usize, held_by: u64) {
        let Some(hit) = self.blocks.find(word & self.address_bits) else { return };
        if hit.of_device
            && holder::split(held_by).0 == holder::WORD
            && self.blocks.is_in_device_library(held_by as usize)
        {
            return;
        }
        let verdict = if hit.at_start { REACHABLE } else { POSSIBLE };
        self.reach(hit.block, verdict, held_by);
        // A variable says more than what a thread has for the moment.
        let is_variable = |held_by: u64| matches!(holder::split(held_by).0, holder::WORD | holder::REGION);
        let known = &mut self.found.holders.as_mut_slice()[hit.block as usize];
        if self.found.verdicts.as_slice()[hit.block as usize] == verdict && is_variable(held_by) && !is_variable(*known)
        {
            *known = held_by;
        }
    }

    /// A block that is in use and of whose words the roots have those that count, such as a thread's stack.
    pub fn hold(&mut self, block: u32) {
        self.found.verdicts.as_mut_slice()[block as usize] = REACHABLE;
        self.found.holders.as_mut_slice()[block as usize] = holder::IN_USE;
    }

    /// A block that is no leak, and neither is what it leads to.
    pub fn ignore(&mut self, block: u32) {
        self.reach(block, IGNORED, 0);
    }

    fn reach(&mut self, block: u32, verdict: u8, held_by: u64) {
        let known = &mut self.found.verdicts.as_mut_slice()[block as usize];
        if *known == 0 || (*known == POSSIBLE && verdict != POSSIBLE) {
            *known = verdict;
            self.found.holders.as_mut_slice()[block as usize] = held_by;
            self.waiting.push(block);
        }
    }

    /// To be called when all roots are known: follows what they lead to, and tells leaked blocks from those that they
    /// lead to.
    pub fn follow(&mut self) {
        self.follow_waiting();
        for block in 0..self.blocks.len() {
            if self.found.verdicts.as_slice()[block as usize] == 0 && self.blocks.is_interned(block) {
                self.reach(block, INTERNED, 0);
            }
        }
        self.follow_waiting();
        self.sort_leaks();
    }

    fn follow_waiting(&mut self) {
        let mut next = 0;
        while let Some(&block) = self.waiting.as_slice().get(next) {
            if let Some(&later) = self.waiting.as_slice().get(next + AHEAD) {
                self.blocks.fetch_record(later);
            }
            if let Some(&soon) = self.waiting.as_slice().get(next + AHEAD / 2) {
                self.blocks.fetch_words(soon);
            }
            next += 1;
            let verdict = self.found.verdicts.as_slice()[block as usize];
            let verdict = if verdict == POSSIBLE { POSSIBLE } else { REACHABLE };
            let (blocks, bits) = (self.blocks, self.address_bits);
            blocks.words(block, |place, word| {
                if let Some(hit) = blocks.find(word & bits)
                    && !(hit.of_device && blocks.is_of_device_pool(block))
                {
                    self.reach(hit.block, if hit.at_start { verdict } else { POSSIBLE }, place as u64);
                }
            });
        }
        self.waiting.clear();
    }

    fn sort_leaks(&mut self) {
        let (blocks, bits) = (self.blocks, self.address_bits);
        for leader in 0..blocks.len() {
            if self.found.verdicts.as_slice()[leader as usize] != 0 || !blocks.has(leader) {
                continue;
            }
            self.found.verdicts.as_mut_slice()[leader as usize] = DIRECT;
            self.waiting.push(leader);
            while let Some(block) = self.waiting.pop() {
                blocks.words(block, |_, word| {
                    if let Some(hit) = blocks.find(word & bits)
                        && !(hit.of_device && blocks.is_of_device_pool(block))
                    {
                        self.lead(leader, hit.block);
                    }
                });
            }
        }
    }

    fn lead(&mut self, leader: u32, block: u32) {
        if block == leader {
            return;
        }
        let known = &mut self.found.verdicts.as_mut_slice()[block as usize];
        match *known {
            0 => {
                *known = INDIRECT;
                self.waiting.push(block);
            }
            // It led until now, and what it leads to is known.
            DIRECT => *known = INDIRECT,
            _ => return,
        }
        self.found.holders.as_mut_slice()[block as usize] = u64::from(leader) + 1;
    }
}

/// What came of a mark: for each block its verdict, and what leads to it.
pub struct Verdicts {
    verdicts: Table<u8>,
    /// What leads to a block that is in use ([`holder`]). Of one that is leaked indirectly: one more than the number of
    /// the block that leads to it.
    holders: Table<u64>,
}

impl Verdicts {
    /// Room for `len` blocks, in memory that a forked child shares if `is_shared`. `None` without memory.
    pub fn new(len: u32, is_shared: bool) -> Option<Self> {
        let len = len as usize;
        // SAFETY: zeroes are numbers.
        unsafe {
            Some(if is_shared {
                Verdicts { verdicts: Table::shared(len)?, holders: Table::shared(len)? }
            } else {
                Verdicts { verdicts: Table::zeroed(len)?, holders: Table::zeroed(len)? }
            })
        }
    }

    /// Numbers of blocks are below this.
    pub fn len(&self) -> u32 {
        self.verdicts.as_slice().len() as u32
    }

    /// A block's verdict, one of [`verdict`].
    pub fn verdict(&self, block: u32) -> u16 {
        u16::from(self.verdicts.as_slice()[block as usize])
    }

    /// The same of any number.
    pub fn verdict_if_any(&self, block: u32) -> u16 {
        self.verdicts.as_slice().get(block as usize).map_or(verdict::NONE, |&verdict| u16::from(verdict))
    }

    /// What holds a block that can be reached; 0 for others.
    pub fn holder(&self, block: u32) -> u64 {
        let is_in_use = matches!(self.verdicts.as_slice()[block as usize], REACHABLE | POSSIBLE);
        if is_in_use { self.holders.as_slice()[block as usize] } else { 0 }
    }

    /// The block that leads to a leaked one, and that no other leads to; [`NO_LEADER`] for others.
    pub fn leader(&self, block: u32) -> u32 {
        let mut leader = NO_LEADER;
        let mut next = block;
        while self.verdicts.as_slice()[next as usize] == INDIRECT {
            leader = (self.holders.as_slice()[next as usize] - 1) as u32;
            next = leader;
        }
        leader
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of 64 bytes, one behind the other from this address on.
    const BASE: usize = 0x1000;
    const SIZE: usize = 64;

    /// For each block the words in it; `None` for a free place.
    struct Heap(Vec<Option<Vec<usize>>>);

    impl Blocks for Heap {
        fn len(&self) -> u32 {
            self.0.len() as u32
        }
        fn has(&self, block: u32) -> bool {
            self.0[block as usize].is_some()
        }
        fn find(&self, address: usize) -> Option<Hit> {
            let offset = address.checked_sub(BASE)?;
            let block = offset / SIZE;
            self.0.get(block)?.as_ref()?;
            Some(Hit { block: block as u32, at_start: offset.is_multiple_of(SIZE), of_device: false })
        }
        fn words(&self, block: u32, mut f: impl FnMut(usize, usize)) {
            let words = self.0[block as usize].iter().flatten().enumerate();
            words.for_each(|(n, &word)| f(at(block as usize) + n * 8, word));
        }
    }

    fn at(block: usize) -> usize {
        BASE + block * SIZE
    }

    /// A variable.
    const ROOT: u64 = 0x8000;

    /// Verdicts and leaders of blocks that hold these words, with these words in roots.
    fn judge(blocks: &[&[usize]], roots: &[usize]) -> Vec<(u16, u32)> {
        let heap = Heap(blocks.iter().map(|words| Some(words.to_vec())).collect());
        let mut found = Verdicts::new(heap.len(), false).expect("memory");
        let mut mark = Mark::new(&heap, &mut found, 0).expect("memory");
        roots.iter().for_each(|&word| mark.root(word, ROOT));
        mark.follow();
        (0..heap.len()).map(|block| (found.verdict(block), found.leader(block))).collect()
    }

    fn verdicts(blocks: &[&[usize]], roots: &[usize]) -> Vec<u16> {
        judge(blocks, roots).into_iter().map(|(verdict, _)| verdict).collect()
    }

    use verdict::{DIRECT as D, INDIRECT as I, POSSIBLE as P, REACHABLE as R};

    #[test]
    fn what_a_root_leads_to_is_reachable_over_any_number_of_blocks() {
        assert_eq!(verdicts(&[&[at(1)], &[at(2)], &[], &[]], &[7, at(0)]), [R, R, R, D]);
    }

    #[test]
    fn a_pointer_into_the_middle_makes_a_block_and_what_it_leads_to_possible() {
        assert_eq!(verdicts(&[&[at(1)], &[]], &[at(0) + 8]), [P, P]);
        assert_eq!(verdicts(&[&[at(1) + 63], &[]], &[at(0)]), [R, P]);
    }

    #[test]
    fn a_better_pointer_that_comes_later_makes_them_reachable() {
        assert_eq!(verdicts(&[&[at(1)], &[at(0)]], &[at(0) + 8, at(0)]), [R, R]);
    }

    #[test]
    fn a_word_that_is_no_address_of_a_block_holds_nothing() {
        assert_eq!(verdicts(&[&[], &[]], &[0, at(2), at(0) - 1, usize::MAX]), [D, D]);
    }

    #[test]
    fn a_block_that_points_to_itself_is_leaked() {
        assert_eq!(judge(&[&[at(0), at(0) + 8]], &[]), [(D, NO_LEADER)]);
    }

    #[test]
    fn of_a_leaked_list_the_head_is_leaked_directly_and_the_rest_indirectly() {
        // The head is the first, and the last.
        assert_eq!(judge(&[&[at(1)], &[at(2)], &[]], &[]), [(D, NO_LEADER), (I, 0), (I, 0)]);
        assert_eq!(judge(&[&[], &[at(0)], &[at(1)]], &[]), [(I, 2), (I, 2), (D, NO_LEADER)]);
    }

    #[test]
    fn a_leaked_cycle_has_one_leader() {
        assert_eq!(judge(&[&[at(1)], &[at(2)], &[at(0)]], &[]), [(D, NO_LEADER), (I, 0), (I, 0)]);
    }

    #[test]
    fn a_free_place_is_no_leak() {
        let heap = Heap(vec![None, Some(vec![at(0)])]);
        let mut found = Verdicts::new(heap.len(), false).expect("memory");
        let mut mark = Mark::new(&heap, &mut found, 0).expect("memory");
        mark.follow();
        assert_eq!([found.verdict(0), found.verdict(1)], [verdict::NONE, D]);
    }

    #[test]
    fn a_held_block_is_in_use_and_its_words_are_the_roots_affair() {
        let heap = Heap(vec![Some(vec![at(1)]), Some(vec![])]);
        let mut found = Verdicts::new(heap.len(), false).expect("memory");
        let mut mark = Mark::new(&heap, &mut found, 0).expect("memory");
        mark.hold(0);
        mark.root(at(0), ROOT);
        mark.follow();
        assert_eq!([found.verdict(0), found.verdict(1)], [R, D]);
    }

    /// What holds each block, with these words in roots.
    fn holders(blocks: &[&[usize]], roots: &[(usize, u64)]) -> Vec<u64> {
        let heap = Heap(blocks.iter().map(|words| Some(words.to_vec())).collect());
        let mut found = Verdicts::new(heap.len(), false).expect("memory");
        let mut mark = Mark::new(&heap, &mut found, 0).expect("memory");
        roots.iter().for_each(|&(word, held_by)| mark.root(word, held_by));
        mark.follow();
        (0..heap.len()).map(|block| found.holder(block)).collect()
    }

    #[test]
    fn the_last_step_of_a_shortest_chain_is_known_of_each_block() {
        // By the first block the third is three steps away, by the fourth two.
        let blocks: &[&[usize]] = &[&[at(1)], &[at(2)], &[], &[0, at(2)], &[]];
        let found = holders(blocks, &[(at(0), ROOT), (at(3), ROOT + 8)]);
        assert_eq!(found, [ROOT, at(0) as u64, (at(3) + 8) as u64, ROOT + 8, 0]);
    }

    #[test]
    fn a_variable_says_more_than_a_register() {
        let register = holder::of_thread(holder::REGISTER, 77);
        assert_eq!(holders(&[&[]], &[(at(0), register)]), [register]);
        assert_eq!(holders(&[&[]], &[(at(0), register), (at(0), ROOT), (at(0), register)]), [ROOT]);
        // But a sure pointer says more than one into the middle.
        assert_eq!(holders(&[&[]], &[(at(0) + 8, ROOT), (at(0), register)]), [register]);
    }

    #[test]
    fn what_an_ignored_block_leads_to_is_in_use() {
        let heap = Heap(vec![Some(vec![at(1)]), Some(vec![]), Some(vec![])]);
        let mut found = Verdicts::new(heap.len(), false).expect("memory");
        let mut mark = Mark::new(&heap, &mut found, 0).expect("memory");
        mark.ignore(0);
        mark.follow();
        assert_eq!([0, 1, 2].map(|block| found.verdict(block)), [verdict::IGNORED, R, D]);
    }

    #[test]
    fn bits_that_are_no_part_of_an_address_are_left_out() {
        let heap = Heap(vec![Some(vec![at(1) | 0xab << 48]), Some(vec![])]);
        for (tag_bits, expected) in [(0xff << 48, [R, R]), (0, [R, D])] {
            let mut found = Verdicts::new(heap.len(), false).expect("memory");
            let mut mark = Mark::new(&heap, &mut found, tag_bits).expect("memory");
            mark.root(at(0), ROOT);
            mark.follow();
            assert_eq!([0, 1].map(|block| found.verdict(block)), expected);
        }
    }
}
