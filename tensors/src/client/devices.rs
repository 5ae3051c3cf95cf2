//! The devices of this process, by what tells them from all others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use poolscope_gpu::{Cuda, Sharing, Simulated};

use crate::owner::{SIMULATED, uuid_text};
use crate::words::{Code, Refusal};

/// Devices that were opened.
#[derive(Default)]
pub struct Devices {
    opened: Mutex<HashMap<String, Arc<dyn Sharing>>>,
}

fn open(uuid: &str) -> Result<Arc<dyn Sharing>, Refusal> {
    let simulated = uuid.strip_prefix(SIMULATED).and_then(|rest| rest.strip_prefix('-'));
    if let Some(number) = simulated.and_then(|number| number.parse().ok()) {
        return Ok(Arc::new(Simulated::in_process(u64::MAX >> 1, number)));
    }
    let not_here = |why: String| {
        let words = format!("the tensor is on {uuid}, and this process can't use that device: {why}");
        Refusal::new(Code::NotShared, words)
    };
    let devices = Cuda::devices().map_err(|error| not_here(error.to_string()))?;
    let found = devices.iter().find(|device| uuid_text(device.uuid) == uuid);
    let found = found.ok_or_else(|| {
        not_here(format!("the CUDA driver shows {} others; look at CUDA_VISIBLE_DEVICES", devices.len()))
    })?;
    let device = Cuda::open(found.ordinal).map_err(|error| not_here(error.to_string()))?;
    Ok(Arc::new(device))
}

/// The identifier of a CUDA device of this process.
pub fn gpu_uuid(ordinal: u32) -> Result<String, Refusal> {
    let failed = |error: poolscope_gpu::CudaError| Refusal::new(Code::NoDevice, error.to_string());
    let devices = Cuda::devices().map_err(failed)?;
    let found = devices.into_iter().find(|device| device.ordinal == ordinal);
    let words = || Refusal::new(Code::NoDevice, format!("the CUDA driver shows no device {ordinal}"));
    found.map(|device| uuid_text(device.uuid)).ok_or_else(words)
}

/// The number of a CUDA device in this process.
pub fn ordinal(gpu_uuid: &str) -> Result<u32, Refusal> {
    let failed = |error: poolscope_gpu::CudaError| Refusal::new(Code::NoDevice, error.to_string());
    let devices = Cuda::devices().map_err(failed)?;
    let found = devices.into_iter().find(|device| uuid_text(device.uuid) == gpu_uuid);
    let words = || Refusal::new(Code::NoDevice, format!("the CUDA driver does not show {gpu_uuid}"));
    found.map(|device| device.ordinal).ok_or_else(words)
}

impl Devices {
    /// Uses a device that is open already.
    pub fn insert(&self, uuid: &str, device: Arc<dyn Sharing>) {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.insert(uuid.to_owned(), device);
    }

    /// The device with this identifier.
    pub fn get(&self, uuid: &str) -> Result<Arc<dyn Sharing>, Refusal> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = opened.get(uuid) {
            return Ok(Arc::clone(device));
        }
        let device = open(uuid)?;
        opened.insert(uuid.to_owned(), Arc::clone(&device));
        Ok(device)
    }
}
