//! Pages of the page heap that are nearly empty, and who holds them: what a program could give back if its last blocks
//! on them lay elsewhere.
//!
//! Where blocks lie is in a recording only as of the last time that it was written down:
//! blocks that came later have no place.

use std::collections::BTreeMap;

use crate::model::memory::Place;
use crate::recording::replay::figures::{Figures, grown};
use crate::recording::replay::{InUse, Replay, place_of};

/// A page is nearly empty if no more than this part of it is in use.
pub const NEARLY_EMPTY: f64 = 0.25;

/// How pages of the page heap were used at the end.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Pages with blocks on them.
    pub pages: u64,
    /// Of those, nearly empty ones.
    pub sparse: u64,
    /// Pages by how much of them is in use, in tenths.
    pub tenths: [u64; 10],
    /// Bytes of nearly empty pages that nobody uses.
    pub held_free: u64,
    /// Blocks whose place is not known, because they were allocated after places were last written down.
    pub unplaced: u64,
}

/// Who holds pages that are nearly empty, by where blocks lay when that was last written down.
pub(crate) fn pages(replay: &Replay, page_bytes: u64, stacks: &mut Vec<Figures>) -> Pages {
    let mut pages = Pages { page_bytes, ..Pages::default() };
    if page_bytes == 0 {
        return pages;
    }
    // Blocks of a page or more fill their pages.
    let small = |number: u32| replay.state.block(number).filter(|block| block.size < page_bytes);
    let mut used: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let mut placed = 0;
    for &(address, number) in &replay.addresses {
        let Some(block) = small(number) else { continue };
        placed += 1;
        let page = used.entry(address / page_bytes).or_default();
        // A block takes at least sixteen bytes.
        page.0 += block.size.max(16).next_multiple_of(16);
        page.1 += 1;
    }
    let on_host = |stack: u32| place_of(&replay.paths, stack) == Place::Host;
    let is_small = |block: &InUse| block.size < page_bytes && on_host(block.stack);
    let all = replay.state.in_use().filter(|(_, block)| is_small(block)).count() as u64;
    pages.unplaced = all.saturating_sub(placed);
    pages.pages = used.len() as u64;
    let is_sparse = |bytes: u64| bytes as f64 <= page_bytes as f64 * NEARLY_EMPTY;
    for &(bytes, _) in used.values() {
        pages.tenths[((bytes * 10 / page_bytes) as usize).min(9)] += 1;
        if is_sparse(bytes) {
            pages.sparse += 1;
            pages.held_free += page_bytes - bytes;
        }
    }
    for &(address, number) in &replay.addresses {
        let (Some(block), Some(&(bytes, blocks))) = (small(number), used.get(&(address / page_bytes))) else {
            continue;
        };
        if is_sparse(bytes) {
            let figures = grown(stacks, block.stack as usize);
            figures.sparse.add(block.size);
            figures.held_free += (page_bytes - bytes) / blocks.max(1);
        }
    }
    pages
}
