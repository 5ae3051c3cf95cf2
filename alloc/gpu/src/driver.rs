//! The device, with its calls counted: statistics say how many there were, and the background work has a budget of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::device::{Device, Event, Granule, MemoryInfo, Progress, Result, Stream};

/// A device whose calls are counted.
pub struct Driver<D> {
    device: Arc<D>,
    calls: AtomicU64,
}

impl<D: Device> Driver<D> {
    pub fn new(device: Arc<D>) -> Driver<D> {
        Driver { device, calls: AtomicU64::new(0) }
    }

    /// Calls so far, failed ones included.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    pub fn device(&self) -> &D {
        &self.device
    }

    fn count(&self) -> &D {
        self.calls.fetch_add(1, Ordering::Relaxed);
        &self.device
    }

    pub fn reserve(&self, bytes: u64) -> Result<u64> {
        self.count().reserve(bytes)
    }

    pub fn unreserve(&self, address: u64, bytes: u64) -> Result<()> {
        self.count().unreserve(address, bytes)
    }

    pub fn create(&self) -> Result<Granule> {
        self.count().create()
    }

    pub fn release(&self, granule: Granule) -> Result<()> {
        self.count().release(granule)
    }

    pub fn map(&self, address: u64, granule: Granule) -> Result<()> {
        self.count().map(address, granule)
    }

    pub fn unmap(&self, address: u64, bytes: u64) -> Result<()> {
        self.count().unmap(address, bytes)
    }

    pub fn set_access(&self, address: u64, bytes: u64) -> Result<()> {
        self.count().set_access(address, bytes)
    }

    pub fn stream_id(&self, stream: Stream) -> Result<u64> {
        self.count().stream_id(stream)
    }

    pub fn create_event(&self) -> Result<Event> {
        self.count().create_event()
    }

    pub fn destroy_event(&self, event: Event) -> Result<()> {
        self.count().destroy_event(event)
    }

    pub fn record(&self, event: Event, stream: Stream) -> Result<()> {
        self.count().record(event, stream)
    }

    pub fn query(&self, event: Event) -> Result<Progress> {
        self.count().query(event)
    }

    pub fn synchronize(&self, event: Event) -> Result<()> {
        self.count().synchronize(event)
    }

    pub fn synchronize_all(&self) -> Result<()> {
        self.count().synchronize_all()
    }

    pub fn memory_info(&self) -> Result<MemoryInfo> {
        self.count().memory_info()
    }

    pub fn wait(&self, stream: Stream, event: Event) -> Result<()> {
        self.count().wait(stream, event)
    }

    pub fn allocate(&self, bytes: u64) -> Result<u64> {
        self.count().allocate(bytes)
    }

    pub fn free(&self, address: u64) -> Result<()> {
        self.count().free(address)
    }

    pub fn allocate_async(&self, bytes: u64, stream: Stream) -> Result<u64> {
        self.count().allocate_async(bytes, stream)
    }

    pub fn free_async(&self, address: u64, stream: Stream) -> Result<()> {
        self.count().free_async(address, stream)
    }

    pub fn keep_async(&self, bytes: u64) -> Result<()> {
        self.count().keep_async(bytes)
    }

    pub fn trim_async(&self, keep: u64) -> Result<()> {
        self.count().trim_async(keep)
    }
}
