//! Memory that other processes can have: slabs by descriptor, plain memory by legacy handle, and words in either that
//! order the work of streams across processes.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use cudarc::driver::sys::{CUipcMemHandle, CUmemAllocationHandleType};

use super::streams::NON_BLOCKING;
use super::{Cuda, allocation_properties, check, handle, unsupported};
use crate::device::{Call, Device, DeviceError, Fault, GRANULE, Result, Sharing, Slab, Stream};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const DESCRIPTOR: u32 = 1;
/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, which the driver demands.
const LAZY_PEER: u32 = 1;
/// `CU_STREAM_WRITE_VALUE_DEFAULT`: what the stream wrote before is there for all who see the word.
const WRITE_BEHIND_ALL: u32 = 0;
/// `CU_STREAM_WAIT_VALUE_GEQ`.
const AT_LEAST: u32 = 0;

// SAFETY of the calls below, in all of them: the context is current, what a function writes to is on this stack or is
// the caller's slice, and handles and addresses are those that the driver gave out.
impl Sharing for Cuda {
    fn create_slab(&self, bytes: u64) -> Result<Slab> {
        let function = self.functions.cuMemCreate.ok_or(unsupported(Call::CreateSlab))?;
        let _entered = self.enter(Call::CreateSlab)?;
        let mut properties = allocation_properties(self.device);
        properties.requestedHandleTypes = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        let mut slab = 0;
        // SAFETY: see above.
        check(Call::CreateSlab, unsafe { function(&mut slab, bytes as usize, &properties, 0) })?;
        Ok(Slab(slab))
    }

    fn release_slab(&self, slab: Slab) -> Result<()> {
        let function = self.functions.cuMemRelease.ok_or(unsupported(Call::ReleaseSlab))?;
        let _entered = self.enter(Call::ReleaseSlab)?;
        // SAFETY: see above.
        check(Call::ReleaseSlab, unsafe { function(slab.0) })
    }

    fn export_slab(&self, slab: Slab) -> Result<OwnedFd> {
        let function = self.functions.cuMemExportToShareableHandle.ok_or(unsupported(Call::ExportSlab))?;
        let _entered = self.enter(Call::ExportSlab)?;
        let mut descriptor: i32 = -1;
        // SAFETY: see above; the function writes an `int` for this type of handle.
        check(Call::ExportSlab, unsafe { function((&raw mut descriptor).cast(), slab.0, DESCRIPTOR, 0) })?;
        // SAFETY: the driver made it for the caller. Without the flag every program that is started would hold the
        // memory.
        unsafe {
            libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC);
            Ok(OwnedFd::from_raw_fd(descriptor))
        }
    }

    fn import_slab(&self, descriptor: BorrowedFd<'_>) -> Result<Slab> {
        let function = self.functions.cuMemImportFromShareableHandle.ok_or(unsupported(Call::ImportSlab))?;
        let _entered = self.enter(Call::ImportSlab)?;
        let mut slab = 0;
        let descriptor = descriptor.as_raw_fd() as usize as *mut c_void;
        // SAFETY: see above; the function takes the descriptor itself in the place of a pointer, and leaves it open.
        check(Call::ImportSlab, unsafe { function(&mut slab, descriptor, DESCRIPTOR) })?;
        Ok(Slab(slab))
    }

    fn map_slab(&self, slab: Slab, bytes: u64) -> Result<u64> {
        let function = self.functions.cuMemMap.ok_or(unsupported(Call::MapSlab))?;
        let reserved = bytes.next_multiple_of(GRANULE);
        let address = self.reserve(reserved)?;
        let mapped = || {
            let _entered = self.enter(Call::MapSlab)?;
            // SAFETY: see above.
            check(Call::MapSlab, unsafe { function(address, reserved as usize, 0, slab.0, 0) })
        };
        if let Err(error) = mapped() {
            self.unreserve(address, reserved)?;
            return Err(error);
        }
        if let Err(error) = self.set_access(address, reserved) {
            self.unmap_slab(address, bytes)?;
            return Err(error);
        }
        Ok(address)
    }

    fn unmap_slab(&self, address: u64, bytes: u64) -> Result<()> {
        let reserved = bytes.next_multiple_of(GRANULE);
        self.unmap(address, reserved)?;
        self.unreserve(address, reserved)
    }

    fn retain_slab(&self, address: u64) -> Result<Slab> {
        let function = self.functions.cuMemRetainAllocationHandle.ok_or(unsupported(Call::RetainSlab))?;
        let _entered = self.enter(Call::RetainSlab)?;
        let mut slab = 0;
        // SAFETY: see above; an address that is not mapped is an error.
        check(Call::RetainSlab, unsafe { function(&mut slab, address as usize as *mut c_void) })?;
        Ok(Slab(slab))
    }

    fn address_range(&self, address: u64) -> Result<(u64, u64)> {
        let function = self.functions.cuMemGetAddressRange_v2.ok_or(unsupported(Call::AddressRange))?;
        let _entered = self.enter(Call::AddressRange)?;
        let (mut base, mut bytes) = (0, 0usize);
        // SAFETY: see above.
        check(Call::AddressRange, unsafe { function(&mut base, &mut bytes, address) })?;
        Ok((base, bytes as u64))
    }

    fn legacy_handle(&self, address: u64) -> Result<[u8; 64]> {
        let function = self.functions.cuIpcGetMemHandle.ok_or(unsupported(Call::LegacyHandle))?;
        let _entered = self.enter(Call::LegacyHandle)?;
        let mut handle = CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: see above.
        check(Call::LegacyHandle, unsafe { function(&mut handle, address) })?;
        Ok(handle.reserved.map(|byte| byte as u8))
    }

    fn open_legacy(&self, handle: [u8; 64]) -> Result<u64> {
        let function = self.functions.cuIpcOpenMemHandle_v2.ok_or(unsupported(Call::OpenLegacy))?;
        let _entered = self.enter(Call::OpenLegacy)?;
        let handle = CUipcMemHandle { reserved: handle.map(|byte| byte as _) };
        let mut address = 0;
        // SAFETY: see above; bytes that are no handle are an error.
        check(Call::OpenLegacy, unsafe { function(&mut address, handle, LAZY_PEER) })?;
        Ok(address)
    }

    fn close_legacy(&self, address: u64) -> Result<()> {
        let function = self.functions.cuIpcCloseMemHandle.ok_or(unsupported(Call::CloseLegacy))?;
        let _entered = self.enter(Call::CloseLegacy)?;
        // SAFETY: see above.
        check(Call::CloseLegacy, unsafe { function(address) })
    }

    fn copy_in(&self, address: u64, from: &[u8]) -> Result<()> {
        let function = self.functions.cuMemcpyHtoD_v2.ok_or(unsupported(Call::CopyIn))?;
        let _entered = self.enter(Call::CopyIn)?;
        // SAFETY: see above.
        check(Call::CopyIn, unsafe { function(address, from.as_ptr().cast(), from.len()) })
    }

    fn copy_out(&self, address: u64, to: &mut [u8]) -> Result<()> {
        let function = self.functions.cuMemcpyDtoH_v2.ok_or(unsupported(Call::CopyOut))?;
        let _entered = self.enter(Call::CopyOut)?;
        // SAFETY: see above.
        check(Call::CopyOut, unsafe { function(to.as_mut_ptr().cast(), address, to.len()) })
    }

    fn private_stream(&self) -> Result<Stream> {
        let function = self.functions.cuStreamCreate.ok_or(unsupported(Call::PrivateStream))?;
        let _entered = self.enter(Call::PrivateStream)?;
        let mut stream = ptr::null_mut();
        // SAFETY: see above.
        check(Call::PrivateStream, unsafe { function(&mut stream, NON_BLOCKING) })?;
        Ok(Stream(stream as u64))
    }

    fn write_word(&self, stream: Stream, address: u64, value: u64) -> Result<()> {
        let function = self.functions.cuStreamWriteValue64_v2.ok_or(unsupported(Call::WriteWord))?;
        let _entered = self.enter(Call::WriteWord)?;
        if self.is_capturing(stream) {
            return Err(DeviceError { call: Call::WriteWord, fault: Fault::Capturing });
        }
        // SAFETY: see above.
        check(Call::WriteWord, unsafe { function(handle(stream), address, value, WRITE_BEHIND_ALL) })
    }

    fn wait_word(&self, stream: Stream, address: u64, value: u64) -> Result<()> {
        let function = self.functions.cuStreamWaitValue64_v2.ok_or(unsupported(Call::WaitWord))?;
        let _entered = self.enter(Call::WaitWord)?;
        if self.is_capturing(stream) {
            return Err(DeviceError { call: Call::WaitWord, fault: Fault::Capturing });
        }
        // SAFETY: see above.
        check(Call::WaitWord, unsafe { function(handle(stream), address, value, AT_LEAST) })
    }
}
