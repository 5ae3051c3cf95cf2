//! The memory of captured graphs, as PyTorch names it.
//!
//! PyTorch says that a pool begins and ends, and which streams belong to it by a C++ function object. Those are the
//! streams that are being captured, so the driver is asked instead, once for each stream,
//! and only between begin and end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use poolscope_gpu::{Device, GraphPool, Pool, PoolError, Stream};

use crate::any_device::AnyDevice;

/// A memory pool's name: `c10::MempoolId_t`.
pub type PoolName = (u64, u64);

/// The graphs of a device.
#[derive(Default)]
pub struct Graphs {
    /// Pools that have begun and not ended.
    begun: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The last to begin is last.
    begun: Vec<PoolName>,
    /// Streams that are being captured.
    capturing: HashMap<Stream, PoolName>,
    pools: HashMap<PoolName, Vec<GraphPool>>,
}

impl Graphs {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that streams which are captured from now on belong to a pool.
    pub fn begin(&self, name: PoolName) {
        let mut state = self.state();
        state.begun.push(name);
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// Looks whether a stream that is to be allocated on is being captured.
    #[inline]
    pub fn meet(&self, pool: &Pool<AnyDevice>, stream: Stream) -> Result<(), PoolError> {
        // Relaxed: the thread that captures is the one that said so.
        if self.begun.load(Ordering::Relaxed) == 0 { Ok(()) } else { self.ask(pool, stream) }
    }

    #[cold]
    fn ask(&self, pool: &Pool<AnyDevice>, stream: Stream) -> Result<(), PoolError> {
        let mut state = self.state();
        let Some(&name) = state.begun.last() else { return Ok(()) };
        if state.capturing.contains_key(&stream) {
            return Ok(());
        }
        // Asked each time: a pool begins before the capture does.
        if !pool.device().capturing(stream)? {
            return Ok(());
        }
        let graph = pool.begin_capture(stream)?;
        state.capturing.insert(stream, name);
        state.pools.entry(name).or_default().push(graph);
        Ok(())
    }

    /// Says that this stream's capture begins, and belongs to a pool.
    pub fn begin_on(&self, pool: &Pool<AnyDevice>, name: PoolName, stream: Stream) -> Result<(), PoolError> {
        let mut state = self.state();
        let graph = pool.begin_capture(stream)?;
        state.begun.push(name);
        state.capturing.insert(stream, name);
        state.pools.entry(name).or_default().push(graph);
        self.begun.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Says that a pool's capture is over.
    pub fn end(&self, pool: &Pool<AnyDevice>, name: PoolName) -> Result<(), PoolError> {
        let mut state = self.state();
        let Some(at) = state.begun.iter().rposition(|begun| *begun == name) else { return Ok(()) };
        state.begun.remove(at);
        self.begun.fetch_sub(1, Ordering::Relaxed);
        let mut result = Ok(());
        state.capturing.retain(|stream, of| {
            if *of == name {
                result = result.clone().and(pool.end_capture(*stream));
            }
            *of != name
        });
        result
    }

    /// Gives up a pool's memory, all of whose launches are over.
    pub fn release(&self, pool: &Pool<AnyDevice>, name: PoolName, stream: Stream) -> Result<(), PoolError> {
        let graphs = self.state().pools.remove(&name).unwrap_or_default();
        graphs.into_iter().try_for_each(|graph| pool.end_graph(graph, stream))
    }
}
