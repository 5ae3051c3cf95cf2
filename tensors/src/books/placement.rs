//! Where tensors lie in a slab: best fit, with free neighbours joined.

use std::collections::BTreeMap;

/// Tensors begin at multiples of so many bytes, which suits every kernel's loads.
pub const ALIGNMENT: u64 = 512;

/// The free ranges of a slab.
#[derive(Debug, PartialEq, Eq)]
pub struct Placement {
    bytes: u64,
    /// Lengths by offset.
    free: BTreeMap<u64, u64>,
}

/// What so many bytes take.
fn taken(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(ALIGNMENT)
}

impl Placement {
    /// A slab with nothing in it.
    pub fn new(bytes: u64) -> Placement {
        Placement { bytes, free: BTreeMap::from([(0, bytes)]) }
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.free.get(&0) == Some(&self.bytes)
    }

    /// Free bytes.
    pub fn free(&self) -> u64 {
        self.free.values().sum()
    }

    /// The tightest free range for so many bytes: what would be left of it, and where it starts.
    pub fn find(&self, bytes: u64) -> Option<(u64, u64)> {
        let need = taken(bytes);
        self.free.iter().filter_map(|(at, length)| Some((length.checked_sub(need)?, *at))).min()
    }

    /// Takes a range, all of which is free.
    pub fn take(&mut self, offset: u64, bytes: u64) {
        let end = (offset + taken(bytes)).min(self.bytes);
        let Some((&at, &length)) = self.free.range(..=offset).next_back() else { return };
        if at + length < end {
            return;
        }
        self.free.remove(&at);
        if at < offset {
            self.free.insert(at, offset - at);
        }
        if end < at + length {
            self.free.insert(end, at + length - end);
        }
    }

    /// Gives a range back.
    pub fn give_back(&mut self, offset: u64, bytes: u64) {
        let (mut from, mut to) = (offset, (offset + taken(bytes)).min(self.bytes));
        if let Some((&at, &length)) = self.free.range(..from).next_back()
            && at + length == from
        {
            self.free.remove(&at);
            from = at;
        }
        if let Some(length) = self.free.remove(&to) {
            to += length;
        }
        self.free.insert(from, to - from);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_byte_is_in_two_tensors_and_none_is_lost(steps in proptest::collection::vec((any::<bool>(), 0u64..9000), 1..200)) {
            let mut placement = Placement::new(1 << 16);
            let mut live: Vec<(u64, u64)> = Vec::new();
            for (is_new, number) in steps {
                if is_new {
                    if let Some((_, offset)) = placement.find(number) {
                        let end = offset + taken(number);
                        prop_assert!(end <= 1 << 16 && offset.is_multiple_of(ALIGNMENT));
                        for (at, bytes) in &live {
                            prop_assert!(end <= *at || at + taken(*bytes) <= offset);
                        }
                        placement.take(offset, number);
                        live.push((offset, number));
                    }
                } else if !live.is_empty() {
                    let (offset, bytes) = live.swap_remove(number as usize % live.len());
                    placement.give_back(offset, bytes);
                }
                let used: u64 = live.iter().map(|(_, bytes)| taken(*bytes)).sum();
                prop_assert_eq!(placement.free() + used, 1 << 16);
            }
            for (offset, bytes) in live {
                placement.give_back(offset, bytes);
            }
            prop_assert!(placement.is_empty());
        }
    }
}
