//! Streams of a program's own, for programs that call the driver only through the pool.

use std::ffi::c_uint;
use std::ptr;

use super::{Cuda, CudaError, handle};
use crate::device::{Call, Fault, Stream};

/// `CU_STREAM_NON_BLOCKING`: nothing to do with the legacy default stream.
pub(super) const NON_BLOCKING: c_uint = 1;

impl Cuda {
    /// A new stream that has nothing to do with the legacy default stream.
    pub fn create_stream(&self) -> Result<Stream, CudaError> {
        let failed = |code| CudaError::Open { ordinal: self.about.ordinal, function: "cuStreamCreate", code };
        let create = self.functions.cuStreamCreate.ok_or(CudaError::OldDriver { function: "cuStreamCreate" })?;
        let _entered = self.enter(Call::StreamId).map_err(|error| match error.fault {
            Fault::Driver(code) => failed(code),
            _ => failed(0),
        })?;
        let mut stream = ptr::null_mut();
        // SAFETY: it writes the handle; the context is current.
        match unsafe { create(&mut stream, NON_BLOCKING) } {
            0 => Ok(Stream(stream as u64)),
            code => Err(failed(code)),
        }
    }

    /// Destroys a stream that [`create_stream`](Self::create_stream) made. Its work goes on.
    pub fn destroy_stream(&self, stream: Stream) {
        if let (Some(destroy), Ok(_entered)) = (self.functions.cuStreamDestroy_v2, self.enter(Call::StreamId)) {
            // SAFETY: the caller says that it is such a stream, and not used any more.
            unsafe { destroy(handle(stream)) };
        }
    }
}
