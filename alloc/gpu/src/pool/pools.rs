//! The pools of a process with several devices: one for each, made when it is first asked for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Pool, PoolError};
use crate::device::{CudaError, Device};
use crate::watch::Stats;

/// Why there is no pool.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OpenError {
    /// There is no device.
    #[error(transparent)]
    Device(#[from] CudaError),
    /// The device has no pool.
    #[error(transparent)]
    Pool(#[from] PoolError),
}

type Open<D> = Box<dyn Fn(u32) -> Result<Pool<D>, OpenError> + Send + Sync>;

/// Pools by their device's number.
pub struct Pools<D: Device> {
    open: Open<D>,
    pools: Mutex<BTreeMap<u32, Arc<Pool<D>>>>,
}

impl<D: Device> Pools<D> {
    /// Pools that a function makes for the devices' numbers. It decides what records them.
    pub fn new(open: impl Fn(u32) -> Result<Pool<D>, OpenError> + Send + Sync + 'static) -> Pools<D> {
        Pools { open: Box::new(open), pools: Mutex::default() }
    }

    /// The pool of a device.
    pub fn get(&self, ordinal: u32) -> Result<Arc<Pool<D>>, OpenError> {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = pools.get(&ordinal) {
            return Ok(pool.clone());
        }
        let pool = Arc::new((self.open)(ordinal)?);
        pools.insert(ordinal, pool.clone());
        Ok(pool)
    }

    /// Lets a device read and write the memory of another one's pool: see [`Pool::enable_peer`].
    pub fn enable_peer(&self, memory_of: u32, for_device: u32) -> Result<(), OpenError> {
        let (pool, peer) = (self.get(memory_of)?, self.get(for_device)?);
        Ok(pool.enable_peer(peer.device())?)
    }

    /// The counters of each pool that there is.
    pub fn stats(&self) -> Vec<(u32, Stats)> {
        let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.iter().map(|(ordinal, pool)| (*ordinal, pool.stats())).collect()
    }
}
