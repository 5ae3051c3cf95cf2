//! Device memory from poolscope's device tiers, among the records of the host's: with the feature `gpu`.
//!
//! A [`pool`] made here samples its blocks with their stacks into the process's segment, and shows its counters and a
//! map of its memory there, so that `poolscope top`, `dump`,
//! `flamegraph` and the leak checker know device memory as they know the host's.
//!
//! ```
//! use std::sync::Arc;
//!
//! use poolscope_alloc::gpu::{self, Config, Simulated, Stream};
//!
//! # fn main() -> Result<(), gpu::PoolError> {
//! let device = Arc::new(Simulated::new(1 << 30));
//! let pool = gpu::pool(device, 0, Config::default())?;
//! let block = pool.allocate(4 << 20, Stream::LEGACY)?;
//! pool.free(block, Stream::LEGACY)?;
//! # Ok(())
//! # }
//! ```
//!
//! In a process that `libpoolscope.so` is preloaded into, the records are in that library's segment: a process has one.

mod buffers;
mod holders;

use std::ffi::{c_char, c_void};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

pub use buffers::buffer;
use poolscope_cpu::device::{
    Block, Holder, Sampled, State, StateParts, TABLE, TABLE_VERSION, Table, TracedBlock, UNRECORDED, kind,
};
pub use poolscope_gpu::*;
use poolscope_wire::holders::Settlement;

/// A pool on a device, with the number that the device is shown by. Its blocks are recorded, and so are those of
/// [`Pool::pinned_memory`]. The environment has the last word on the settings ([`Config::with_environment`]).
pub fn pool<D: Device>(device: Arc<D>, number: u32, config: Config) -> std::result::Result<Pool<D>, PoolError> {
    let recorder = SegmentRecorder::new(number, kind::DEVICE, &device.properties().name);
    Pool::with_recorder(device, config.with_environment(), Arc::new(recorder))
}

/// A pool of host memory that is pinned for a device, with the number that the device is shown by.
/// Its blocks are recorded.
pub fn pinned_pool<D: Device>(
    device: Arc<D>,
    number: u32,
    config: Config,
) -> std::result::Result<Pool<Pinned>, PoolError> {
    let device = Arc::new(Pinned::new(device));
    let recorder = SegmentRecorder::new(number, kind::PINNED, &device.properties().name);
    Pool::with_recorder(device, config.with_environment(), Arc::new(recorder))
}

/// Pools of the devices that a function opens, by their numbers: those that [`pool`] makes.
pub fn pools<D: Device>(
    config: Config,
    open: impl Fn(u32) -> std::result::Result<Arc<D>, OpenError> + Send + Sync + 'static,
) -> Pools<D> {
    Pools::new(move |number| Ok(pool(open(number)?, number, config.clone())?))
}

/// The same of CUDA's devices.
pub fn cuda_pools(config: Config) -> Pools<Cuda> {
    pools(config, |number| Ok(Arc::new(Cuda::open(number)?)))
}

/// Records the blocks of one pool in the process's segment.
pub struct SegmentRecorder {
    table: &'static Table,
    device: u32,
    kind: u16,
    name: String,
    /// `u32::MAX`: there are too many pools.
    place: u32,
}

impl std::fmt::Debug for SegmentRecorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SegmentRecorder")
            .field("device", &self.device)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl SegmentRecorder {
    /// For a pool of a device's memory (`kind` is `poolscope_wire::kind::DEVICE`),
    /// or of memory pinned for it (`PINNED`).
    pub fn new(device: u32, kind: u16, name: &str) -> SegmentRecorder {
        let table = table();
        (table.on_scope)(scope_changed);
        SegmentRecorder { table, device, kind, name: name.to_owned(), place: (table.attach)() }
    }

    fn traced(&self, address: u64, size: u64, stream: Stream) -> TracedBlock {
        TracedBlock { address, size, stream: stream.0, device: self.device, kind: self.kind }
    }
}

extern "C" fn scope_changed() {
    refresh_sampling_period();
}

/// The functions of the pool that makes this process's segment: this one if it is the program's allocator, that of a
/// preloaded `libpoolscope.so`, or this one for lack of any other.
fn table() -> &'static Table {
    if poolscope_cpu::scope::pool_is_in_use() { &TABLE } else { preloaded().unwrap_or(&TABLE) }
}

fn preloaded() -> Option<&'static Table> {
    unsafe extern "C" {
        fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    }
    // SAFETY: RTLD_DEFAULT is the null handle on Linux, and the name ends with zero.
    let function = unsafe { dlsym(std::ptr::null_mut(), c"poolscope_device_table".as_ptr()) };
    if function.is_null() {
        return None;
    }
    // SAFETY: only libpoolscope.so has a symbol of this name, and this is its type.
    let function: extern "C" fn(u32) -> *const Table = unsafe { std::mem::transmute(function) };
    // SAFETY: the library answers with null, or with a table of that version which stays as long as itself; it is never
    // unloaded.
    unsafe { function(TABLE_VERSION).as_ref() }
}

impl Recorder for SegmentRecorder {
    fn shown_as(&self) -> (u32, u16) {
        (self.device, self.kind)
    }

    fn period(&self) -> Option<u64> {
        Some((self.table.period)())
    }

    fn samples_per_second(&self) -> u64 {
        (self.table.sample_rate)()
    }

    fn allocated(&self, sample: &Sample) -> Option<Token> {
        let Sample { address, size, weight, in_use } = *sample;
        let (device, kind, place) = (self.device, self.kind, self.place);
        let token = (self.table.allocated)(&Block { address, size, weight, in_use, place, device, kind });
        (token != UNRECORDED).then_some(Token(token))
    }

    fn freed(&self, token: Token, address: u64, [with, without]: [u64; 2]) {
        (self.table.freed)(token.0, address, self.place, with, without);
    }

    fn publish(&self, picture: &Picture) {
        let state = State {
            device: self.device,
            kind: self.kind,
            name: self.name.as_bytes(),
            memory_bytes: picture.memory,
            counters: &picture.stats.values(),
            cells: &picture.map.cells,
            cell_bytes: picture.cell_bytes,
            places: &picture.map.places,
            streams: &picture.map.streams,
        };
        (self.table.publish)(self.place, &StateParts::from(&state));
    }

    fn holders(&self, in_use: u64, most: usize) -> Vec<String> {
        let (mut found, mut all) = (vec![Holder::EMPTY; most], Sampled::NONE);
        let (device, kind) = (self.device, self.kind);
        // SAFETY: both parts are those of the vector.
        let count = unsafe { (self.table.holders)(device, kind, &mut all, found.as_mut_ptr(), found.len()) };
        let settlement = Settlement::new(&all, in_use);
        let mut lines: Vec<String> =
            found[..count.min(most)].iter().map(|holder| holders::describe(holder, &settlement, self.table)).collect();
        lines.extend(holders::rest(&settlement));
        lines
    }

    fn watch(&self, word: &AtomicU64) {
        // SAFETY: the pool says when the word goes.
        unsafe { (self.table.watch)(word) };
    }

    fn unwatch(&self, word: &AtomicU64) {
        (self.table.unwatch)(word);
    }

    fn told_allocated(&self, address: u64, size: u64, stream: Stream) {
        (self.table.trace_allocated)(&self.traced(address, size, stream));
    }

    fn told_freed(&self, address: u64, stream: Stream) {
        (self.table.trace_freed)(&self.traced(address, 0, stream));
    }

    fn for_pinned(&self) -> Arc<dyn Recorder> {
        Arc::new(SegmentRecorder::new(self.device, kind::PINNED, &format!("pinned host memory, for {}", self.name)))
    }

    fn closed(&self) {
        (self.table.detach)(self.place);
    }
}
