//! Pools of device memory, whose calls are told as well: they hear of a trace by a bit of a word that their fast paths
//! read anyway, and leave these while it is set.

use core::sync::atomic::{AtomicU64, Ordering};

use poolscope_wire::trace::TOLD;

/// Pools that can be told at a time: twice as many as the segment has room for.
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
    pub unsafe fn add(&mut self, word: *const AtomicU64, told: bool) -> bool {
        let Some(place) = self.0.iter_mut().find(|place| place.is_null()) else { return false };
        *place = word;
        if told {
            // SAFETY: the caller's.
            unsafe { &*word }.fetch_or(TOLD, Ordering::Relaxed);
        }
        true
    }

    /// Takes a word out.
    pub fn remove(&mut self, word: *const AtomicU64) {
        self.0.iter_mut().filter(|place| **place == word).for_each(|place| *place = core::ptr::null());
    }

    /// Sets the bit in every word, or clears it.
    pub fn tell(&self, told: bool) {
        for word in self.0 {
            // SAFETY: by the promise of who put it in.
            let Some(word) = (unsafe { word.as_ref() }) else { continue };
            if told {
                word.fetch_or(TOLD, Ordering::Relaxed);
            } else {
                word.fetch_and(!TOLD, Ordering::Relaxed);
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
        pools.tell(true);
        assert_eq!((value(3), value(MOST)), (TOLD | 3, MOST as u64));
        pools.remove(&words[3]);
        pools.tell(false);
        assert_eq!((value(3), value(4)), (TOLD | 3, 4));
        // SAFETY: as above.
        assert!(unsafe { pools.add(&words[MOST], true) });
        assert_eq!(value(MOST), TOLD | MOST as u64);
    }
}
