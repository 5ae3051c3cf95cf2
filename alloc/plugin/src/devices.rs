//! The pools of the process: one for each device, made when it is first asked for, and there until the process ends.
//!
//! Their blocks are recorded in the process's segment: that of a preloaded `libpoolscope.so`, or one that this library makes.

use std::env;
use std::sync::{Arc, OnceLock};

use poolscope_alloc::gpu;
use poolscope_gpu::{Config, Cuda, Device, GraphPool, Pool, PoolError, Simulated, Stats, Stream};

use crate::graphs::Graphs;
use crate::refusal::Refusal;

/// Devices that a process may use.
const DEVICES: usize = 64;

/// Names the device: `cuda`, which is the default, or `sim` for one that is not there, with as many bytes of memory as
/// follow a colon.
const VARIABLE: &str = "POOLSCOPE_GPU_DEVICE";

/// Bytes of a simulated device's memory, if nothing else is asked for.
const SIMULATED_BYTES: u64 = 16 << 30;

/// A pool on whatever device.
///
/// What each method does, the method of [`Pool`] with its name says.
pub trait DevicePool: Send + Sync {
    fn allocate(&self, size: u64, stream: Stream) -> Result<u64, PoolError>;
    fn free(&self, address: u64, stream: Stream) -> Result<(), PoolError>;
    fn record_stream(&self, address: u64, stream: Stream) -> Result<(), PoolError>;
    fn stream_ends(&self, stream: Stream) -> Result<(), PoolError>;
    fn size_of(&self, address: u64) -> Option<u64>;
    fn is_capturing(&self, stream: Stream) -> Result<bool, PoolError>;
    fn begin_capture(&self, stream: Stream) -> Result<GraphPool, PoolError>;
    fn end_capture(&self, stream: Stream) -> Result<(), PoolError>;
    fn end_graph(&self, graph: GraphPool, stream: Stream) -> Result<(), PoolError>;
    fn synchronize(&self) -> Result<(), PoolError>;
    fn preallocate(&self, size: u64, count: usize, stream: Stream) -> Result<(), PoolError>;
    fn defragment(&self);
    fn trim_cache(&self) -> u64;
    fn release_all(&self) -> u64;
    fn config(&self) -> Config;
    fn set_config(&self, config: Config) -> Result<(), PoolError>;
    fn stats(&self) -> Stats;
    fn reset_stats(&self);
    fn memory(&self) -> u64;
}

impl<D: Device> DevicePool for Pool<D> {
    fn allocate(&self, size: u64, stream: Stream) -> Result<u64, PoolError> {
        Pool::allocate(self, size, stream)
    }

    fn free(&self, address: u64, stream: Stream) -> Result<(), PoolError> {
        Pool::free(self, address, stream)
    }

    fn record_stream(&self, address: u64, stream: Stream) -> Result<(), PoolError> {
        Pool::record_stream(self, address, stream)
    }

    fn stream_ends(&self, stream: Stream) -> Result<(), PoolError> {
        Pool::stream_ends(self, stream)
    }

    fn size_of(&self, address: u64) -> Option<u64> {
        Pool::size_of(self, address)
    }

    fn is_capturing(&self, stream: Stream) -> Result<bool, PoolError> {
        Ok(self.device().capturing(stream)?)
    }

    fn begin_capture(&self, stream: Stream) -> Result<GraphPool, PoolError> {
        Pool::begin_capture(self, stream)
    }

    fn end_capture(&self, stream: Stream) -> Result<(), PoolError> {
        Pool::end_capture(self, stream)
    }

    fn end_graph(&self, graph: GraphPool, stream: Stream) -> Result<(), PoolError> {
        Pool::end_graph(self, graph, stream)
    }

    fn synchronize(&self) -> Result<(), PoolError> {
        Pool::synchronize(self)
    }

    fn preallocate(&self, size: u64, count: usize, stream: Stream) -> Result<(), PoolError> {
        Pool::preallocate(self, size, count, stream)
    }

    fn defragment(&self) {
        Pool::defragment(self);
    }

    fn trim_cache(&self) -> u64 {
        Pool::trim_cache(self)
    }

    fn release_all(&self) -> u64 {
        Pool::release_all(self)
    }

    fn config(&self) -> Config {
        Pool::config(self)
    }

    fn set_config(&self, config: Config) -> Result<(), PoolError> {
        Pool::set_config(self, config)
    }

    fn stats(&self) -> Stats {
        Pool::stats(self)
    }

    fn reset_stats(&self) {
        Pool::reset_stats(self);
    }

    fn memory(&self) -> u64 {
        self.device().properties().memory
    }
}

/// A device of the process.
pub struct Opened {
    pub pool: Box<dyn DevicePool>,
    pub graphs: Graphs,
}

static OPENED: [OnceLock<Result<Opened, Refusal>>; DEVICES] = [const { OnceLock::new() }; DEVICES];

/// The device with this number, from 0.
#[inline]
pub fn device(ordinal: i32) -> Result<&'static Opened, Refusal> {
    let place = usize::try_from(ordinal).ok().and_then(|ordinal| OPENED.get(ordinal));
    let Some(place) = place else {
        return Err(Refusal::new(format!("no device {ordinal}: devices have numbers from 0 to {}", DEVICES - 1)));
    };
    match place.get_or_init(|| open(ordinal as u32)) {
        Ok(opened) => Ok(opened),
        Err(refusal) => Err(refusal.clone()),
    }
}

/// The devices that were used so far.
pub fn opened() -> impl Iterator<Item = &'static Opened> {
    OPENED.iter().filter_map(|place| place.get()?.as_ref().ok())
}

/// How many devices there are.
pub fn count() -> Result<usize, Refusal> {
    match simulated_bytes()? {
        Some(_) => Ok(1),
        None => Ok(Cuda::devices().map_err(Refusal::new)?.len()),
    }
}

fn open(ordinal: u32) -> Result<Opened, Refusal> {
    let pool: Box<dyn DevicePool> = match simulated_bytes()? {
        Some(_) if ordinal > 0 => return Err(Refusal::new(format!("no device {ordinal}: one device is simulated"))),
        Some(bytes) => Box::new(pool(Simulated::new(bytes), ordinal)?),
        None => Box::new(pool(Cuda::open(ordinal).map_err(Refusal::new)?, ordinal)?),
    };
    Ok(Opened { pool, graphs: Graphs::default() })
}

fn pool<D: Device>(device: D, ordinal: u32) -> Result<Pool<D>, Refusal> {
    gpu::pool(Arc::new(device), ordinal, Config::default()).map_err(Refusal::new)
}

/// The memory of the simulated device, if it is one that is asked for.
fn simulated_bytes() -> Result<Option<u64>, Refusal> {
    let Some(value) = env::var_os(VARIABLE) else { return Ok(None) };
    let value = value.to_string_lossy();
    match value.split_once(':') {
        None if value == "cuda" || value.is_empty() => Ok(None),
        None if value == "sim" => Ok(Some(SIMULATED_BYTES)),
        Some(("sim", bytes)) if bytes.parse::<u64>().is_ok_and(|bytes| bytes >= 4 << 20) => Ok(bytes.parse().ok()),
        _ => Err(Refusal::new(format!(
            "{VARIABLE}={value}: it takes cuda, sim, or sim:BYTES with at least 4194304 bytes of memory"
        ))),
    }
}
