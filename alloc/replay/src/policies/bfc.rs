//! Best fit with coalescing, as TensorFlow does it: regions that double in size, pieces that are split where too much
//! would be wasted, and neighbours that are joined when they are free.
//! Regions go back to the device only when memory is short.

use super::chunks::{Chunks, Place};
use super::locked::{Books, Placement, TOO_LARGE};
use super::owners::Owner;
use crate::playback::{PolicyError, PolicyResult as Result};
use poolscope_gpu::{Device, DeviceError, Driver, Fault, Stream};

const ALIGNMENT: u64 = 256;
/// A piece keeps no more than this for a block that is smaller.
const MOST_WASTE: u64 = 128 << 20;
const FIRST_REGION: u64 = 2 << 20;

/// The placement.
pub struct BestFit {
    books: Books,
    chunks: Chunks,
    regions: Vec<u64>,
    next_region: u64,
}

impl Default for BestFit {
    fn default() -> BestFit {
        BestFit { books: Books::default(), chunks: Chunks::default(), regions: Vec::new(), next_region: FIRST_REGION }
    }
}

impl BestFit {
    /// The best fit of the stream's own memory or nobody's.
    fn fit(&self, owner: Owner, bytes: u64) -> Option<(u64, Place)> {
        let (own, free) = (self.chunks.fit(owner, bytes), self.chunks.fit(Owner::NOBODY, bytes));
        own.into_iter().chain(free).min()
    }

    fn take(&mut self, (have, place): (u64, Place), bytes: u64) -> u64 {
        let split = have >= 2 * bytes || have - bytes >= MOST_WASTE;
        let (address, taken) = self.chunks.take(place, split.then_some(bytes));
        self.books.stats.in_use += taken;
        address
    }

    /// A fit in what another stream freed, behind an event.
    fn fit_of_others<D: Device>(
        &mut self,
        owner: Owner,
        stream: Stream,
        bytes: u64,
        driver: &Driver<D>,
    ) -> Result<Option<(u64, Place)>> {
        let others = || self.books.owners.all().filter(|other| *other != owner);
        let best = others().filter_map(|other| Some((self.chunks.fit(other, bytes)?, other))).min();
        if let Some((fit, other)) = best
            && self.books.owners.hand_over(other, stream, driver)?
        {
            return Ok(Some(fit));
        }
        // Together they may have what none of them has.
        let others: Vec<Owner> = self.books.owners.all().filter(|other| *other != owner).collect();
        for other in others {
            if self.chunks.has_free(other) && self.books.owners.hand_over(other, stream, driver)? {
                self.chunks.give(other, owner);
            }
        }
        Ok(self.fit(owner, bytes))
    }

    fn grow<D: Device>(&mut self, bytes: u64, driver: &Driver<D>) -> std::result::Result<(), DeviceError> {
        let doubled = bytes > self.next_region;
        while bytes > self.next_region {
            self.next_region = self.next_region.saturating_mul(2);
        }
        let mut region = self.next_region;
        let address = loop {
            match driver.allocate(region) {
                Ok(address) => break address,
                // It asks for a tenth less until it is down to the request itself.
                Err(DeviceError { fault: Fault::OutOfMemory, .. }) if region > bytes => {
                    region = (region / 10 * 9 / ALIGNMENT * ALIGNMENT).max(bytes);
                }
                Err(error) => return Err(error),
            }
        };
        if !doubled {
            self.next_region = self.next_region.saturating_mul(2);
        }
        self.chunks.add_region(address, region, Owner::NOBODY);
        self.regions.push(address);
        self.books.grow(region);
        Ok(())
    }
}

impl Placement for BestFit {
    const NAME: &'static str = "bfc";

    fn books(&mut self) -> &mut Books {
        &mut self.books
    }

    fn allocate<D: Device>(&mut self, size: u64, owner: Owner, stream: Stream, driver: &Driver<D>) -> Result<u64> {
        let bytes =
            size.max(1).checked_next_multiple_of(ALIGNMENT).filter(|bytes| *bytes < 1 << 62).ok_or(TOO_LARGE)?;
        if let Some(fit) = self.fit(owner, bytes) {
            return Ok(self.take(fit, bytes));
        }
        if let Some(fit) = self.fit_of_others(owner, stream, bytes, driver)? {
            return Ok(self.take(fit, bytes));
        }
        self.grow_or_release(driver, |state| state.grow(bytes, driver))?;
        let fit = self.fit(owner, bytes).ok_or(TOO_LARGE)?;
        Ok(self.take(fit, bytes))
    }

    fn free<D: Device>(&mut self, address: u64, owner: Owner, _: Stream, _: &Driver<D>) -> Result<()> {
        let bytes = self.chunks.free(address, owner).ok_or(PolicyError::NotABlock(address))?;
        self.books.stats.in_use -= bytes;
        Ok(())
    }

    /// Frees the regions that are free as a whole. The driver waits for the work on them.
    fn release<D: Device>(&mut self, driver: &Driver<D>) -> Result<()> {
        let mut result = Ok(());
        for (address, bytes, owner) in self.chunks.take_free_regions() {
            if result.is_ok() {
                result = driver.free(address).map_err(PolicyError::from);
            }
            if result.is_ok() {
                self.regions.retain(|region| *region != address);
                self.books.stats.reserved -= bytes;
            } else {
                self.chunks.add_region(address, bytes, owner);
            }
        }
        result
    }

    fn end<D: Device>(&mut self, driver: &Driver<D>) {
        for region in self.regions.drain(..) {
            // What can't be freed now never can.
            let _ = driver.free(region);
        }
    }
}
