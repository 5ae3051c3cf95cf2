//! The buddy system: blocks are powers of two; one that is too large is halved, and two halves that are both free are
//! one again. It finds a block and a buddy by its address alone, and wastes up to half of each block.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::owners::{Owner, Owners};
use crate::playback::{Policy, PolicyError, PolicyResult as Result, PolicyStats};
use poolscope_gpu::{Call, Device, DeviceError, Driver, Fault, Stream};

/// The smallest block: 256 bytes.
const LEAST: u32 = 8;
/// The least that is taken from the device at a time: 32 MiB.
const REGION: u32 = 25;
/// More than any device has.
const MOST: u32 = 50;

/// The policy.
pub struct Buddy<D: Device> {
    driver: Driver<D>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    owners: Owners,
    /// By address; each with its order.
    regions: BTreeMap<u64, u32>,
    blocks: HashMap<u64, u32>,
    /// Free blocks by address.
    free: HashMap<u64, (u32, Owner)>,
    /// The same in order: the lowest of the smallest that fit is taken.
    lists: BTreeMap<Owner, BTreeSet<(u32, u64)>>,
    stats: PolicyStats,
}

impl<D: Device> Buddy<D> {
    /// A policy on a device, with no memory at first.
    pub fn new(device: Arc<D>) -> Buddy<D> {
        Buddy { driver: Driver::new(device), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn fit(&self, owner: Owner, order: u32) -> Option<(u32, u64)> {
        self.lists.get(&owner)?.range((order, 0)..).next().copied()
    }

    fn list(&mut self, address: u64, order: u32, owner: Owner) {
        self.free.insert(address, (order, owner));
        self.lists.entry(owner).or_default().insert((order, address));
    }

    fn unlist(&mut self, address: u64) -> Option<(u32, Owner)> {
        let (order, owner) = self.free.remove(&address)?;
        if let Some(list) = self.lists.get_mut(&owner) {
            list.remove(&(order, address));
        }
        Some((order, owner))
    }

    /// Halves a free block until it is a block of this order. What is left over stays its owner's.
    fn take(&mut self, (_, address): (u32, u64), order: u32) -> u64 {
        if let Some((have, owner)) = self.unlist(address) {
            for half in order..have {
                self.list(address + (1 << half), half, owner);
            }
        }
        self.blocks.insert(address, order);
        self.stats.in_use += 1 << order;
        address
    }

    /// Lists a free block, joined with its buddies of the same owner or of nobody.
    fn settle(&mut self, mut address: u64, mut order: u32, owner: Owner) {
        let region = self.regions.range(..=address).next_back().map(|(start, order)| (*start, *order));
        let Some((start, whole)) = region else { return };
        while order < whole {
            let buddy = start + ((address - start) ^ (1 << order));
            let joins = self
                .free
                .get(&buddy)
                .is_some_and(|(other, of)| *other == order && (*of == owner || *of == Owner::NOBODY));
            if !joins {
                break;
            }
            self.unlist(buddy);
            address = address.min(buddy);
            order += 1;
        }
        self.list(address, order, owner);
    }

    fn fit_of_others<D: Device>(
        &mut self,
        owner: Owner,
        stream: Stream,
        order: u32,
        driver: &Driver<D>,
    ) -> Result<Option<(u32, u64)>> {
        let others: Vec<Owner> = self.owners.all().filter(|other| *other != owner).collect();
        let best = others.iter().filter_map(|other| Some((self.fit(*other, order)?, *other))).min();
        if let Some((fit, other)) = best
            && self.owners.hand_over(other, stream, driver)?
        {
            return Ok(Some(fit));
        }
        for other in others {
            if self.lists.get(&other).is_none_or(BTreeSet::is_empty) || !self.owners.hand_over(other, stream, driver)? {
                continue;
            }
            for (order, address) in self.lists.remove(&other).unwrap_or_default() {
                self.free.remove(&address);
                self.settle(address, order, owner);
            }
        }
        Ok(self.fit(owner, order))
    }

    fn grow<D: Device>(&mut self, order: u32, driver: &Driver<D>) -> std::result::Result<(u32, u64), DeviceError> {
        // A smaller region where there is no room for the usual one.
        let usual = order.max(REGION);
        let (address, order) = match driver.allocate(1 << usual) {
            Err(DeviceError { fault: Fault::OutOfMemory, .. }) if order < usual => {
                (driver.allocate(1 << order)?, order)
            }
            other => (other?, usual),
        };
        self.regions.insert(address, order);
        self.stats.reserved += 1 << order;
        self.stats.peak_reserved = self.stats.peak_reserved.max(self.stats.reserved);
        self.list(address, order, Owner::NOBODY);
        Ok((order, address))
    }

    /// Frees the regions that are free as a whole. The driver waits for the work on them.
    fn release<D: Device>(&mut self, driver: &Driver<D>) -> Result<()> {
        let whole = |(address, order): (&u64, &u32)| {
            self.free.get(address).is_some_and(|(free, _)| free == order).then_some((*address, *order))
        };
        let whole: Vec<_> = self.regions.iter().filter_map(whole).collect();
        for (address, order) in whole {
            driver.free(address)?;
            self.unlist(address);
            self.regions.remove(&address);
            self.stats.reserved -= 1 << order;
        }
        Ok(())
    }
}

impl<D: Device> Policy for Buddy<D> {
    fn name(&self) -> &'static str {
        "buddy"
    }

    fn allocate(&self, size: u64, stream: Stream) -> Result<u64> {
        let mut state = self.state();
        let owner = state.owners.of(stream, &self.driver)?;
        let out_of_memory = |state: &State, cause| PolicyError::OutOfMemory {
            policy: "buddy",
            request: size,
            reserved: state.stats.reserved,
            in_use: state.stats.in_use,
            cause,
        };
        let order = (u64::BITS - size.max(1).saturating_sub(1).leading_zeros()).max(LEAST);
        if order > MOST {
            let cause = DeviceError { call: Call::Allocate, fault: Fault::OutOfMemory };
            return Err(out_of_memory(&state, cause));
        }
        let own = state.fit(owner, order).into_iter().chain(state.fit(Owner::NOBODY, order)).min();
        if let Some(fit) = own {
            return Ok(state.take(fit, order));
        }
        if let Some(fit) = state.fit_of_others(owner, stream, order, &self.driver)? {
            return Ok(state.take(fit, order));
        }
        let fit = match state.grow(order, &self.driver) {
            Err(DeviceError { fault: Fault::OutOfMemory, .. }) => {
                state.release(&self.driver)?;
                state.grow(order, &self.driver).map_err(|cause| out_of_memory(&state, cause))?
            }
            other => other?,
        };
        Ok(state.take(fit, order))
    }

    fn free(&self, address: u64, stream: Stream) -> Result<()> {
        let mut state = self.state();
        let owner = state.owners.of(stream, &self.driver)?;
        let order = state.blocks.remove(&address).ok_or(PolicyError::NotABlock(address))?;
        state.stats.in_use -= 1 << order;
        state.settle(address, order, owner);
        Ok(())
    }

    fn stats(&self) -> PolicyStats {
        PolicyStats { driver_calls: self.driver.calls(), ..self.state().stats }
    }

    fn release(&self) -> Result<()> {
        self.state().release(&self.driver)
    }
}

impl<D: Device> Drop for Buddy<D> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        for region in std::mem::take(&mut state.regions).into_keys() {
            // What can't be freed now never can.
            let _ = self.driver.free(region);
        }
        state.owners.end(&self.driver);
    }
}
