//! Devices around a device: one whose calls take as long as they are charged, and one that says what they took.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use poolscope_gpu::{Call, Device, Properties, Result, Simulated, Stream};

/// A simulated device whose calls take as long as they are charged.
pub struct Slow(pub Simulated);

macro_rules! slowly {
    ($($section:ident { $($(#[$doc:meta])* $call:ident $function:literal
        $method:ident($($name:ident: $type:ty),*) -> $answer:ty;)* })*) => {
        $($(fn $method(&self, $($name: $type),*) -> Result<$answer> {
            let (began, before) = (Instant::now(), self.0.now());
            let answer = Device::$method(&self.0, $($name),*);
            let charged = Duration::from_nanos(self.0.now() - before);
            while began.elapsed() < charged {
                std::thread::yield_now();
            }
            answer
        })*)*
    };
}

impl Device for Slow {
    poolscope_gpu::device_calls!(slowly);

    fn properties(&self) -> Properties {
        self.0.properties()
    }

    fn is_simulated(&self) -> bool {
        true
    }

    fn now(&self) -> u64 {
        self.0.now()
    }

    fn at_handle(&self, stream: Stream) -> Option<u64> {
        self.0.at_handle(stream)
    }

    fn enable_peer(&self, peer: &Slow) -> Result<()> {
        self.0.enable_peer(&peer.0)
    }
}

/// What the calls of one kind took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Taken {
    /// Calls.
    pub calls: u64,
    /// Nanoseconds of the device's clock, in all and of the longest.
    pub ns: u64,
    pub longest_ns: u64,
}

/// A device that counts what its calls take, by its own clock.
pub struct Timed<D> {
    device: Arc<D>,
    taken: Mutex<HashMap<Call, Taken>>,
}

impl<D: Device> Timed<D> {
    pub fn new(device: Arc<D>) -> Self {
        Self { device, taken: Mutex::default() }
    }

    /// What calls took since this was last asked, the dearest first.
    pub fn take(&self) -> Vec<(Call, Taken)> {
        let mut taken: Vec<_> = self.taken.lock().unwrap_or_else(PoisonError::into_inner).drain().collect();
        taken.sort_by_key(|(_, taken)| std::cmp::Reverse(taken.ns));
        taken
    }

    fn timed<T>(&self, call: Call, f: impl FnOnce(&D) -> T) -> T {
        let before = self.device.now();
        let answer = f(&self.device);
        let ns = self.device.now() - before;
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = taken.entry(call).or_default();
        (taken.calls, taken.ns, taken.longest_ns) = (taken.calls + 1, taken.ns + ns, taken.longest_ns.max(ns));
        answer
    }
}

macro_rules! timed {
    ($($section:ident { $($(#[$doc:meta])* $call:ident $function:literal
        $method:ident($($name:ident: $type:ty),*) -> $answer:ty;)* })*) => {
        $($(fn $method(&self, $($name: $type),*) -> Result<$answer> {
            self.timed(Call::$call, |device| Device::$method(device, $($name),*))
        })*)*
    };
}

impl<D: Device> Device for Timed<D> {
    poolscope_gpu::device_calls!(timed);

    fn properties(&self) -> Properties {
        self.device.properties()
    }

    fn is_simulated(&self) -> bool {
        self.device.is_simulated()
    }

    fn now(&self) -> u64 {
        self.device.now()
    }

    fn at_handle(&self, stream: Stream) -> Option<u64> {
        self.device.at_handle(stream)
    }

    fn enable_peer(&self, peer: &Self) -> Result<()> {
        self.device.enable_peer(&peer.device)
    }
}
