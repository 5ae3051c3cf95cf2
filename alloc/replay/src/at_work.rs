//! A program whose streams are behind the host, on the simulated device.
//!
//! On a replay streams are idle, and whatever was freed is over when others ask for it. Real programs give a device
//! work faster than it is done.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use poolscope_gpu::{Device, Kernel, Simulated, Stream};

use crate::playback::{Policy, PolicyError, PolicyStats};

/// A policy of a program whose streams have work.
pub struct AtWork<'policy> {
    policy: &'policy dyn Policy,
    device: Arc<Simulated>,
    /// Nanoseconds for each allocation, and of the host for each operation.
    work: u64,
    host: u64,
    flow: Mutex<Flow>,
}

/// What a program needs at least whose streams never wait for each other, if memory were a liquid: a stream takes what it
/// freed last, then what others have freed and are done with, and then new memory.
#[derive(Default)]
struct Flow {
    blocks: HashMap<u64, u64>,
    /// By stream: when its work will be past them, and bytes.
    freed: HashMap<Stream, VecDeque<(u64, u64)>>,
    free: u64,
    held: u64,
}

impl Flow {
    fn allocate(&mut self, address: u64, size: u64, stream: Stream, now: u64) {
        self.blocks.insert(address, size);
        let mut missing = size;
        for (of, freed) in &mut self.freed {
            let over = freed.partition_point(|(done, _)| *done <= now);
            self.free += freed.drain(..over).map(|(_, bytes)| bytes).sum::<u64>();
            while *of == stream && missing > 0 {
                let Some((done, bytes)) = freed.pop_back() else { break };
                if bytes > missing {
                    freed.push_back((done, bytes - missing));
                }
                missing = missing.saturating_sub(bytes);
            }
        }
        let taken = missing.min(self.free);
        self.free -= taken;
        self.held += missing - taken;
    }

    fn free(&mut self, address: u64, stream: Stream, done: u64) {
        let size = self.blocks.remove(&address).unwrap_or(0);
        self.freed.entry(stream).or_default().push_back((done, size));
    }
}

impl Policy for AtWork<'_> {
    fn name(&self) -> &'static str {
        self.policy.name()
    }

    fn allocate(&self, size: u64, stream: Stream) -> Result<u64, PolicyError> {
        let address = self.policy.allocate(size, stream)?;
        lock(&self.flow).allocate(address, size, stream, self.device.now());
        if self.work > 0 {
            self.device.launch(stream, Kernel { duration: self.work, accesses: Vec::new() });
            self.device.advance(self.host);
        }
        Ok(address)
    }

    fn free(&self, address: u64, stream: Stream) -> Result<(), PolicyError> {
        lock(&self.flow).free(address, stream, self.device.idle_at(stream));
        self.policy.free(address, stream)?;
        self.device.advance(self.host);
        Ok(())
    }

    fn stats(&self) -> PolicyStats {
        self.policy.stats()
    }

    fn release(&self) -> Result<(), PolicyError> {
        self.policy.release()
    }
}

impl<'policy> AtWork<'policy> {
    /// A policy each of whose allocations gives its stream so many nanoseconds of work. The host needs as much time for
    /// each operation, divided by the number of streams, so that they are behind, and no further all the time.
    pub fn new(policy: &'policy dyn Policy, device: Arc<Simulated>, work: u64, streams: u32) -> AtWork<'policy> {
        let host = work / u64::from(streams.max(1));
        AtWork { policy, device, work, host, flow: Mutex::default() }
    }

    /// Bytes that the program needs where no stream waits for another one's memory, if that could be cut at will. Streams
    /// that did wait got later to what they freed.
    pub fn flow(&self) -> u64 {
        lock(&self.flow).held
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
