//! What the textbook's policies share: one lock, the streams that they have met, what they count, and what happens when
//! the device has no more memory. A [`Placement`] says where a block is put.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use poolscope_gpu::{Call, Device, DeviceError, Driver, Fault, Stream};

use super::owners::{Owner, Owners};
use crate::playback::{Policy, PolicyError, PolicyResult as Result, PolicyStats};

/// What is noted in the same way under every policy.
#[derive(Default)]
pub struct Books {
    pub owners: Owners,
    pub stats: PolicyStats,
}

impl Books {
    /// So many bytes more are the policy's.
    pub fn grow(&mut self, bytes: u64) {
        self.stats.reserved += bytes;
        self.stats.peak_reserved = self.stats.peak_reserved.max(self.stats.reserved);
    }
}

/// What no device has room for.
pub const TOO_LARGE: DeviceError = DeviceError { call: Call::Allocate, fault: Fault::OutOfMemory };

/// A way to place blocks, one call at a time.
pub trait Placement: Send {
    /// As on the command line.
    const NAME: &'static str;

    /// What it shares with the others.
    fn books(&mut self) -> &mut Books;

    /// A block for a stream, which is this owner.
    fn allocate<D: Device>(&mut self, size: u64, owner: Owner, stream: Stream, driver: &Driver<D>) -> Result<u64>;

    /// Frees one on a stream, which is this owner.
    fn free<D: Device>(&mut self, address: u64, owner: Owner, stream: Stream, driver: &Driver<D>) -> Result<()>;

    /// Gives what is free as a whole back to the device.
    fn release<D: Device>(&mut self, driver: &Driver<D>) -> Result<()>;

    /// Gives all back. What the driver refuses now can never be given back.
    fn end<D: Device>(&mut self, driver: &Driver<D>);

    /// Grows, and once more after a release where the device has no memory left.
    fn grow_or_release<D: Device, T>(
        &mut self,
        driver: &Driver<D>,
        grow: impl Fn(&mut Self) -> std::result::Result<T, DeviceError>,
    ) -> Result<T> {
        match grow(self) {
            Err(DeviceError { fault: Fault::OutOfMemory, .. }) => {
                self.release(driver)?;
                Ok(grow(self)?)
            }
            other => Ok(other?),
        }
    }
}

/// A placement as a policy.
pub struct Locked<D: Device, P: Placement> {
    driver: Driver<D>,
    placement: Mutex<P>,
}

impl<D: Device, P: Placement> Locked<D, P> {
    /// With no memory at first.
    pub fn new(device: Arc<D>) -> Locked<D, P>
    where
        P: Default,
    {
        Locked::on(Driver::new(device), P::default())
    }

    /// With the memory that the placement has of this driver.
    pub fn on(driver: Driver<D>, placement: P) -> Locked<D, P> {
        Locked { driver, placement: Mutex::new(placement) }
    }

    fn placement(&self) -> MutexGuard<'_, P> {
        self.placement.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Device, P: Placement> Policy for Locked<D, P> {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn allocate(&self, size: u64, stream: Stream) -> Result<u64> {
        let mut placement = self.placement();
        let owner = placement.books().owners.of(stream, &self.driver)?;
        placement.allocate(size, owner, stream, &self.driver).map_err(|error| match error {
            PolicyError::Device(cause) if cause.fault == Fault::OutOfMemory => {
                let PolicyStats { reserved, in_use, .. } = placement.books().stats;
                PolicyError::OutOfMemory { policy: P::NAME, request: size, reserved, in_use, cause }
            }
            error => error,
        })
    }

    fn free(&self, address: u64, stream: Stream) -> Result<()> {
        let mut placement = self.placement();
        let owner = placement.books().owners.of(stream, &self.driver)?;
        placement.free(address, owner, stream, &self.driver)
    }

    fn stats(&self) -> PolicyStats {
        PolicyStats { driver_calls: self.driver.calls(), ..self.placement().books().stats }
    }

    fn release(&self) -> Result<()> {
        self.placement().release(&self.driver)
    }
}

impl<D: Device, P: Placement> Drop for Locked<D, P> {
    fn drop(&mut self) {
        let placement = self.placement.get_mut().unwrap_or_else(PoisonError::into_inner);
        placement.end(&self.driver);
        placement.books().owners.end(&self.driver);
    }
}
