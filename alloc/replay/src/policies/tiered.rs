//! The pool itself, as one of the policies.

use crate::playback::{Policy, PolicyError, PolicyResult as Result, PolicyStats};
use poolscope_gpu::{Device, Pool, Stream};

impl<D: Device> Policy for Pool<D> {
    fn name(&self) -> &'static str {
        "tiered"
    }

    #[inline]
    fn allocate(&self, size: u64, stream: Stream) -> Result<u64> {
        Pool::allocate(self, size, stream).map_err(PolicyError::from)
    }

    #[inline]
    fn free(&self, address: u64, stream: Stream) -> Result<()> {
        Pool::free(self, address, stream).map_err(PolicyError::from)
    }

    fn stats(&self) -> PolicyStats {
        let stats = Pool::stats(self);
        PolicyStats {
            reserved: stats.held,
            peak_reserved: stats.peak_held,
            in_use: stats.current_usage,
            driver_calls: stats.driver_calls,
        }
    }

    fn release(&self) -> Result<()> {
        self.release_all();
        Ok(())
    }
}
