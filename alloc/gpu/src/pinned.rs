//! Locked host memory as a device: what a pool of it runs on.
//!
//! The device reads and writes it at the host's addresses, in the order of its streams, so that a pool of it is a pool like the
//! others: same classes, caches, streams. It comes in segments, since host memory can't be mapped in granules.

use std::sync::Arc;

use crate::device::{
    Call, Device, DeviceError, Event, Fault, Granule, MemoryInfo, Progress, Properties, Result, Stream,
};

/// The host's memory, as a device uses it.
pub struct Pinned {
    device: Arc<dyn Device>,
}

fn none<T>(call: Call) -> Result<T> {
    Err(DeviceError { call, fault: Fault::Unsupported })
}

/// Bytes of the host's memory that are free, and in all, as the kernel says.
fn host_memory() -> MemoryInfo {
    // SAFETY: both ask for numbers.
    let (page, pages, free) = unsafe {
        (libc::sysconf(libc::_SC_PAGESIZE), libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_AVPHYS_PAGES))
    };
    let bytes = |pages: libc::c_long| (pages.max(0) as u64).saturating_mul(page.max(0) as u64);
    MemoryInfo { free: bytes(free), total: bytes(pages) }
}

impl Pinned {
    /// The host's memory, for a device and its streams.
    pub fn new(device: Arc<dyn Device>) -> Pinned {
        Pinned { device }
    }
}

impl Device for Pinned {
    fn properties(&self) -> Properties {
        let name = format!("pinned host memory, for {}", self.device.properties().name);
        Properties { name, memory: host_memory().total, virtual_memory: false }
    }

    fn now(&self) -> u64 {
        self.device.now()
    }

    fn is_simulated(&self) -> bool {
        self.device.is_simulated()
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        Ok(host_memory())
    }

    fn reserve(&self, _: u64) -> Result<u64> {
        none(Call::Reserve)
    }

    fn unreserve(&self, _: u64, _: u64) -> Result<()> {
        none(Call::Unreserve)
    }

    fn create(&self) -> Result<Granule> {
        none(Call::Create)
    }

    fn release(&self, _: Granule) -> Result<()> {
        none(Call::Release)
    }

    fn map(&self, _: u64, _: Granule) -> Result<()> {
        none(Call::Map)
    }

    fn unmap(&self, _: u64, _: u64) -> Result<()> {
        none(Call::Unmap)
    }

    fn set_access(&self, _: u64, _: u64) -> Result<()> {
        none(Call::SetAccess)
    }

    fn allocate(&self, bytes: u64) -> Result<u64> {
        self.device.allocate_host(bytes)
    }

    fn free(&self, address: u64) -> Result<()> {
        self.device.free_host(address)
    }

    fn allocate_host(&self, bytes: u64) -> Result<u64> {
        self.device.allocate_host(bytes)
    }

    fn free_host(&self, address: u64) -> Result<()> {
        self.device.free_host(address)
    }

    /// Every device reads and writes it anyway.
    fn enable_peer(&self, _: &Pinned) -> Result<()> {
        Ok(())
    }

    fn stream_id(&self, stream: Stream) -> Result<u64> {
        self.device.stream_id(stream)
    }

    fn capturing(&self, stream: Stream) -> Result<bool> {
        self.device.capturing(stream)
    }

    fn create_event(&self) -> Result<Event> {
        self.device.create_event()
    }

    fn destroy_event(&self, event: Event) -> Result<()> {
        self.device.destroy_event(event)
    }

    fn record(&self, event: Event, stream: Stream) -> Result<()> {
        self.device.record(event, stream)
    }

    fn query(&self, event: Event) -> Result<Progress> {
        self.device.query(event)
    }

    fn synchronize(&self, event: Event) -> Result<()> {
        self.device.synchronize(event)
    }

    fn synchronize_all(&self) -> Result<()> {
        self.device.synchronize_all()
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<()> {
        self.device.wait(stream, event)
    }
}
