//! A table of mappings that have no other record, without a lock.
//!
//! An entry is claimed by its address word: 0 when it is free, [`CLAIMED`] while the mapping is made. An entry is freed
//! before its mapping is: the kernel may give the same addresses to another thread at once, and no address may stand in
//! the table twice.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::sync::word::Word;

/// An entry whose mapping is being made.
const CLAIMED: usize = 1;

struct Mapping<W> {
    address: W,
    len: W,
}

/// The table.
pub struct Mappings<const N: usize, W: Word = AtomicUsize> {
    entries: [Mapping<W>; N],
    /// 1 once there was an entry: before that, nobody needs to look.
    used: W,
}

impl<const N: usize> Mappings<N> {
    /// An empty table.
    pub const fn new() -> Self {
        Mappings {
            entries: [const { Mapping { address: AtomicUsize::new(0), len: AtomicUsize::new(0) } }; N],
            used: AtomicUsize::new(0),
        }
    }
}

impl<const N: usize, W: Word> Mappings<N, W> {
    /// Enters the mapping of `len` bytes that `map` makes, and returns its address; null if the table is full or `map`
    /// returns null.
    pub fn insert(&self, len: usize, map: impl FnOnce() -> *mut u8) -> *mut u8 {
        // Acquire: the length that the entry had before was read.
        let claim = |entry: &&Mapping<W>| {
            entry.address.compare_exchange(0, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let Some(entry) = self.entries.iter().find(claim) else { return core::ptr::null_mut() };
        let p = map();
        self.used.store(1, Ordering::Relaxed);
        entry.len.store(len, Ordering::Relaxed);
        entry.address.store(p as usize, Ordering::Release);
        p
    }

    /// Bytes of the mapping at `p`, if it is in the table.
    pub fn len(&self, p: *mut u8) -> Option<usize> {
        Some(self.find(p)?.len.load(Ordering::Relaxed))
    }

    /// Takes the mapping at `p` out of the table, if it is there: its bytes. It is the caller's to unmap.
    pub fn remove(&self, p: *mut u8) -> Option<usize> {
        let entry = self.find(p)?;
        let len = entry.len.load(Ordering::Relaxed);
        // Release: the length has been read when another thread claims the entry. The exchange fails if the program
        // frees the mapping twice at the same time.
        let removed = entry.address.compare_exchange(p as usize, 0, Ordering::Release, Ordering::Relaxed);
        removed.is_ok().then_some(len)
    }

    fn find(&self, p: *mut u8) -> Option<&Mapping<W>> {
        if self.used.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.entries.iter().find(|entry| entry.address.load(Ordering::Acquire) == p as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::word::model;

    /// A kernel that always maps at the lowest free place, so that what was unmapped comes back at once.
    struct State {
        mappings: Mappings<2, model::AtomicUsize>,
        kernel: loom::sync::Mutex<[Option<usize>; 2]>,
        /// Handed from one thread to another.
        shared: model::AtomicUsize,
        /// Mappings that were freed.
        freed: AtomicUsize,
    }

    impl State {
        fn new() -> Self {
            let entry = || Mapping { address: model::AtomicUsize::new(0), len: model::AtomicUsize::new(0) };
            State {
                mappings: Mappings { entries: [entry(), entry()], used: model::AtomicUsize::new(0) },
                kernel: loom::sync::Mutex::new([None; 2]),
                shared: model::AtomicUsize::new(0),
                freed: AtomicUsize::new(0),
            }
        }

        fn map(&self, len: usize) -> *mut u8 {
            let p = self.mappings.insert(len, || {
                let mut places = self.kernel.lock().unwrap();
                let free = places.iter().position(Option::is_none).unwrap();
                places[free] = Some(len);
                ((free + 1) * 4096) as *mut u8
            });
            assert!(!p.is_null(), "there is an entry for each mapping");
            p
        }

        fn free(&self, p: *mut u8) -> bool {
            let Some(len) = self.mappings.remove(p) else { return false };
            let mapped = self.kernel.lock().unwrap()[p as usize / 4096 - 1].take();
            assert_eq!(mapped, Some(len), "the length is that of another mapping");
            self.freed.fetch_add(1, Ordering::Relaxed);
            true
        }

        fn map_and_free(&self, len: usize) {
            let p = self.map(len);
            assert_eq!(self.mappings.len(p), Some(len));
            assert!(self.free(p), "the mapping is in the table");
        }

        fn free_shared(&self) {
            self.free(self.shared.load(Ordering::Relaxed) as *mut u8);
        }

        fn freed(&self) -> usize {
            assert_eq!(*self.kernel.lock().unwrap(), [None; 2]);
            self.freed.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn an_address_that_the_kernel_gives_again_at_once_has_one_entry() {
        let scenario = model::Scenario {
            state: State::new,
            threads: &[
                |state| {
                    state.map_and_free(1);
                    state.map_and_free(2);
                },
                |state| state.map_and_free(3),
            ],
            interruptions: 2,
            end: State::freed,
        };
        assert!(scenario.outcomes().into_iter().eq([3]));
    }

    #[test]
    fn a_mapping_can_be_freed_by_another_thread_than_made_it() {
        let scenario = model::Scenario {
            state: State::new,
            threads: &[
                |state| state.shared.store(state.map(1) as usize, Ordering::Release),
                |state| {
                    let p = state.shared.load(Ordering::Acquire);
                    if p != 0 {
                        assert!(state.free(p as *mut u8), "the mapping is in the table");
                    }
                },
                |state| state.map_and_free(2),
            ],
            interruptions: 2,
            end: |state| {
                let freed = state.freed.load(Ordering::Relaxed);
                if freed == 1 {
                    assert!(state.free(state.shared.load(Ordering::Relaxed) as *mut u8));
                }
                state.freed();
                freed
            },
        };
        assert!(scenario.outcomes().into_iter().eq([1, 2]));
    }

    #[test]
    fn of_two_threads_that_free_a_mapping_at_once_one_is_refused() {
        let scenario = model::Scenario {
            state: || {
                let state = State::new();
                state.shared.store(state.map(1) as usize, Ordering::Relaxed);
                state
            },
            threads: &[State::free_shared, State::free_shared],
            interruptions: 2,
            end: State::freed,
        };
        assert!(scenario.outcomes().into_iter().eq([1]));
    }

    #[test]
    fn a_full_table_takes_no_more() {
        let table = Mappings::<1>::new();
        let address = 4096 as *mut u8;
        assert_eq!(table.len(address), None);
        assert_eq!(table.insert(4, || address), address);
        assert!(table.insert(4, || 8192 as *mut u8).is_null());
        assert_eq!(table.remove(address), Some(4));
        // A mapping that can't be made leaves its entry free.
        assert!(table.insert(4, core::ptr::null_mut).is_null());
        assert_eq!(table.insert(8, || address), address);
        assert_eq!(table.len(address), Some(8));
    }
}
