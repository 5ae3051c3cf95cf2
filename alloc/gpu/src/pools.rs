//! The pools of a process with several devices: one for each, made when it is first asked for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::config::Config;
use crate::cuda::{Cuda, CudaError};
use crate::device::Device;
use crate::error::PoolError;
use crate::pool::Pool;
use crate::stats::Stats;

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

type Open<D> = Box<dyn Fn(u32) -> Result<Arc<D>, OpenError> + Send + Sync>;

/// Pools by their device's number.
pub struct Pools<D: Device> {
    open: Open<D>,
    config: Config,
    pools: Mutex<BTreeMap<u32, Arc<Pool<D>>>>,
}

impl Pools<Cuda> {
    /// Pools of the CUDA devices, with these settings.
    pub fn cuda(config: Config) -> Pools<Cuda> {
        Pools::new(config, |ordinal| Ok(Arc::new(Cuda::open(ordinal)?)))
    }
}

impl<D: Device> Pools<D> {
    /// Pools of the devices that a function opens.
    pub fn new(config: Config, open: impl Fn(u32) -> Result<Arc<D>, OpenError> + Send + Sync + 'static) -> Pools<D> {
        Pools { open: Box::new(open), config, pools: Mutex::default() }
    }

    /// The pool of a device.
    pub fn get(&self, ordinal: u32) -> Result<Arc<Pool<D>>, OpenError> {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = pools.get(&ordinal) {
            return Ok(pool.clone());
        }
        let pool = Arc::new(Pool::new((self.open)(ordinal)?, self.config.clone())?);
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
