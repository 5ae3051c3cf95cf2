//! Locked host memory as a device: what a pool of it runs on.
//!
//! The device reads and writes it at the host's addresses, in the order of its streams, so that a pool of it is a pool
//! like the others: same classes, caches, streams. It comes in segments, since host memory can't be mapped in granules.

use std::sync::Arc;

use super::{Device, MemoryInfo, Properties, Result};

/// The host's memory, as a device uses it.
pub struct Pinned {
    device: Arc<dyn Device>,
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

/// The calls by which streams are ordered, handed on to the device whose streams they are. Virtual memory there is
/// none.
macro_rules! order_of_the_device {
    (
        memory $memory:tt
        streams { $($(#[$doc:meta])* $call:ident $function:literal
            $method:ident($($name:ident: $type:ty),*) -> $answer:ty;)* }
        optional $optional:tt
    ) => {
        $(fn $method(&self, $($name: $type),*) -> Result<$answer> {
            self.device.$method($($name),*)
        })*
    };
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

    crate::device_calls!(order_of_the_device);
}
