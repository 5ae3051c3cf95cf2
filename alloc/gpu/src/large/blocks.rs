//! Which tile a block's address is the start of.
//!
//! A large block is longer than [`WINDOW`], so that no two begin in the same window of that length: a table with a
//! place for each window finds nearly all of them with one load. Medium ones, of which several may begin in a window,
//! have a table with a place for each [`NARROW`] part of it, which they are longer than, too. The others,
//! shorter blocks that did not come from slabs, are in a map where they share such a part.

use super::AddressMap;
use super::tiles::TileId;

const WINDOW_BITS: u32 = 20;
const WINDOW: u64 = 1 << WINDOW_BITS;
const NARROW_BITS: u32 = 16;
const NARROW: u64 = 1 << NARROW_BITS;
/// Narrow windows of a part: those of 4 GiB.
const PART: usize = 65_536;

/// The blocks of a range.
pub struct Blocks {
    base: u64,
    /// 0, or where in the window the block begins, with its tile's number plus one above that. Zeroed memory costs
    /// nothing before it is touched.
    windows: Vec<u64>,
    /// The same by narrow windows, of blocks that others share a window with: in parts, which are made when they are
    /// first needed.
    narrow: Vec<Vec<u64>>,
    others: AddressMap<TileId>,
    count: usize,
}

impl Blocks {
    pub fn new(base: u64, size: u64) -> Blocks {
        let windows = vec![0; size.div_ceil(WINDOW) as usize];
        let narrow = vec![Vec::new(); size.div_ceil(NARROW * PART as u64) as usize];
        Blocks { base, windows, narrow, others: AddressMap::default(), count: 0 }
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

    #[inline]
    fn insert_beside(&mut self, address: u64, tile: TileId) {
        let Some((part, window, start)) = self.narrow_place(address) else {
            return self.insert_elsewhere(address, tile);
        };
        match self.narrow[part].get_mut(window) {
            Some(entry) if *entry == 0 => *entry = (u64::from(tile) + 1) << NARROW_BITS | start,
            _ => self.insert_elsewhere(address, tile),
        }
    }

    #[inline(never)]
    fn insert_elsewhere(&mut self, address: u64, tile: TileId) {
        if let Some((part, ..)) = self.narrow_place(address)
            && self.narrow[part].is_empty()
        {
            self.narrow[part] = vec![0; PART];
            return self.insert_beside(address, tile);
        }
        self.others.insert(address, tile);
    }

    /// A narrow window: its part, where it is in that, and where in it the address is.
    #[inline]
    fn narrow_place(&self, address: u64) -> Option<(usize, usize, u64)> {
        let offset = address.checked_sub(self.base)?;
        let window = (offset >> NARROW_BITS) as usize;
        (window / PART < self.narrow.len()).then_some((window / PART, window % PART, offset % NARROW))
    }

    #[inline]
    fn in_narrow_window(&self, address: u64) -> Option<TileId> {
        let (part, window, start) = self.narrow_place(address)?;
        let entry = *self.narrow[part].get(window)?;
        (entry != 0 && entry % NARROW == start).then(|| ((entry >> NARROW_BITS) - 1) as TileId)
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
        let found = found.or_else(|| self.in_narrow_window(address));
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

    #[inline]
    fn remove_beside(&mut self, address: u64) -> Option<TileId> {
        let Some((part, window, start)) = self.narrow_place(address) else { return self.remove_elsewhere(address) };
        match self.narrow[part].get_mut(window) {
            Some(entry) if *entry != 0 && *entry % NARROW == start => {
                let tile = ((std::mem::take(entry) >> NARROW_BITS) - 1) as TileId;
                self.count -= 1;
                Some(tile)
            }
            _ => self.remove_elsewhere(address),
        }
    }

    #[inline(never)]
    fn remove_elsewhere(&mut self, address: u64) -> Option<TileId> {
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
                let (address, tile) = (base + at * WINDOW / 48, u32::from(tile));
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
