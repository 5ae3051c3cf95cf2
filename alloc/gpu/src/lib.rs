//! The device tiers of poolscope.
//!
//! [`Pool`] gives out device memory in the order of streams. [`Device`] is what it runs on; [`Simulated`] is one that
//! every test has. Layers, each of which knows only those before it:
//!
//! - `delays`: what calls were held up by
//! - `device`: the driver's calls, counted and timed; a real device, one that is not there, pinned memory
//! - `settings`: what a program may change
//! - `streams`: what memory waits for, and how far the streams are
//! - `watch`: counters, pictures, samples and hooks: what others learn of a pool
//! - `large`: best fit with coalescing in one range of addresses, over granules that are mapped where they are needed
//! - `small`: the tiers of small blocks, above it
//! - `pool`: the interface, and what the tiers do together

mod delays;
mod device;
mod large;
mod pool;
mod settings;
mod small;
mod streams;
mod watch;

pub use device::{
    Access, AsyncPool, Call, Cuda, CudaDevice, CudaError, Device, DeviceError, Driver, Event, Fault, GRANULE, Graph,
    Kernel, MemoryInfo, NOTHING, Piece, Pinned, Progress, Properties, Result, Sharing, Simulated, Slab, Stream,
    Violation,
};
#[doc(hidden)]
pub use pool::Missed;
pub use pool::{GraphPool, Holding, OpenError, OutOfMemory, Pool, PoolError, Pools, Step, refresh_sampling_period};
pub use settings::{Change, Config, ConfigError, Range, SETTINGS, Setting};
pub use watch::{NoRecorder, Picture, Recorder, Sample, Stats, Token, hooks};
