//! Blocks that a signal handler freed which had interrupted the pool: it can't wait for locks, so others free them.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::sync::word::Word;

const PLACES: usize = 256;

static LATER: Later<PLACES> = Later::new();

/// Places for addresses of blocks, 0 where there is none.
struct Later<const N: usize, W: Word = AtomicUsize> {
    waiting: [W; N],
    /// Not 0 if there may be some.
    any: W,
}

impl<const N: usize> Later<N> {
    const fn new() -> Self {
        Later { waiting: [const { AtomicUsize::new(0) }; N], any: AtomicUsize::new(0) }
    }
}

impl<const N: usize, W: Word> Later<N, W> {
    /// False if there is no place.
    fn leave(&self, block: usize) -> bool {
        let left = |place: &W| place.compare_exchange(0, block, Ordering::Release, Ordering::Relaxed).is_ok();
        let has_place = self.waiting.iter().any(left);
        if has_place {
            // After the block: who takes this mark away looks at the places then. An exchange, so that who takes the
            // mark of one handler away sees the blocks of all who marked before.
            self.any.swap(1, Ordering::Release);
        }
        has_place
    }

    fn take(&self) -> impl Iterator<Item = usize> {
        let any = self.any.load(Ordering::Relaxed) != 0 && self.any.swap(0, Ordering::Acquire) != 0;
        let places = self.waiting.iter().take(if any { N } else { 0 });
        places.map(|place| place.swap(0, Ordering::Acquire)).filter(|&block| block != 0)
    }
}

/// Leaves a block for the next thread that allocates. Without a place it is never freed.
pub fn free_later(p: *mut u8) {
    LATER.leave(p.expose_provenance());
}

/// Takes what was left.
pub fn take() -> impl Iterator<Item = *mut u8> {
    LATER.take().map(core::ptr::with_exposed_provenance_mut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::word::model;

    struct State {
        later: Later<2, model::AtomicUsize>,
        /// The blocks' memory, which has one user at a time.
        blocks: [loom::cell::UnsafeCell<()>; 2],
        taken: [AtomicUsize; 2],
        left_out: AtomicUsize,
    }

    // SAFETY: the blocks are loom's, which fails the test if two threads are at one.
    unsafe impl Sync for State {}

    impl State {
        fn new() -> Self {
            let word = || model::AtomicUsize::new(0);
            State {
                later: Later { waiting: [word(), word()], any: word() },
                blocks: [loom::cell::UnsafeCell::new(()), loom::cell::UnsafeCell::new(())],
                taken: [AtomicUsize::new(0), AtomicUsize::new(0)],
                left_out: AtomicUsize::new(0),
            }
        }

        fn leave(&self, block: usize) {
            self.blocks[block].with_mut(|_| ());
            if !self.later.leave(block + 1) {
                self.left_out.fetch_add(1, Ordering::Relaxed);
            }
        }

        fn take(&self) {
            for block in self.later.take() {
                self.blocks[block - 1].with_mut(|_| ());
                self.taken[block - 1].fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    #[test]
    fn what_handlers_leave_is_taken_once_now_or_at_the_next_look() {
        let scenario = model::Scenario {
            state: State::new,
            threads: &[|state| state.leave(0), |state| state.leave(1), State::take],
            interruptions: 3,
            end: |state| {
                let in_time: usize = state.taken.iter().map(|taken| taken.load(Ordering::Relaxed)).sum();
                state.take();
                assert!(state.taken.iter().all(|taken| taken.load(Ordering::Relaxed) == 1), "a block is lost");
                assert_eq!(state.left_out.load(Ordering::Relaxed), 0, "there are two places");
                in_time
            },
        };
        assert_eq!(scenario.outcomes(), [0, 1, 2].into());
    }
}
