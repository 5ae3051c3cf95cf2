//! A device of the process, whichever kind was asked for: one of CUDA's, or one that is simulated.

use poolscope_gpu::{Call, Cuda, Device, DeviceError, Fault, Properties, Result, Simulated, Stream};

/// One of either kind.
pub enum AnyDevice {
    Cuda(Cuda),
    Simulated(Box<Simulated>),
}

/// Hands each call to the device that it is.
macro_rules! either {
    ($($section:ident { $($(#[$doc:meta])* $call:ident $function:literal
        $method:ident($($name:ident: $type:ty),*) -> $answer:ty;)* })*) => {
        $($(fn $method(&self, $($name: $type),*) -> Result<$answer> {
            match self {
                AnyDevice::Cuda(device) => device.$method($($name),*),
                AnyDevice::Simulated(device) => Device::$method(&**device, $($name),*),
            }
        })*)*
    };
}

impl Device for AnyDevice {
    poolscope_gpu::device_calls!(either);

    fn properties(&self) -> Properties {
        match self {
            AnyDevice::Cuda(device) => device.properties(),
            AnyDevice::Simulated(device) => device.properties(),
        }
    }

    fn is_simulated(&self) -> bool {
        match self {
            AnyDevice::Cuda(device) => device.is_simulated(),
            AnyDevice::Simulated(device) => device.is_simulated(),
        }
    }

    fn now(&self) -> u64 {
        match self {
            AnyDevice::Cuda(device) => device.now(),
            AnyDevice::Simulated(device) => device.now(),
        }
    }

    fn at_handle(&self, stream: Stream) -> Option<u64> {
        match self {
            AnyDevice::Cuda(device) => device.at_handle(stream),
            AnyDevice::Simulated(device) => device.at_handle(stream),
        }
    }

    fn enable_peer(&self, peer: &AnyDevice) -> Result<()> {
        match (self, peer) {
            (AnyDevice::Cuda(device), AnyDevice::Cuda(peer)) => device.enable_peer(peer),
            (AnyDevice::Simulated(device), AnyDevice::Simulated(peer)) => device.enable_peer(peer),
            _ => Err(DeviceError { call: Call::EnablePeer, fault: Fault::Unsupported }),
        }
    }
}
