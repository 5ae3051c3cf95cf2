//! The device tiers of poolscope.
//!
//! [`Device`] is what a device can do; [`Simulated`] is one that every test runs on.

mod device;
mod simulated;

pub use device::{
    Call, Device, DeviceError, Event, Fault, GRANULE, Granule, MemoryInfo, Progress, Properties, Result, Stream,
};
pub use simulated::{Access, Graph, Kernel, Simulated, Violation};
