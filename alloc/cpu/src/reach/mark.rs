//! The mark: which blocks a pointer leads to, and which leaked block leads to which.
//!
//! It is conservative. Each aligned word that could be an address of a block counts as a pointer to it, also one into
//! its middle. A block is reachable if a chain of pointers to starts of blocks leads to it from a root, and possibly so
//! if each chain has a pointer into the middle of one. Of the others, a block that leads to more is leaked directly,
//! and what it leads to is leaked indirectly. A cycle has one leader.

use poolscope_wire::reach::verdict;

use super::table::Table;

/// What a word may point to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The block's number.
    pub block: u32,
    /// The word is the address of its start.
    pub at_start: bool,
}

/// The blocks in use.
pub trait Blocks {
    /// Numbers of blocks are below this.
    fn len(&self) -> u32;
    /// Whether there is a block with this number.
    fn has(&self, block: u32) -> bool;
    /// The block that an address lies in.
    fn find(&self, address: usize) -> Option<Hit>;
    /// Calls `f` with each aligned word of a block that may be a pointer.
    fn words(&self, block: u32, f: impl FnMut(usize));
}

/// No block leads to another one.
pub const NO_LEADER: u32 = u32::MAX;

/// The state of a mark: for each block its verdict and its leader.
pub struct Mark<'a, B> {
    blocks: &'a B,
    verdicts: Table<u8>,
    /// One more than the number of the block that leads to a leaked one; 0 for none.
    leaders: Table<u32>,
    /// Blocks whose words were not looked at yet. A block comes here once when it is found to be possibly reachable,
    /// and once when it is found to be so for sure.
    waiting: Table<u32>,
}

const REACHABLE: u8 = verdict::REACHABLE as u8;
const POSSIBLE: u8 = verdict::POSSIBLE as u8;
const DIRECT: u8 = verdict::DIRECT as u8;
const INDIRECT: u8 = verdict::INDIRECT as u8;

impl<'a, B: Blocks> Mark<'a, B> {
    /// Nothing is marked yet. `None` without memory.
    pub fn new(blocks: &'a B) -> Option<Self> {
        let len = blocks.len() as usize;
        // SAFETY: zeroes are numbers.
        let (verdicts, leaders) = unsafe { (Table::zeroed(len)?, Table::zeroed(len)?) };
        Some(Mark { blocks, verdicts, leaders, waiting: Table::new(2 * len)? })
    }

    /// Where its own memory lies, which is no root.
    pub fn own_memory(&self) -> [(usize, usize); 3] {
        [self.verdicts.addresses(), self.leaders.addresses(), self.waiting.addresses()]
    }

    /// A word of a root.
    #[inline]
    pub fn root(&mut self, word: usize) {
        if let Some(hit) = self.blocks.find(word) {
            self.reach(hit.block, if hit.at_start { REACHABLE } else { POSSIBLE });
            self.follow();
        }
    }

    /// A block that is in use and of whose words the roots have those that count, such as a thread's stack.
    pub fn hold(&mut self, block: u32) {
        self.verdicts.as_mut_slice()[block as usize] = REACHABLE;
    }

    fn reach(&mut self, block: u32, verdict: u8) {
        let known = &mut self.verdicts.as_mut_slice()[block as usize];
        if *known == 0 || (*known == POSSIBLE && verdict == REACHABLE) {
            *known = verdict;
            self.waiting.push(block);
        }
    }

    fn follow(&mut self) {
        while let Some(block) = self.waiting.pop() {
            let verdict = self.verdicts.as_slice()[block as usize];
            let blocks = self.blocks;
            blocks.words(block, |word| {
                if let Some(hit) = blocks.find(word) {
                    self.reach(hit.block, if hit.at_start { verdict } else { POSSIBLE });
                }
            });
        }
    }

    /// To be called when all roots are known: tells leaked blocks from those that they lead to.
    pub fn sort_leaks(&mut self) {
        let blocks = self.blocks;
        for leader in 0..blocks.len() {
            if self.verdicts.as_slice()[leader as usize] != 0 || !blocks.has(leader) {
                continue;
            }
            self.verdicts.as_mut_slice()[leader as usize] = DIRECT;
            self.waiting.push(leader);
            while let Some(block) = self.waiting.pop() {
                blocks.words(block, |word| {
                    if let Some(hit) = blocks.find(word) {
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
        let known = &mut self.verdicts.as_mut_slice()[block as usize];
        match *known {
            0 => {
                *known = INDIRECT;
                self.waiting.push(block);
            }
            // It led until now, and what it leads to is known.
            DIRECT => *known = INDIRECT,
            _ => return,
        }
        self.leaders.as_mut_slice()[block as usize] = leader + 1;
    }

    /// What came of it, without the blocks.
    pub fn into_verdicts(self) -> Verdicts {
        Verdicts { verdicts: self.verdicts, leaders: self.leaders }
    }
}

/// What came of a mark.
pub struct Verdicts {
    verdicts: Table<u8>,
    leaders: Table<u32>,
}

impl Verdicts {
    /// A block's verdict, one of [`verdict`].
    pub fn verdict(&self, block: u32) -> u16 {
        u16::from(self.verdicts.as_slice()[block as usize])
    }

    /// The block that leads to a leaked one, and that no other leads to; [`NO_LEADER`] for others.
    pub fn leader(&self, block: u32) -> u32 {
        let mut leader = NO_LEADER;
        let mut next = self.leaders.as_slice()[block as usize];
        while next != 0 {
            leader = next - 1;
            next = self.leaders.as_slice()[leader as usize];
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
            Some(Hit { block: block as u32, at_start: offset.is_multiple_of(SIZE) })
        }
        fn words(&self, block: u32, f: impl FnMut(usize)) {
            self.0[block as usize].iter().flatten().copied().for_each(f);
        }
    }

    fn at(block: usize) -> usize {
        BASE + block * SIZE
    }

    /// Verdicts and leaders of blocks that hold these words, with these words in roots.
    fn judge(blocks: &[&[usize]], roots: &[usize]) -> Vec<(u16, u32)> {
        let heap = Heap(blocks.iter().map(|words| Some(words.to_vec())).collect());
        let mut mark = Mark::new(&heap).expect("memory");
        roots.iter().for_each(|&word| mark.root(word));
        mark.sort_leaks();
        let verdicts = mark.into_verdicts();
        (0..heap.len()).map(|block| (verdicts.verdict(block), verdicts.leader(block))).collect()
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
        let mut mark = Mark::new(&heap).expect("memory");
        mark.sort_leaks();
        let mark = mark.into_verdicts();
        assert_eq!([mark.verdict(0), mark.verdict(1)], [verdict::NONE, D]);
    }

    #[test]
    fn a_held_block_is_in_use_and_its_words_are_the_roots_affair() {
        let heap = Heap(vec![Some(vec![at(1)]), Some(vec![])]);
        let mut mark = Mark::new(&heap).expect("memory");
        mark.hold(0);
        mark.root(at(0));
        mark.sort_leaks();
        let mark = mark.into_verdicts();
        assert_eq!([mark.verdict(0), mark.verdict(1)], [R, D]);
    }
}
