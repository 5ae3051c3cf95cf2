//! Slabs: every size has a class, and every class slabs of its own, so that a free block serves each later request of
//! its class and no other. Classes are four to a doubling, up to 25% apart. Blocks over 1 MiB are slabs of one block,
//! kept by class: so does CUB's caching allocator.

use std::collections::{BTreeMap, HashMap};

use super::locked::{Books, Placement, TOO_LARGE};
use super::owners::Owner;
use crate::playback::{PolicyError, PolicyResult as Result};
use poolscope_gpu::{Device, DeviceError, Driver, Stream};

const LEAST: u64 = 256;
/// Slabs of smaller classes have several blocks.
const SHARED: u64 = 1 << 20;
const SLAB: u64 = 2 << 20;

struct Piece {
    /// Of each block.
    bytes: u64,
    blocks: u64,
    free: u64,
}

/// The placement.
#[derive(Default)]
pub struct Slabs {
    books: Books,
    /// By address.
    slabs: BTreeMap<u64, Piece>,
    /// Free blocks by the bytes of their class and by owner; the one freed last is the next.
    free: HashMap<(u64, Owner), Vec<u64>>,
    blocks: HashMap<u64, u64>,
}

/// The bytes of a size's class.
fn class_of(size: u64) -> u64 {
    let size = size.max(LEAST);
    // A quarter of the power of two below; never less than what blocks are aligned to.
    let step = (1u64 << (63 - (size - 1).leading_zeros()) >> 2).max(LEAST);
    size.next_multiple_of(step)
}

impl Slabs {
    /// The slab that an address lies in.
    fn slab_of(&mut self, address: u64) -> Option<&mut Piece> {
        self.slabs.range_mut(..=address).next_back().map(|(_, slab)| slab)
    }

    fn pop(&mut self, bytes: u64, owner: Owner) -> Option<u64> {
        let address = self.free.get_mut(&(bytes, owner))?.pop()?;
        if let Some(slab) = self.slab_of(address) {
            slab.free -= 1;
        }
        self.blocks.insert(address, bytes);
        self.books.stats.in_use += bytes;
        Some(address)
    }

    /// A block that another stream freed, behind an event; with it all that this stream freed of the class.
    fn take_over<D: Device>(
        &mut self,
        bytes: u64,
        owner: Owner,
        stream: Stream,
        driver: &Driver<D>,
    ) -> Result<Option<u64>> {
        let has = |other: &Owner| self.free.get(&(bytes, *other)).is_some_and(|list| !list.is_empty());
        let others: Vec<Owner> = self.books.owners.all().filter(|other| *other != owner && has(other)).collect();
        for other in others {
            if self.books.owners.hand_over(other, stream, driver)? {
                let list = self.free.remove(&(bytes, other)).unwrap_or_default();
                self.free.entry((bytes, owner)).or_default().extend(list);
                return Ok(self.pop(bytes, owner));
            }
        }
        Ok(None)
    }

    fn grow<D: Device>(&mut self, bytes: u64, driver: &Driver<D>) -> std::result::Result<(), DeviceError> {
        let blocks = if bytes <= SHARED { SLAB / bytes } else { 1 };
        let whole = (blocks * bytes).next_multiple_of(SLAB);
        let address = driver.allocate(whole)?;
        self.slabs.insert(address, Piece { bytes, blocks, free: blocks });
        let list = self.free.entry((bytes, Owner::NOBODY)).or_default();
        list.extend((0..blocks).rev().map(|at| address + at * bytes));
        self.books.grow(whole);
        Ok(())
    }
}

impl Placement for Slabs {
    const NAME: &'static str = "slab";

    fn books(&mut self) -> &mut Books {
        &mut self.books
    }

    fn allocate<D: Device>(&mut self, size: u64, owner: Owner, stream: Stream, driver: &Driver<D>) -> Result<u64> {
        if size > 1 << 50 {
            return Err(TOO_LARGE.into());
        }
        let bytes = class_of(size);
        if let Some(address) = self.pop(bytes, owner).or_else(|| self.pop(bytes, Owner::NOBODY)) {
            return Ok(address);
        }
        if let Some(address) = self.take_over(bytes, owner, stream, driver)? {
            return Ok(address);
        }
        self.grow_or_release(driver, |state| state.grow(bytes, driver))?;
        Ok(self.pop(bytes, Owner::NOBODY).ok_or(TOO_LARGE)?)
    }

    fn free<D: Device>(&mut self, address: u64, owner: Owner, _: Stream, _: &Driver<D>) -> Result<()> {
        let bytes = self.blocks.remove(&address).ok_or(PolicyError::NotABlock(address))?;
        if let Some(slab) = self.slab_of(address) {
            slab.free += 1;
        }
        self.free.entry((bytes, owner)).or_default().push(address);
        self.books.stats.in_use -= bytes;
        Ok(())
    }

    /// Frees the slabs that are free as a whole. The driver waits for the work on them.
    fn release<D: Device>(&mut self, driver: &Driver<D>) -> Result<()> {
        let whole: Vec<u64> =
            self.slabs.iter().filter(|(_, slab)| slab.free == slab.blocks).map(|(address, _)| *address).collect();
        for address in whole {
            driver.free(address)?;
            let Some(Piece { bytes, blocks, .. }) = self.slabs.remove(&address) else { continue };
            let end = address + bytes * blocks;
            for (_, list) in self.free.iter_mut().filter(|((class, _), _)| *class == bytes) {
                list.retain(|block| !(address..end).contains(block));
            }
            self.books.stats.reserved -= (blocks * bytes).next_multiple_of(SLAB);
        }
        Ok(())
    }

    fn end<D: Device>(&mut self, driver: &Driver<D>) {
        for slab in std::mem::take(&mut self.slabs).into_keys() {
            // What can't be freed now never can.
            let _ = driver.free(slab);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::class_of;

    #[test]
    fn classes_waste_a_quarter_at_most_and_are_their_own_class() {
        for size in (1..20_000).chain([1 << 20, (1 << 20) + 1, 3 << 30]) {
            let class = class_of(size);
            assert!(class >= size && class.is_multiple_of(256) && class_of(class) == class, "{size}: {class}");
            assert!(size <= 1024 || class - size <= size / 4, "{size}: {class}");
        }
    }
}
