//! The devices that an owner serves, and the memory that it has from them.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use poolscope_gpu::{Cuda, DeviceError, Fault, GRANULE, Sharing, Simulated, Slab};

use crate::wire::Transport;
use crate::words::{Code, Refusal};

/// A device to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// One of CUDA's, by its number.
    Cuda(u32),
    /// One that is not there, with so many bytes.
    Simulated(u64),
}

/// A device that is served.
pub struct Served {
    /// Tells it from all others, on every machine.
    pub uuid: String,
    /// Bytes of its memory.
    pub memory: u64,
    /// The device.
    pub device: Arc<dyn Sharing>,
}

/// As `nvidia-smi -L` prints it.
pub fn uuid_text(uuid: [u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// What simulated devices are called.
pub const SIMULATED: &str = "GPU-simulated";

impl Served {
    pub fn open(choice: DeviceChoice, number: usize) -> Result<Served, Refusal> {
        match choice {
            DeviceChoice::Cuda(ordinal) => {
                let device = Cuda::open(ordinal).map_err(|error| Refusal::new(Code::NoDevice, error.to_string()))?;
                let about = device.about().clone();
                Ok(Served { uuid: uuid_text(about.uuid), memory: about.memory, device: Arc::new(device) })
            }
            DeviceChoice::Simulated(memory) => {
                let device = Arc::new(Simulated::in_process(memory, number as u32));
                Ok(Served { uuid: format!("{SIMULATED}-{number}"), memory, device })
            }
        }
    }
}

/// The owner's side of a slab.
pub enum Held {
    /// Its descriptor, which keeps the memory, and what the driver calls it where this owner created it.
    Posix { descriptor: OwnedFd, slab: Option<Slab> },
    /// Plain memory of this owner's.
    Legacy { address: u64 },
    /// Plain memory of a client's.
    Foreign,
}

/// A device's refusal, in words.
pub fn refusal(error: DeviceError, tried: &str) -> Refusal {
    let code = if error.fault == Fault::OutOfMemory { Code::NoMemory } else { Code::Device };
    Refusal::new(code, format!("{tried}: {error}"))
}

/// Slabs by number.
pub type Slabs = HashMap<u64, Held>;

impl Served {
    /// Memory of so many bytes at least; how many it has, what holds it, and its legacy handle.
    pub fn make(&self, bytes: u64, transport: Transport) -> Result<(u64, Held, String), Refusal> {
        let tried = format!("{bytes} bytes on {}", self.uuid);
        let failed = |error| refusal(error, &tried);
        let device = &self.device;
        match transport {
            Transport::Posix => {
                let bytes = bytes.max(1).next_multiple_of(GRANULE);
                let slab = device.create_slab(bytes).map_err(failed)?;
                let exported = device.export_slab(slab).map_err(failed);
                let descriptor = exported.inspect_err(|_| {
                    // The export is what failed; that is what is said.
                    let _ = device.release_slab(slab);
                })?;
                Ok((bytes, Held::Posix { descriptor, slab: Some(slab) }, String::new()))
            }
            Transport::Legacy => {
                let bytes = bytes.max(1).next_multiple_of(GRANULE);
                let address = device.allocate(bytes).map_err(failed)?;
                let handle = device.legacy_handle(address).map_err(failed);
                let handle = handle.inspect_err(|_| {
                    let _ = device.free(address);
                })?;
                Ok((bytes, Held::Legacy { address }, BASE64_STANDARD.encode(handle)))
            }
        }
    }

    /// Gives it back.
    pub fn give_up(&self, held: Held) -> Result<(), Refusal> {
        let given = match held {
            Held::Posix { slab: Some(slab), .. } => self.device.release_slab(slab),
            Held::Posix { slab: None, .. } | Held::Foreign => Ok(()),
            Held::Legacy { address } => self.device.free(address),
        };
        given.map_err(|error| refusal(error, "memory that nobody holds"))
    }
}
