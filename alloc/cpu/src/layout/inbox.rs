//! A heap's mailbox, and whether there is a thread that empties it.
//!
//! A batch must not wait in the mailbox of a heap whose thread has ended. The thread that ends says so and then takes
//! what is there; whoever delivers pushes first and then looks whether the owner is still there. With a sequentially
//! consistent fence between the two steps on either side, at least one side sees what the other did, so that each
//! batch is taken: by the one, by the other, or by a thread that took the heap over meanwhile.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::layout::block::Batch;
use crate::layout::mailbox::{Batches, Mailbox};
use crate::sync::word::Word;

/// The mailbox and the mark. Zeroed memory is an empty one without an owner.
pub struct Inbox<W: Word = AtomicUsize> {
    mailbox: Mailbox<W>,
    /// 1 while a thread has the heap.
    live: W,
}

impl<W: Word> Inbox<W> {
    /// A thread takes the heap over. It takes what is there already, too, at its next look.
    pub fn open(&self) {
        self.live.store(1, Ordering::Relaxed);
    }

    /// Whether a thread has the heap.
    pub fn is_open(&self) -> bool {
        self.live.load(Ordering::Acquire) != 0
    }

    /// Whether there is anything.
    #[inline]
    pub fn has_some(&self) -> bool {
        self.mailbox.has_some()
    }

    /// The owner's look at what there is.
    #[inline]
    pub fn take(&self) -> Batches {
        self.mailbox.take()
    }

    /// The owner's last look. Its slabs have other owners by now, and whoever sees the mark sees that.
    pub fn close(&self) -> Batches {
        self.live.store(0, Ordering::Release);
        W::fence(Ordering::SeqCst);
        self.mailbox.take()
    }

    /// Delivers a batch. What comes back may have no owner to see it: the caller frees it where it belongs now.
    ///
    /// # Safety
    /// As for [`Mailbox::push`].
    pub unsafe fn deliver(&self, batch: Batch) -> Batches {
        // SAFETY: the caller's promise.
        unsafe { self.mailbox.push(batch) };
        W::fence(Ordering::SeqCst);
        if self.is_open() { Batches::NONE } else { self.mailbox.take() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::mailbox::tests::{Blocks, mailbox};
    use crate::sync::word::model;
    use core::ops::Range;

    /// Owners of the slab that the blocks are of: the heap, then, when its thread has ended, nobody.
    const HEAP: usize = 1;
    const NOBODY: usize = 2;

    struct State {
        inbox: Inbox<model::AtomicUsize>,
        slab_owner: model::AtomicUsize,
        blocks: Blocks,
        /// The registry of heaps without a thread: whether this one is there.
        registry: loom::sync::Mutex<bool>,
        /// Blocks that those who delivered them had to free.
        came_back: AtomicUsize,
    }

    impl State {
        fn new() -> Self {
            State {
                inbox: Inbox { mailbox: mailbox(), live: model::AtomicUsize::new(1) },
                slab_owner: model::AtomicUsize::new(HEAP),
                blocks: Blocks::new(4),
                registry: loom::sync::Mutex::new(false),
                came_back: AtomicUsize::new(0),
            }
        }

        fn deliver(&self, numbers: Range<usize>) {
            // SAFETY: the batch is this thread's.
            for batch in unsafe { self.inbox.deliver(self.blocks.batch(numbers)) } {
                // Else it would go to the heap without a thread again.
                assert_eq!(self.slab_owner.load(Ordering::Relaxed), NOBODY, "the slab still is the ended thread's");
                self.came_back.fetch_add(self.blocks.arrive(batch), Ordering::Relaxed);
            }
        }

        fn end_thread(&self) {
            self.slab_owner.store(NOBODY, Ordering::Relaxed);
            self.blocks.arrive_all(self.inbox.close());
            *self.registry.lock().unwrap() = true;
        }

        fn came_back(&self) -> usize {
            self.blocks.assert_none_lost();
            self.came_back.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn a_batch_delivered_while_the_owner_ends_is_taken_by_the_one_or_the_other() {
        let scenario = model::Scenario {
            state: State::new,
            threads: &[|state| state.deliver(0..1), |state| state.deliver(1..4), State::end_thread],
            // Nobody looks any more.
            interruptions: 2,
            end: State::came_back,
        };
        assert!(scenario.outcomes().into_iter().eq([0, 1, 3, 4]));
    }

    #[test]
    fn a_batch_delivered_while_the_heap_changes_threads_is_not_lost() {
        let scenario = model::Scenario {
            state: State::new,
            threads: &[
                |state| {
                    state.deliver(0..1);
                    state.deliver(1..4);
                },
                State::end_thread,
                |state| {
                    if core::mem::take(&mut *state.registry.lock().unwrap()) {
                        state.inbox.open();
                        state.blocks.arrive_all(state.inbox.take());
                    }
                },
            ],
            interruptions: 3,
            end: |state| {
                let adopted = !*state.registry.lock().unwrap();
                if adopted {
                    // The new thread's next look.
                    state.blocks.arrive_all(state.inbox.take());
                }
                (adopted, state.came_back())
            },
        };
        let outcomes = scenario.outcomes();
        assert!(
            outcomes.into_iter().eq([false, true].into_iter().flat_map(|adopted| [0, 1, 3, 4].map(|n| (adopted, n))))
        );
    }
}
