//! The values in force: one word for each setting, read without a lock.

use core::sync::atomic::{AtomicU64, Ordering};

use super::{COUNT, SETTINGS};
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

/// The word of the setting in the table's row `at`.
#[inline]
pub fn get(at: usize) -> u64 {
    WORDS[at].load(Ordering::Relaxed)
}

/// Puts a word in force that the row's range allows.
pub fn put(at: usize, word: u64) {
    WORDS[at].store(word, Ordering::Relaxed);
    if at == super::Index::plain as usize {
        plain::be_plain(word != 0);
    }
}
