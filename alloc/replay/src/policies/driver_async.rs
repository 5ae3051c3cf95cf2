//! The driver's own pool, as `cudaMallocAsync` uses it, told to keep what it has (as PyTorch's and RMM's backends on it
//! do).
//!
//! It is one for the whole process and device: figures are right only as long as nobody else uses it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::playback::{Policy, PolicyError, PolicyResult as Result, PolicyStats};
use poolscope_gpu::{Device, DeviceError, Driver, Fault, Stream};

/// The policy.
pub struct DriverAsync<D: Device> {
    driver: Driver<D>,
    /// The most that was held before the driver began to count anew.
    peak: AtomicU64,
}

impl<D: Device> DriverAsync<D> {
    /// The pool of a device, emptied as far as nobody uses it.
    pub fn new(device: Arc<D>) -> Result<DriverAsync<D>> {
        let driver = Driver::new(device);
        driver.trim_async(0)?;
        driver.keep_async(u64::MAX)?;
        Ok(DriverAsync { driver, peak: AtomicU64::new(0) })
    }
}

impl<D: Device> Policy for DriverAsync<D> {
    fn name(&self) -> &'static str {
        "async"
    }

    #[inline]
    fn allocate(&self, size: u64, stream: Stream) -> Result<u64> {
        self.driver.allocate_async(size.max(1), stream).map_err(|cause| self.failed(size, cause))
    }

    #[inline]
    fn free(&self, address: u64, stream: Stream) -> Result<()> {
        self.driver.free_async(address, stream).map_err(PolicyError::from)
    }

    fn stats(&self) -> PolicyStats {
        // The question is none of the program's calls.
        let pool = self.driver.device().async_pool().unwrap_or_default();
        PolicyStats {
            reserved: pool.reserved,
            peak_reserved: pool.peak_reserved.max(self.peak.load(Ordering::Relaxed)),
            in_use: pool.used,
            driver_calls: self.driver.calls(),
        }
    }

    fn release(&self) -> Result<()> {
        self.peak.fetch_max(self.stats().peak_reserved, Ordering::Relaxed);
        Ok(self.driver.trim_async(0)?)
    }
}

impl<D: Device> DriverAsync<D> {
    #[cold]
    fn failed(&self, request: u64, cause: DeviceError) -> PolicyError {
        if cause.fault != Fault::OutOfMemory {
            return PolicyError::Device(cause);
        }
        let PolicyStats { reserved, in_use, .. } = self.stats();
        PolicyError::OutOfMemory { policy: "async", request, reserved, in_use, cause }
    }
}

impl<D: Device> Drop for DriverAsync<D> {
    fn drop(&mut self) {
        // As it was found: it keeps nothing.
        let _ = self.driver.keep_async(0).and_then(|()| self.driver.trim_async(0));
    }
}
