//! Slabs: every size has a class, and every class slabs of its own, so that a free block serves each later request of
//! its class and no other. Classes are four to a doubling, up to 25% apart. Blocks over 1 MiB are slabs of one block,
//! kept by class: so does CUB's caching allocator.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::owners::{Owner, Owners};
use crate::playback::{Policy, PolicyError, PolicyResult as Result, PolicyStats};
use poolscope_gpu::{Call, Device, DeviceError, Driver, Fault, Stream};

const LEAST: u64 = 256;
/// Slabs of smaller classes have several blocks.
const SHARED: u64 = 1 << 20;
const SLAB: u64 = 2 << 20;

/// The policy.
pub struct Slab<D: Device> {
    driver: Driver<D>,
    state: Mutex<State>,
}

struct Piece {
    /// Of each block.
    bytes: u64,
    blocks: u64,
    free: u64,
}

#[derive(Default)]
struct State {
    owners: Owners,
    /// By address.
    slabs: BTreeMap<u64, Piece>,
    /// Free blocks by the bytes of their class and by owner; the one freed last is the next.
    free: HashMap<(u64, Owner), Vec<u64>>,
    blocks: HashMap<u64, u64>,
    stats: PolicyStats,
}

/// The bytes of a size's class.
fn class_of(size: u64) -> u64 {
    let size = size.max(LEAST);
    // A quarter of the power of two below; never less than what blocks are aligned to.
    let step = (1u64 << (63 - (size - 1).leading_zeros()) >> 2).max(LEAST);
    size.next_multiple_of(step)
}

impl<D: Device> Slab<D> {
    /// A policy on a device, with no memory at first.
    pub fn new(device: Arc<D>) -> Slab<D> {
        Slab { driver: Driver::new(device), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
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
        self.stats.in_use += bytes;
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
        let others: Vec<Owner> = self.owners.all().filter(|other| *other != owner && has(other)).collect();
        for other in others {
            if self.owners.hand_over(other, stream, driver)? {
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
        self.stats.reserved += whole;
        self.stats.peak_reserved = self.stats.peak_reserved.max(self.stats.reserved);
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
            self.stats.reserved -= (blocks * bytes).next_multiple_of(SLAB);
        }
        Ok(())
    }
}

impl<D: Device> Policy for Slab<D> {
    fn name(&self) -> &'static str {
        "slab"
    }

    fn allocate(&self, size: u64, stream: Stream) -> Result<u64> {
        let mut state = self.state();
        let owner = state.owners.of(stream, &self.driver)?;
        let out_of_memory = |state: &State, cause| PolicyError::OutOfMemory {
            policy: "slab",
            request: size,
            reserved: state.stats.reserved,
            in_use: state.stats.in_use,
            cause,
        };
        if size > 1 << 50 {
            let cause = DeviceError { call: Call::Allocate, fault: Fault::OutOfMemory };
            return Err(out_of_memory(&state, cause));
        }
        let bytes = class_of(size);
        if let Some(address) = state.pop(bytes, owner).or_else(|| state.pop(bytes, Owner::NOBODY)) {
            return Ok(address);
        }
        if let Some(address) = state.take_over(bytes, owner, stream, &self.driver)? {
            return Ok(address);
        }
        match state.grow(bytes, &self.driver) {
            Err(DeviceError { fault: Fault::OutOfMemory, .. }) => {
                state.release(&self.driver)?;
                state.grow(bytes, &self.driver).map_err(|cause| out_of_memory(&state, cause))?;
            }
            other => other?,
        }
        state.pop(bytes, Owner::NOBODY).ok_or(PolicyError::NotABlock(0))
    }

    fn free(&self, address: u64, stream: Stream) -> Result<()> {
        let mut state = self.state();
        let owner = state.owners.of(stream, &self.driver)?;
        let bytes = state.blocks.remove(&address).ok_or(PolicyError::NotABlock(address))?;
        if let Some(slab) = state.slab_of(address) {
            slab.free += 1;
        }
        state.free.entry((bytes, owner)).or_default().push(address);
        state.stats.in_use -= bytes;
        Ok(())
    }

    fn stats(&self) -> PolicyStats {
        PolicyStats { driver_calls: self.driver.calls(), ..self.state().stats }
    }

    fn release(&self) -> Result<()> {
        self.state().release(&self.driver)
    }
}

impl<D: Device> Drop for Slab<D> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        for slab in std::mem::take(&mut state.slabs).into_keys() {
            // What can't be freed now never can.
            let _ = self.driver.free(slab);
        }
        state.owners.end(&self.driver);
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
