//! Best fit with coalescing, as TensorFlow does it: regions that double in size, pieces that are split where too much
//! would be wasted, and neighbours that are joined when they are free.
//! Regions go back to the device only when memory is short.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::chunks::{Chunks, Place};
use super::owners::{Owner, Owners};
use crate::playback::{Policy, PolicyError, PolicyResult as Result, PolicyStats};
use poolscope_gpu::{Call, Device, DeviceError, Driver, Fault, Stream};

const ALIGNMENT: u64 = 256;
/// A piece keeps no more than this for a block that is smaller.
const MOST_WASTE: u64 = 128 << 20;
const FIRST_REGION: u64 = 2 << 20;

/// The policy.
pub struct Bfc<D: Device> {
    driver: Driver<D>,
    state: Mutex<State>,
}

struct State {
    owners: Owners,
    chunks: Chunks,
    regions: Vec<u64>,
    next_region: u64,
    stats: PolicyStats,
}

impl<D: Device> Bfc<D> {
    /// A policy on a device, with no memory at first.
    pub fn new(device: Arc<D>) -> Bfc<D> {
        let state = State {
            owners: Owners::default(),
            chunks: Chunks::default(),
            regions: Vec::new(),
            next_region: FIRST_REGION,
            stats: PolicyStats::default(),
        };
        Bfc { driver: Driver::new(device), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The best fit of the stream's own memory or nobody's.
    fn fit(&self, owner: Owner, bytes: u64) -> Option<(u64, Place)> {
        let (own, free) = (self.chunks.fit(owner, bytes), self.chunks.fit(Owner::NOBODY, bytes));
        own.into_iter().chain(free).min()
    }

    fn take(&mut self, (have, place): (u64, Place), bytes: u64) -> u64 {
        let split = have >= 2 * bytes || have - bytes >= MOST_WASTE;
        let (address, taken) = self.chunks.take(place, split.then_some(bytes));
        self.stats.in_use += taken;
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
        let others = || self.owners.all().filter(|other| *other != owner);
        let best = others().filter_map(|other| Some((self.chunks.fit(other, bytes)?, other))).min();
        if let Some((fit, other)) = best
            && self.owners.hand_over(other, stream, driver)?
        {
            return Ok(Some(fit));
        }
        // Together they may have what none of them has.
        let others: Vec<Owner> = self.owners.all().filter(|other| *other != owner).collect();
        for other in others {
            if self.chunks.has_free(other) && self.owners.hand_over(other, stream, driver)? {
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
        self.stats.reserved += region;
        self.stats.peak_reserved = self.stats.peak_reserved.max(self.stats.reserved);
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
                self.stats.reserved -= bytes;
            } else {
                self.chunks.add_region(address, bytes, owner);
            }
        }
        result
    }
}

impl<D: Device> Policy for Bfc<D> {
    fn name(&self) -> &'static str {
        "bfc"
    }

    fn allocate(&self, size: u64, stream: Stream) -> Result<u64> {
        let mut state = self.state();
        let owner = state.owners.of(stream, &self.driver)?;
        let out_of_memory = |state: &State, cause| PolicyError::OutOfMemory {
            policy: "bfc",
            request: size,
            reserved: state.stats.reserved,
            in_use: state.stats.in_use,
            cause,
        };
        let too_large = DeviceError { call: Call::Allocate, fault: Fault::OutOfMemory };
        let bytes = size.max(1).checked_next_multiple_of(ALIGNMENT);
        let bytes = bytes.filter(|bytes| *bytes < 1 << 62).ok_or_else(|| out_of_memory(&state, too_large))?;
        if let Some(fit) = state.fit(owner, bytes) {
            return Ok(state.take(fit, bytes));
        }
        if let Some(fit) = state.fit_of_others(owner, stream, bytes, &self.driver)? {
            return Ok(state.take(fit, bytes));
        }
        match state.grow(bytes, &self.driver) {
            Ok(()) => {}
            Err(DeviceError { fault: Fault::OutOfMemory, .. }) => {
                state.release(&self.driver)?;
                state.grow(bytes, &self.driver).map_err(|cause| out_of_memory(&state, cause))?;
            }
            Err(error) => return Err(error.into()),
        }
        let fit = state.fit(owner, bytes).ok_or_else(|| out_of_memory(&state, too_large))?;
        Ok(state.take(fit, bytes))
    }

    fn free(&self, address: u64, stream: Stream) -> Result<()> {
        let mut state = self.state();
        let owner = state.owners.of(stream, &self.driver)?;
        let bytes = state.chunks.free(address, owner).ok_or(PolicyError::NotABlock(address))?;
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

impl<D: Device> Drop for Bfc<D> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        for region in state.regions.drain(..) {
            // What can't be freed now never can.
            let _ = self.driver.free(region);
        }
        state.owners.end(&self.driver);
    }
}
