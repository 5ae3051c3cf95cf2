//! Pools of device memory, whose calls are traced as well: they hear of a trace by a bit of a word that their fast
//! paths read anyway, and leave these while it is set.

use core::sync::atomic::{AtomicU64, Ordering};

use poolscope_wire::trace::TRACED;

/// Pools that can be traced at a time: twice as many as the segment has room for.
const MOST: usize = 64;

/// The words. Behind the session's lock.
pub struct DevicePools([*const AtomicU64; MOST]);

// SAFETY: the words are atomics, and whoever put one in takes it out before it goes.
unsafe impl Send for DevicePools {}

impl DevicePools {
    /// None.
    pub const fn new() -> DevicePools {
        DevicePools([core::ptr::null(); MOST])
    }

    /// Adds a word, with the bit set or not. False if there is no room.
    ///
    /// # Safety
    /// The word stays where it is until it was taken out again.
    pub unsafe fn add(&mut self, word: *const AtomicU64, traced: bool) -> bool {
        let Some(place) = self.0.iter_mut().find(|place| place.is_null()) else { return false };
        *place = word;
        if traced {
            // SAFETY: the caller's.
            unsafe { &*word }.fetch_or(TRACED, Ordering::Relaxed);
        }
        true
    }

    /// Takes a word out.
    pub fn remove(&mut self, word: *const AtomicU64) {
        self.0.iter_mut().filter(|place| **place == word).for_each(|place| *place = core::ptr::null());
    }

    /// Sets the bit in every word, or clears it.
    pub fn set_traced(&self, traced: bool) {
        for word in self.0 {
            // SAFETY: by the promise of who put it in.
            let Some(word) = (unsafe { word.as_ref() }) else { continue };
            if traced {
                word.fetch_or(TRACED, Ordering::Relaxed);
            } else {
                word.fetch_and(!TRACED, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_the_bit_while_a_trace_is_told_and_keeps_the_rest() {
        let words: [AtomicU64; MOST + 1] = core::array::from_fn(|at| AtomicU64::new(at as u64));
        let mut pools = DevicePools::new();
        // SAFETY: the words outlive the list.
        let added = words.each_ref().map(|word| unsafe { pools.add(word, false) });
        assert_eq!(added.iter().filter(|added| **added).count(), MOST);
        let value = |at: usize| words[at].load(Ordering::Relaxed);
        pools.set_traced(true);
        assert_eq!((value(3), value(MOST)), (TRACED | 3, MOST as u64));
        pools.remove(&words[3]);
        pools.set_traced(false);
        assert_eq!((value(3), value(4)), (TRACED | 3, 4));
        // SAFETY: as above.
        assert!(unsafe { pools.add(&words[MOST], true) });
        assert_eq!(value(MOST), TRACED | MOST as u64);
    }
}
