//! Placement policies side by side: where a block is put, and what is held for it.
//!
//! [`Pool`] is one of them, `tiered`; the others are the textbook's and the peers' ways of doing it, built to be
//! compared on one's own trace. All of them give out memory in the order of streams and may be shared between threads.
//! What the others lack: graphs (they make calls that end a capture), [`Pool::record_stream`], caches of threads,
//! settings. A stream must live as long as a policy that it was used with.

mod arena;
mod bfc;
mod buddy;
mod chunks;
mod driver_async;
mod locked;
mod owners;
mod slab;
mod tiered;

use std::sync::Arc;

use crate::playback::{Policy, PolicyError, PolicyResult as Result};
use poolscope_gpu::{Config, Device, Pool};

use arena::FirstFit;
use bfc::BestFit;
use buddy::Buddies;
use driver_async::DriverAsync;
use locked::Locked;
use slab::Slabs;

/// The names of all policies, the default first.
pub const NAMES: [&str; 6] = ["tiered", "bfc", "buddy", "slab", "arena", "async"];

/// What a policy does, in a line.
pub fn describe(name: &str) -> Option<&'static str> {
    Some(match name {
        "tiered" => {
            "poolscope's pool: size classes with thread caches; best fit over granules mapped where they are needed"
        }
        "bfc" => "TensorFlow's: best fit with coalescing in regions that double",
        "buddy" => "powers of two, split and joined in pairs",
        "slab" => "size classes, each in slabs of its own; large blocks kept by class, as in CUB",
        "arena" => "RMM's: first fit by address; small blocks in superblocks of their stream",
        "async" => "the driver's own pool, cudaMallocAsync",
        _ => return None,
    })
}

/// A policy by its name; settings are the tiered one's. `None` if there is none of that name.
pub fn build<D: Device>(name: &str, device: Arc<D>, config: &Config) -> Option<Result<Box<dyn Policy>>> {
    fn boxed<P: Policy + 'static>(policy: Result<P>) -> Result<Box<dyn Policy>> {
        policy.map(|policy| Box::new(policy) as Box<dyn Policy>)
    }
    Some(match name {
        "tiered" => boxed(Pool::new(device, config.clone()).map_err(PolicyError::from)),
        "bfc" => boxed(Ok(Locked::<D, BestFit>::new(device))),
        "buddy" => boxed(Ok(Locked::<D, Buddies>::new(device))),
        "slab" => boxed(Ok(Locked::<D, Slabs>::new(device))),
        "arena" => boxed(FirstFit::policy(device)),
        "async" => boxed(DriverAsync::new(device)),
        _ => return None,
    })
}
