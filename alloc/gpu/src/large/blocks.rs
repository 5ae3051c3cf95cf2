//! Which tile a block's address is the start of.
//!
//! A large block is longer than [`WINDOW`], so that no two begin in the same window of that length: a table with a
//! place for each window finds nearly all of them with one load. The others,
//! small blocks that did not come from slabs, are in a map.

use super::AddressMap;
use super::tiles::TileId;

const WINDOW_BITS: u32 = 20;
const WINDOW: u64 = 1 << WINDOW_BITS;

/// The blocks of a range.
pub struct Blocks {
    base: u64,
    /// 0, or where in the window the block begins, with its tile's number plus one above that. Zeroed memory costs
    /// nothing before it is touched.
    windows: Vec<u64>,
    others: AddressMap<TileId>,
    count: usize,
}

impl Blocks {
    pub fn new(base: u64, size: u64) -> Blocks {
        let windows = vec![0; size.div_ceil(WINDOW) as usize];
        Blocks { base, windows, others: AddressMap::default(), count: 0 }
    }

    #[inline]
    fn place(&self, address: u64) -> Option<(usize, u64)> {
        let offset = address.checked_sub(self.base)?;
        let window = (offset >> WINDOW_BITS) as usize;
        (window < self.windows.len()).then_some((window, offset % WINDOW))
    }

    /// Notes a block, whose address is in the range.
    #[inline]
    pub fn insert(&mut self, address: u64, tile: TileId) {
        self.count += 1;
        match self.place(address) {
            Some((window, start)) if self.windows[window] == 0 => {
                self.windows[window] = (u64::from(tile) + 1) << WINDOW_BITS | start;
            }
            _ => self.insert_beside(address, tile),
        }
    }

    #[inline(never)]
    fn insert_beside(&mut self, address: u64, tile: TileId) {
        self.others.insert(address, tile);
    }

    #[inline]
    fn in_window(&self, address: u64) -> Option<(usize, TileId)> {
        let (window, start) = self.place(address)?;
        let entry = self.windows[window];
        let found = entry != 0 && entry % WINDOW == start;
        found.then(|| (window, ((entry >> WINDOW_BITS) - 1) as TileId))
    }

    pub fn get(&self, address: u64) -> Option<TileId> {
        let found = self.in_window(address).map(|(_, tile)| tile);
        found.or_else(|| self.others.get(&address).copied())
    }

    /// The block that begins last up to an address, as far as windows tell, if it is in one of these,
    /// counted down from the address's.
    pub fn last_before(&self, address: u64, windows: std::ops::Range<usize>) -> Option<TileId> {
        let (last, start) = self.place(address)?;
        let within = |window: &usize| {
            let entry = self.windows[*window];
            entry != 0 && (*window < last || entry % WINDOW <= start)
        };
        let window = windows.map_while(|back| last.checked_sub(back)).find(within)?;
        Some(((self.windows[window] >> WINDOW_BITS) - 1) as TileId)
    }

    #[inline]
    pub fn remove(&mut self, address: u64) -> Option<TileId> {
        let Some((window, tile)) = self.in_window(address) else { return self.remove_beside(address) };
        self.windows[window] = 0;
        self.count -= 1;
        Some(tile)
    }

    #[inline(never)]
    fn remove_beside(&mut self, address: u64) -> Option<TileId> {
        let tile = self.others.remove(&address)?;
        self.count -= 1;
        Some(tile)
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::{Blocks, WINDOW};

    proptest! {
        #[test]
        fn it_finds_what_a_map_finds(steps in prop::collection::vec((0..64u64, any::<u16>(), any::<bool>()), 1..300)) {
            let base = 7 * WINDOW + 512;
            let mut blocks = Blocks::new(base, 4 * WINDOW);
            let mut model = HashMap::new();
            for (at, tile, insert) in steps {
                let (address, tile) = (base + at * WINDOW / 16, u32::from(tile));
                if insert && !model.contains_key(&address) {
                    blocks.insert(address, tile);
                    model.insert(address, tile);
                } else {
                    prop_assert_eq!(blocks.remove(address), model.remove(&address));
                }
                prop_assert_eq!(blocks.get(address), model.get(&address).copied());
                if let Some(last) = blocks.last_before(address, 0..4) {
                    prop_assert!(model.iter().any(|(known, tile)| *known <= address && *tile == last));
                }
                prop_assert_eq!(blocks.is_empty(), model.is_empty());
            }
            for address in [0, base - 256, base + 4 * WINDOW, u64::MAX] {
                prop_assert_eq!(blocks.get(address), None);
            }
        }
    }
}
