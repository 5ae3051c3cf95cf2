//! The values in force: one word for each setting, read without a lock.

use core::sync::atomic::{AtomicU64, Ordering};

use super::{COUNT, Index, SETTINGS};
use crate::kernel::plain;

/// The settings in force: a method for each. Every call reads anew.
#[derive(Clone, Copy, Debug)]
pub struct Current;

static WORDS: [AtomicU64; COUNT] = {
    let mut words = [const { AtomicU64::new(0) }; COUNT];
    let mut at = 0;
    while at < COUNT {
        words[at] = AtomicU64::new(SETTINGS[at].default);
        at += 1;
    }
    words
};

impl Current {
    /// Whether the environment or the program has said what thread caches may hold.
    #[inline]
    pub fn thread_cache_is_said(self) -> bool {
        is_said(Index::thread_cache as usize)
    }
}

/// The word of the setting in the table's row `at`.
#[inline]
pub fn get(at: usize) -> u64 {
    WORDS[at].load(Ordering::Relaxed)
}

/// A bit for each row of which somebody has said what it is to be.
static SAID: AtomicU64 = AtomicU64::new(0);
const _: () = assert!(COUNT <= u64::BITS as usize);

/// Whether somebody has said what the setting in the table's row `at` is to be, be it the default.
#[inline]
pub fn is_said(at: usize) -> bool {
    SAID.load(Ordering::Relaxed) >> at & 1 != 0
}

/// Puts a word in force that the row's range allows.
pub fn put(at: usize, word: u64) {
    WORDS[at].store(word, Ordering::Relaxed);
    SAID.fetch_or(1 << at, Ordering::Relaxed);
    if at == Index::plain as usize {
        plain::be_plain(word != 0);
    }
}
