//! The driver's functions, looked up once.
//!
//! cudarc loads the library and has the types. Its own wrappers end the program where a function is missing, and read
//! what a function returns as one of the errors that they know; a newer driver may have others. So the functions are
//! looked up here, each of them checked, and what they return stays a number.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdeviceptr, CUevent, CUipcMemHandle, CUmemAccessDesc, CUmemAllocationProp,
    CUmemGenericAllocationHandle, CUmemoryPool, CUstream, CUuuid,
};

use super::CudaError;

/// What the driver's functions return; 0 is success.
pub type Code = u32;

macro_rules! functions {
    (required { $($name:ident($($type:ty),*);)* } optional { $($maybe:ident($($of:ty),*);)* }) => {
        /// The functions that the pool calls. The optional ones came with CUDA 10.2 to 12.0.
        #[allow(non_snake_case, reason = "the driver's names")]
        pub struct Functions {
            $(pub $name: unsafe extern "C" fn($($type),*) -> Code,)*
            $(pub $maybe: Option<unsafe extern "C" fn($($of),*) -> Code>,)*
        }

        impl Functions {
            fn look_up() -> Result<Functions, CudaError> {
                // SAFETY: both open the driver's library, whose initialisers may be run at any time.
                let library = unsafe {
                    if !sys::is_culib_present() {
                        return Err(CudaError::NoDriver);
                    }
                    sys::culib()
                };
                Ok(Functions {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        type Function = unsafe extern "C" fn($($type),*) -> Code;
                        // SAFETY: the type is the one that cuda.h of CUDA 13.0 declares;
                        // it has never changed for this name.
                        let symbol = unsafe { library.get::<Function>(name.as_bytes()) };
                        *symbol.map_err(|_| CudaError::OldDriver { function: stringify!($name) })?
                    },)*
                    $($maybe: {
                        let name = concat!(stringify!($maybe), "\0");
                        type Function = unsafe extern "C" fn($($of),*) -> Code;
                        // SAFETY: as above.
                        let symbol = unsafe { library.get::<Function>(name.as_bytes()) };
                        symbol.ok().map(|symbol| *symbol)
                    },)*
                })
            }
        }
    };
}

functions! {
    required {
        cuInit(c_uint);
        cuDriverGetVersion(*mut c_int);
        cuDeviceGetCount(*mut c_int);
        cuDeviceGet(*mut CUdevice, c_int);
        cuDeviceGetName(*mut c_char, c_int, CUdevice);
        cuDeviceTotalMem_v2(*mut usize, CUdevice);
        cuDeviceGetAttribute(*mut c_int, c_uint, CUdevice);
        cuDeviceCanAccessPeer(*mut c_int, CUdevice, CUdevice);
        cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
        cuDevicePrimaryCtxRelease_v2(CUdevice);
        cuCtxGetCurrent(*mut CUcontext);
        cuCtxPushCurrent_v2(CUcontext);
        cuCtxPopCurrent_v2(*mut CUcontext);
        cuCtxEnablePeerAccess(CUcontext, c_uint);
        cuCtxSynchronize();
        cuMemGetInfo_v2(*mut usize, *mut usize);
        cuMemAlloc_v2(*mut CUdeviceptr, usize);
        cuMemFree_v2(CUdeviceptr);
        cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
        cuMemFreeHost(*mut c_void);
        cuStreamWaitEvent(CUstream, CUevent, c_uint);
        cuStreamIsCapturing(CUstream, *mut c_uint);
        cuThreadExchangeStreamCaptureMode(*mut c_uint);
        cuEventCreate(*mut CUevent, c_uint);
        cuEventDestroy_v2(CUevent);
        cuEventRecord(CUevent, CUstream);
        cuEventQuery(CUevent);
        cuEventSynchronize(CUevent);
    }
    optional {
        cuDeviceGetUuid_v2(*mut CUuuid, CUdevice);
        cuStreamGetId(CUstream, *mut c_ulonglong);
        cuStreamCreate(*mut CUstream, c_uint);
        cuStreamDestroy_v2(CUstream);
        cuMemAddressReserve(*mut CUdeviceptr, usize, usize, CUdeviceptr, c_ulonglong);
        cuMemAddressFree(CUdeviceptr, usize);
        cuMemCreate(*mut CUmemGenericAllocationHandle, usize, *const CUmemAllocationProp, c_ulonglong);
        cuMemRelease(CUmemGenericAllocationHandle);
        cuMemMap(CUdeviceptr, usize, usize, CUmemGenericAllocationHandle, c_ulonglong);
        cuMemUnmap(CUdeviceptr, usize);
        cuMemSetAccess(CUdeviceptr, usize, *const CUmemAccessDesc, usize);
        cuDeviceGetDefaultMemPool(*mut CUmemoryPool, CUdevice);
        cuMemPoolGetAttribute(CUmemoryPool, c_uint, *mut c_void);
        cuMemPoolSetAttribute(CUmemoryPool, c_uint, *mut c_void);
        cuMemPoolTrimTo(CUmemoryPool, usize);
        cuMemAllocAsync(*mut CUdeviceptr, usize, CUstream);
        cuMemFreeAsync(CUdeviceptr, CUstream);
        cuMemGetAllocationGranularity(*mut usize, *const CUmemAllocationProp, c_uint);
        cuMemExportToShareableHandle(*mut c_void, CUmemGenericAllocationHandle, c_uint, c_ulonglong);
        cuMemImportFromShareableHandle(*mut CUmemGenericAllocationHandle, *mut c_void, c_uint);
        cuMemRetainAllocationHandle(*mut CUmemGenericAllocationHandle, *mut c_void);
        cuMemGetAddressRange_v2(*mut CUdeviceptr, *mut usize, CUdeviceptr);
        cuIpcGetMemHandle(*mut CUipcMemHandle, CUdeviceptr);
        cuIpcOpenMemHandle_v2(*mut CUdeviceptr, CUipcMemHandle, c_uint);
        cuIpcCloseMemHandle(CUdeviceptr);
        cuMemcpyHtoD_v2(CUdeviceptr, *const c_void, usize);
        cuMemcpyDtoH_v2(*mut c_void, CUdeviceptr, usize);
        cuStreamWriteValue64_v2(CUstream, CUdeviceptr, u64, c_uint);
        cuStreamWaitValue64_v2(CUstream, CUdeviceptr, u64, c_uint);
    }
}

/// The functions of this process's driver, which is initialised.
pub fn functions() -> Result<&'static Functions, CudaError> {
    static FUNCTIONS: OnceLock<Result<Functions, CudaError>> = OnceLock::new();
    let load = || {
        let functions = Functions::look_up()?;
        // SAFETY: it takes nothing and may be called again and again.
        match unsafe { (functions.cuInit)(0) } {
            0 => Ok(functions),
            34 => Err(CudaError::Stub),
            100 => Err(CudaError::NoDevice),
            code => Err(CudaError::Start(code)),
        }
    };
    FUNCTIONS.get_or_init(load).as_ref().map_err(Clone::clone)
}
