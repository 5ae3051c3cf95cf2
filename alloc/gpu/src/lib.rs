//! The device tiers of poolscope.
//!
//! [`Pool`] gives out device memory in the order of streams. [`Device`] is what it runs on; [`Simulated`] is one that
//! every test has. Layers, each of which knows only those before it:
//!
//! - `device`, `cuda`, `simulated`, `driver`: the driver's calls, a real device, one that is not there, and the count of calls
//! - `pending`, `lanes`: what memory waits for, and how far the streams are
//! - `large`: best fit with coalescing in one range of addresses, over granules that are mapped where they are needed
//! - `small`: the tiers of small blocks, above it
//! - `recorder`, `sampling`, `records`, `picture`: which blocks are sampled, and who is told of them
//! - `pool`: the interface, with the slow paths in `state`
//! - `policies`, `replay`: other ways of placing blocks, and recorded traces on any of them

mod background;
mod config;
mod cuda;
mod device;
mod driver;
mod error;
mod ladder;
mod lanes;
mod large;
mod pending;
mod picture;
mod pinned;
pub mod policies;
mod pool;
mod pools;
mod recorder;
mod records;
mod replay;
mod sampling;
mod simulated;
mod small;
mod state;
mod stats;

pub use config::{Config, ConfigError};
pub use cuda::{Cuda, CudaDevice, CudaError};
pub use device::{
    AsyncPool, Call, Device, DeviceError, Event, Fault, GRANULE, Granule, MemoryInfo, Progress, Properties, Result,
    Stream,
};
pub use error::{Holding, OutOfMemory, PoolError};
pub use ladder::Step;
pub use pinned::Pinned;
pub use pool::{GraphPool, Pool, look_again};
pub use pools::{OpenError, Pools};
pub use recorder::{NoRecorder, Picture, Recorder, Sample, Token};
pub use replay::{LoopCost, Pass, Playback, Replay, ReplayError, Trace, TraceError};
pub use simulated::{Access, Graph, Kernel, Simulated, Violation};
pub use stats::Stats;
