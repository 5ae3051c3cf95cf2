//! Which thread waits for which lock, for a signal handler that forks.
//!
//! The handler's thread may have locks, since it was interrupted. A thread that waits for one of them waits until the
//! handler returns, and keeps for as long what it has itself: the fork can't have that, and need not wait for it. So
//! whoever waits for long notes here for what. Nothing is noted where nobody waits.

use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// So many threads can be noted. One that finds no place is one of which nothing is known.
const PLACES: usize = 64;
/// Who waits for whom is followed over so many threads; there are fewer levels of locks.
const CHAIN: usize = 12;

struct Place {
    /// The thread; 0 if the place is free.
    thread: AtomicUsize,
    /// The lock's word, once it is known.
    word: AtomicPtr<AtomicUsize>,
}

static WAITS: [Place; PLACES] =
    [const { Place { thread: AtomicUsize::new(0), word: AtomicPtr::new(core::ptr::null_mut()) } }; PLACES];

/// What says that a thread waits; nothing does any more when this is dropped.
pub struct Noted(Option<&'static Place>);

/// Says that `thread` waits for the lock of which `word` says who has it.
///
/// # Safety
/// The word is read by others until the note is dropped, and for a moment after: it is never unmapped.
pub unsafe fn note(thread: usize, word: &AtomicUsize) -> Noted {
    let take =
        |place: &&'static Place| place.thread.compare_exchange(0, thread, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    let place = WAITS.iter().find(take);
    if let Some(place) = place {
        place.word.store((&raw const *word).cast_mut(), Ordering::Release);
    }
    Noted(place)
}

impl Drop for Noted {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            place.word.store(core::ptr::null_mut(), Ordering::Relaxed);
            place.thread.store(0, Ordering::Release);
        }
    }
}

/// Whether `thread` can't go on before `own` does, which is the calling thread: it waits for a lock that the calling
/// thread has, or for one of a thread of which this is so. `holder` reads from a lock's word who has it.
///
/// It stays so for as long as the calling thread keeps its locks. That also makes the answer sure: who is noted here
/// for a lock of the calling thread's can't have left the note meanwhile.
pub fn is_stuck(mut thread: usize, own: usize, holder: impl Fn(usize) -> usize) -> bool {
    for _ in 0..CHAIN {
        let Some(word) = word_of(thread) else { return false };
        // SAFETY: words of locks are never unmapped, as `note` asks for.
        match holder(unsafe { (*word).load(Ordering::Acquire) }) {
            0 => return false,
            who if who == own => return true,
            who => thread = who,
        }
    }
    false
}

/// The word that the thread waits for.
fn word_of(thread: usize) -> Option<*mut AtomicUsize> {
    WAITS.iter().find_map(|place| {
        if place.thread.load(Ordering::Acquire) != thread {
            return None;
        }
        let word = place.word.load(Ordering::Acquire);
        // Another thread may have taken the place in between.
        (!word.is_null() && place.thread.load(Ordering::Acquire) == thread).then_some(word)
    })
}

/// In a forked child: the threads that waited are not there, but for `own`.
pub fn forget_others(own: usize) {
    for place in &WAITS {
        let thread = place.thread.load(Ordering::Relaxed);
        if thread != 0 && thread != own {
            place.word.store(core::ptr::null_mut(), Ordering::Relaxed);
            place.thread.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_stuck_behind_whoever_it_waits_for_at_last() {
        static FIRST: AtomicUsize = AtomicUsize::new(0x10);
        static SECOND: AtomicUsize = AtomicUsize::new(0x20);
        // SAFETY: statics.
        let notes = unsafe { [note(0x20, &FIRST), note(0x30, &SECOND)] };
        let stuck = |thread, own| is_stuck(thread, own, |word| word);
        assert!(stuck(0x20, 0x10), "it waits for what 0x10 has");
        assert!(stuck(0x30, 0x10), "it waits for one that waits for 0x10");
        assert!(stuck(0x30, 0x20));
        assert!(!stuck(0x20, 0x30), "what 0x10 has comes when 0x10 is done");
        assert!(!stuck(0x40, 0x10), "it waits for nobody");
        FIRST.store(0, Ordering::Relaxed);
        assert!(!stuck(0x30, 0x10), "0x20 can have the lock now");
        drop(notes);
        FIRST.store(0x10, Ordering::Relaxed);
        assert!(!stuck(0x20, 0x10));
    }
}
