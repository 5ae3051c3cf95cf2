//! Which devices the driver sees, and why there is none.

use std::ffi::{c_int, c_uint};

use cudarc::driver::sys::CUdevice;

use super::allocation_properties;
use super::functions::Functions;
use crate::device::{GRANULE, error_name};

/// `CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED`.
const VIRTUAL_MEMORY: c_uint = 102;

/// Why there is no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CudaError {
    /// `libcuda.so.1` is not on the machine.
    #[error(
        "no CUDA driver: libcuda.so.1 can't be loaded. Install NVIDIA's driver, or, in a container, let it see the \
         host's (`--gpus all`); the simulated device needs none"
    )]
    NoDriver,
    /// The driver lacks a function that every pool needs.
    #[error("the CUDA driver is too old: it has no {function}. The pool needs that of CUDA 11.0 or newer")]
    OldDriver {
        /// Which.
        function: &'static str,
    },
    /// The library is the one that programs are linked against where there is no driver.
    #[error(
        "libcuda.so is the stub that programs are linked against, not the driver: take the folder `stubs` out of \
         LD_LIBRARY_PATH"
    )]
    Stub,
    /// The driver sees no device.
    #[error("the CUDA driver sees no device: none is there, or CUDA_VISIBLE_DEVICES hides it")]
    NoDevice,
    /// There are devices, but not this one.
    #[error("no device {ordinal}: the CUDA driver sees {devices}, counted from 0")]
    NoSuchDevice {
        /// What was asked for.
        ordinal: u32,
        /// How many there are.
        devices: u32,
    },
    /// The driver does not start.
    #[error("the CUDA driver does not start: error {0}{name}", name = error_name(*.0))]
    Start(u32),
    /// The driver's answer to a function that opens or describes a device.
    #[error("device {ordinal}: {function} failed with error {code}{name}", name = error_name(*.code))]
    Open {
        /// The device.
        ordinal: u32,
        /// The driver's function.
        function: &'static str,
        /// Its error.
        code: u32,
    },
}

/// A device that the driver sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaDevice {
    /// Its number, from 0.
    pub ordinal: u32,
    /// As the driver gives it.
    pub name: String,
    /// Bytes of memory.
    pub memory: u64,
    /// What tells it from all others, on every machine; zeros where an old driver does not say.
    pub uuid: [u8; 16],
    /// Whether addresses can be reserved and granules of 2 MiB mapped.
    pub virtual_memory: bool,
}

impl CudaDevice {
    pub(super) fn look_at(
        functions: &Functions,
        ordinal: u32,
    ) -> std::result::Result<(CUdevice, CudaDevice), CudaError> {
        let check = |function, code| match code {
            0 => Ok(()),
            code => Err(CudaError::Open { ordinal, function, code }),
        };
        let (mut device, mut memory, mut supported, mut granularity) = (0, 0usize, 0, 0usize);
        let mut name = [0u8; 256];
        let mut uuid = cudarc::driver::sys::CUuuid { bytes: [0; 16] };
        // SAFETY: each function writes to what it is given, which is as large as it says and outlives the call.
        unsafe {
            check("cuDeviceGet", (functions.cuDeviceGet)(&mut device, ordinal as c_int))?;
            check("cuDeviceGetName", (functions.cuDeviceGetName)(name.as_mut_ptr().cast(), 255, device))?;
            check("cuDeviceTotalMem", (functions.cuDeviceTotalMem_v2)(&mut memory, device))?;
            check("cuDeviceGetAttribute", (functions.cuDeviceGetAttribute)(&mut supported, VIRTUAL_MEMORY, device))?;
            if let Some(get) = functions.cuDeviceGetUuid_v2 {
                // What an old driver does not say stays zero.
                get(&mut uuid, device);
            }
            if let (true, Some(get)) =
                (supported != 0 && functions.has_virtual_memory(), functions.cuMemGetAllocationGranularity)
            {
                check("cuMemGetAllocationGranularity", get(&mut granularity, &allocation_properties(device), 0))?;
            }
        }
        let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        let found = CudaDevice {
            ordinal,
            name: String::from_utf8_lossy(&name[..length]).into_owned(),
            memory: memory as u64,
            uuid: uuid.bytes.map(|byte| byte as u8),
            virtual_memory: granularity > 0 && GRANULE.is_multiple_of(granularity as u64),
        };
        Ok((device, found))
    }
}

impl Functions {
    pub(super) fn has_virtual_memory(&self) -> bool {
        let calls = [self.cuMemRelease.is_some(), self.cuMemMap.is_some(), self.cuMemUnmap.is_some()];
        let ranges = [self.cuMemAddressReserve.is_some(), self.cuMemAddressFree.is_some()];
        calls.iter().chain(&ranges).all(|it| *it) && self.cuMemCreate.is_some() && self.cuMemSetAccess.is_some()
    }

    pub(super) fn count(&self) -> std::result::Result<u32, CudaError> {
        let mut count = 0;
        // SAFETY: it writes one number.
        match unsafe { (self.cuDeviceGetCount)(&mut count) } {
            0 => Ok(count.max(0) as u32),
            code => Err(CudaError::Start(code)),
        }
    }
}
