//! The device, with its calls counted and timed: statistics say how many there were and how long they held calls up,
//! and the background work has a budget of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Device, Result};
use crate::delays::{Cause, note};

/// A device whose calls are counted: those of [`Device`] by the same names.
pub struct Driver<D> {
    device: Arc<D>,
    calls: AtomicU64,
}

impl<D: Device> Driver<D> {
    /// A device with no call so far.
    pub fn new(device: Arc<D>) -> Driver<D> {
        Driver { device, calls: AtomicU64::new(0) }
    }

    /// Calls so far, failed ones included.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// The device. What is asked of it is not counted.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The same, to be kept.
    pub fn shared_device(&self) -> Arc<D> {
        self.device.clone()
    }

    fn counted<T>(&self, call: impl FnOnce(&D) -> T) -> T {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let began = self.device.now();
        let answer = call(&self.device);
        note(Cause::Driver, self.device.now() - began);
        answer
    }
}

macro_rules! counted {
    ($($section:ident { $($(#[$doc:meta])* $call:ident $function:literal
        $method:ident($($name:ident: $type:ty),*) -> $answer:ty;)* })*) => {
        impl<D: Device> Driver<D> {
            $($(
                $(#[$doc])*
                pub fn $method(&self, $($name: $type),*) -> Result<$answer> {
                    self.counted(|device| device.$method($($name),*))
                }
            )*)*
        }
    };
}

crate::device_calls!(counted);
