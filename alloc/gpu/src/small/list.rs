//! A thread's free blocks of one class and one stream.

use super::classes::size_of;

/// Bytes that a list holds at first if that is fewer blocks than the setting allows; two blocks in any case.
const LIST_BYTES: u64 = 1 << 20;

/// Blocks that a list may hold which only runs out, while threads wait for each other.
const CROWDED_LIST: usize = 8;

/// The settings that the fast path needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub alignment: u64,
    /// Whether blocks are counted.
    pub count: bool,
    /// Blocks that move at a time.
    pub batch: usize,
    /// Blocks of each class that a thread keeps for a stream.
    pub blocks: usize,
}

/// The free blocks of a class and a stream.
///
/// A list begins short where blocks are large, and may hold twice as many each time that it runs out of blocks after it
/// had too many: then more of them would have served the program without the global cache.
/// (tcmalloc's lists grow so, too.) Where threads wait for each other, some blocks more are worth it that they come for
/// blocks less often: a list that only runs out may hold twice as many then, too, up to a bound.
#[derive(Debug, Default)]
pub struct List {
    pub blocks: Vec<u64>,
    /// Blocks that it may hold.
    limit: usize,
    /// It was full since it last ran out.
    overflowed: bool,
}

impl List {
    pub fn new(limits: &Limits, class: usize) -> List {
        let limit = limits.blocks.min((LIST_BYTES / size_of(class)).max(2) as usize);
        List { limit, ..List::default() }
    }

    #[inline]
    pub fn is_full(&self) -> bool {
        self.blocks.len() >= self.limit
    }

    /// Says that it has run out, and whether threads wait for each other. Returns how many blocks it should get.
    pub fn ran_out(&mut self, limits: &Limits, crowded: bool) -> usize {
        let most = if std::mem::take(&mut self.overflowed) {
            limits.blocks
        } else if crowded {
            CROWDED_LIST.min(limits.blocks)
        } else {
            0
        };
        self.limit = self.limit.max((self.limit * 2).min(most));
        limits.batch.min(self.limit.div_ceil(2)).max(1)
    }

    /// Takes a batch out of a full list, or half of what it may hold: the blocks that have been in it the longest.
    pub fn overflow(&mut self, limits: &Limits, take: impl FnOnce(std::vec::Drain<'_, u64>)) {
        self.overflowed = true;
        let moved = limits.batch.min(self.limit.div_ceil(2)).max(1).min(self.blocks.len());
        take(self.blocks.drain(..moved));
        wipe_behind(&mut self.blocks, moved);
    }

    /// Takes the last block out, which may be one to record. Copies of its address may be anywhere behind the list:
    /// the fast path leaves them.
    pub fn take(&mut self) -> Option<u64> {
        let address = self.blocks.pop()?;
        wipe_behind(&mut self.blocks, usize::MAX);
        Some(address)
    }
}

/// Takes so many of the last blocks out of a list.
pub fn take_last(list: &mut Vec<u64>, count: usize) -> Vec<u64> {
    let taken = list.split_off(list.len().saturating_sub(count));
    wipe_behind(list, taken.len());
    taken
}

/// Wipes so many entries behind those of a list: who looks for leaks takes a copy of a block's address for a pointer of
/// the program's.
pub fn wipe_behind<T: Default>(list: &mut Vec<T>, count: usize) {
    for place in list.spare_capacity_mut().iter_mut().take(count) {
        place.write(T::default());
    }
}

#[cfg(test)]
mod tests {
    use super::super::classes::CLASSES;
    use super::{Limits, List, take_last};

    const LIMITS: Limits = Limits { alignment: 256, count: true, batch: 16, blocks: 64 };

    #[test]
    fn a_list_that_overflows_and_runs_out_may_hold_more() {
        let mut list = List::new(&LIMITS, CLASSES - 1);
        let mut held = Vec::new();
        for _ in 0..10 {
            list.blocks.clear();
            assert!(list.ran_out(&LIMITS, false) >= 1);
            while !list.is_full() {
                list.blocks.push(0);
            }
            held.push(list.blocks.len());
            list.overflow(&LIMITS, |batch| assert!(batch.count() > 0));
            assert!(!list.is_full());
        }
        assert_eq!(held, [2, 4, 8, 16, 32, 64, 64, 64, 64, 64]);
    }

    #[test]
    fn no_copy_of_a_blocks_address_stays_where_it_was_taken_from() {
        let mut list = List { blocks: (1..=64).collect(), limit: 64, overflowed: false };
        list.overflow(&LIMITS, |batch| batch.for_each(drop));
        // As the fast path does, and in another order back.
        let out: Vec<_> = (0..5).filter_map(|_| list.blocks.pop()).collect();
        list.blocks.extend(out);
        (0..5).for_each(|_| assert!(list.take().is_some()));
        let left = list.blocks.len();
        assert!(left > 0);
        // SAFETY: entries that were there, and wiped ones.
        let behind: Vec<u64> = (left..64).map(|at| unsafe { list.blocks.as_ptr().add(at).read() }).collect();
        assert_eq!(behind, vec![0; 64 - left]);
        let mut global: Vec<u64> = (1..=8).collect();
        assert_eq!(take_last(&mut global, 3), [6, 7, 8]);
        // SAFETY: as above.
        assert_eq!((global.len(), unsafe { global.as_ptr().add(5).read() }), (5, 0));
    }

    #[test]
    fn a_list_that_only_runs_out_gets_more_each_time_while_threads_wait_for_each_other() {
        let mut list = List::new(&LIMITS, CLASSES - 1);
        let got: Vec<_> = (0..5).map(|_| list.ran_out(&LIMITS, true)).collect();
        assert_eq!(got, [2, 4, 4, 4, 4]);
        assert_eq!(list.ran_out(&LIMITS, false), 4, "as long as it has become");
        let none = Limits { blocks: 1, ..LIMITS };
        assert_eq!(List::new(&none, CLASSES - 1).ran_out(&none, true), 1, "no more than the setting says");
    }

    #[test]
    fn a_list_that_only_runs_out_or_only_overflows_stays_short() {
        let mut list = List::new(&LIMITS, CLASSES - 1);
        (0..10).for_each(|_| assert_eq!(list.ran_out(&LIMITS, false), 1));
        for _ in 0..10 {
            while !list.is_full() {
                list.blocks.push(0);
            }
            list.overflow(&LIMITS, |batch| batch.for_each(drop));
            assert!(list.blocks.len() < 2);
        }
    }
}
