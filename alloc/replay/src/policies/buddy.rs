//! The buddy system: blocks are powers of two; one that is too large is halved, and two halves that are both free are
//! one again. It finds a block and a buddy by its address alone, and wastes up to half of each block.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::locked::{Books, Placement, TOO_LARGE};
use super::owners::Owner;
use crate::playback::{PolicyError, PolicyResult as Result};
use poolscope_gpu::{Device, DeviceError, Driver, Fault, Stream};

/// The smallest block: 256 bytes.
const LEAST: u32 = 8;
/// The least that is taken from the device at a time: 32 MiB.
const REGION: u32 = 25;
/// More than any device has.
const MOST: u32 = 50;

/// The placement.
#[derive(Default)]
pub struct Buddies {
    books: Books,
    /// By address; each with its order.
    regions: BTreeMap<u64, u32>,
    blocks: HashMap<u64, u32>,
    /// Free blocks by address.
    free: HashMap<u64, (u32, Owner)>,
    /// The same in order: the lowest of the smallest that fit is taken.
    lists: BTreeMap<Owner, BTreeSet<(u32, u64)>>,
}

impl Buddies {
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
        self.books.stats.in_use += 1 << order;
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
        let others: Vec<Owner> = self.books.owners.all().filter(|other| *other != owner).collect();
        let best = others.iter().filter_map(|other| Some((self.fit(*other, order)?, *other))).min();
        if let Some((fit, other)) = best
            && self.books.owners.hand_over(other, stream, driver)?
        {
            return Ok(Some(fit));
        }
        for other in others {
            if self.lists.get(&other).is_none_or(BTreeSet::is_empty)
                || !self.books.owners.hand_over(other, stream, driver)?
            {
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
        self.books.grow(1 << order);
        self.list(address, order, Owner::NOBODY);
        Ok((order, address))
    }
}

impl Placement for Buddies {
    const NAME: &'static str = "buddy";

    fn books(&mut self) -> &mut Books {
        &mut self.books
    }

    fn allocate<D: Device>(&mut self, size: u64, owner: Owner, stream: Stream, driver: &Driver<D>) -> Result<u64> {
        let order = (u64::BITS - size.max(1).saturating_sub(1).leading_zeros()).max(LEAST);
        if order > MOST {
            return Err(TOO_LARGE.into());
        }
        let own = self.fit(owner, order).into_iter().chain(self.fit(Owner::NOBODY, order)).min();
        if let Some(fit) = own {
            return Ok(self.take(fit, order));
        }
        if let Some(fit) = self.fit_of_others(owner, stream, order, driver)? {
            return Ok(self.take(fit, order));
        }
        let fit = self.grow_or_release(driver, |state| state.grow(order, driver))?;
        Ok(self.take(fit, order))
    }

    fn free<D: Device>(&mut self, address: u64, owner: Owner, _: Stream, _: &Driver<D>) -> Result<()> {
        let order = self.blocks.remove(&address).ok_or(PolicyError::NotABlock(address))?;
        self.books.stats.in_use -= 1 << order;
        self.settle(address, order, owner);
        Ok(())
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
            self.books.stats.reserved -= 1 << order;
        }
        Ok(())
    }

    fn end<D: Device>(&mut self, driver: &Driver<D>) {
        for region in std::mem::take(&mut self.regions).into_keys() {
            // What can't be freed now never can.
            let _ = driver.free(region);
        }
    }
}
