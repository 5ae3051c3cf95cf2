//! Owned buffers of a pool's memory.

use std::ops::Deref;

use poolscope_gpu::{Device, Pool, PoolError, Stream};
use poolscope_wire::kind;

use crate::data_ptr::{self, DataPtr};

/// A buffer of so many bytes of a pool's memory, for work given to the stream from now on. Dropping it, here or by its
/// deleter in another language, frees the block on that stream, which must be there then, as `cudaFreeAsync` would: in
/// the order of the stream.
///
/// The buffer has the pool with it: an `Arc` of it, or a reference to one that stays. Memory that is pinned for a
/// device is the host's, and can be read there; that of a device which only simulates it is not.
/// No bytes are the empty buffer.
///
/// ```
/// # use std::sync::Arc;
/// use poolscope_alloc::gpu::{self, Config, Simulated, Stream};
///
/// # fn main() -> Result<(), gpu::PoolError> {
/// let pool = Arc::new(gpu::pool(Arc::new(Simulated::new(1 << 30)), 3, Config::default())?);
/// let tensor = gpu::buffer(pool.clone(), 4 << 20, Stream::LEGACY)?;
/// assert_eq!(tensor.device(), poolscope_alloc::data_ptr::Device::Cuda(3));
/// drop(tensor);
/// assert_eq!(pool.stats().current_usage, 0);
/// # Ok(())
/// # }
/// ```
pub fn buffer<D: Device, P>(pool: P, length: usize, stream: Stream) -> Result<DataPtr, PoolError>
where
    P: Deref<Target = Pool<D>> + Send + 'static,
{
    if length == 0 {
        return Ok(DataPtr::default());
    }
    let address = pool.allocate(length as u64, stream)?;
    let (number, kind) = pool.shown_as();
    let of_host = kind == kind::PINNED && !pool.device().is_simulated();
    let device = if of_host { data_ptr::Device::Host } else { data_ptr::Device::Cuda(number as i32) };
    let free = move || {
        if let Err(error) = pool.free(address, stream) {
            eprintln!("poolscope: device {number}: a buffer is not freed: {error}");
        }
    };
    // SAFETY: the block has so many bytes, and is this buffer's alone until it is freed.
    // Threads may pass device memory about.
    Ok(unsafe { DataPtr::from_foreign(address as *mut u8, length, device, free) })
}
